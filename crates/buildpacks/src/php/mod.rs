//! Platforms that run on PHP, with Apache as in the official image.

mod composer;
mod extensions;
mod laravel;

pub(crate) use laravel::laravel;

use crate::command::Command;
use crate::error::{Result, refused};
use crate::images::{BaseImages, Image};
use crate::version::Version;
use crate::work::{Apart, Ending, Work};
use composer::Composer;

/// Apache on PORT, with the folder of the site, its `.htaccess`, and no hidden files. Apache itself
/// replaces the variables when it starts.
const APACHE: &str = "a2enmod rewrite headers && echo 'Listen ${PORT}' > /etc/apache2/ports.conf \
&& printf '%s\\n' '<VirtualHost *:${PORT}>' 'DocumentRoot ${APACHE_DOCUMENT_ROOT}' \
'<Directory ${APACHE_DOCUMENT_ROOT}>' 'Options -Indexes +FollowSymLinks' 'AllowOverride All' \
'Require all granted' 'DirectoryIndex index.php index.html' '</Directory>' \
'RedirectMatch 404 \"/\\.(?!well-known/)\"' '</VirtualHost>' \
> /etc/apache2/sites-available/000-default.conf";
/// Settings for production, which the image has ready.
const PRODUCTION: &str = "cp \"$PHP_INI_DIR/php.ini-production\" \"$PHP_INI_DIR/php.ini\"";
/// PHP does not read TZ.
const TIME_ZONE: &str = "echo \"date.timezone=$1\" > \"$PHP_INI_DIR/conf.d/time-zone.ini\"";

/// A project of PHP.
struct Project {
    composer: Option<Composer>,
    image: Image,
    version: Version,
}

impl Project {
    fn open(work: &mut Work<'_>, image: &'static str) -> Result<Self> {
        work.ignored.push("vendor");
        let composer = Composer::read(&work.tree)?;
        let asked = composer::version(work, composer.as_ref())?;
        let version = asked
            .as_ref()
            .map_or(BaseImages::usual(image), |asked| asked.version);
        let image = work.base(image, "PHP", asked.as_ref());
        Ok(Self {
            composer,
            image,
            version: version.without_patch(),
        })
    }

    /// Writes the stage `base`: PHP with its extensions, and Apache.
    fn begin(&self, work: &mut Work<'_>, extensions: &[&'static str]) -> Result<()> {
        work.file.stage(&self.image, "base");
        if self.image.configured() {
            work.note("extensions of PHP are expected in the configured base image");
        } else {
            let required: Vec<_> = self
                .composer
                .iter()
                .flat_map(Composer::extensions)
                .collect();
            extensions::add(work, self.version, extensions, required.into_iter())?;
            work.file.script(PRODUCTION);
        }
        work.file.script(APACHE);
        if let Some(zone) = work.settings.time_zone()? {
            work.file.run(&["/bin/sh", "-c", TIME_ZONE, "sh", &zone]);
        }
        Ok(())
    }

    /// Writes the stage `build`: packages, and the user's build.
    fn build(&self, work: &mut Work<'_>, before: &[&'static str]) -> Result<()> {
        work.file.stage_on("base", Some("build"));
        let asked = work.settings.packages()?;
        let tools: &[&str] = if self.image.configured() {
            &[]
        } else {
            &["git", "unzip"]
        };
        let packages: Vec<_> = tools
            .iter()
            .copied()
            .chain(asked.iter().map(String::as_str))
            .collect();
        work.file.packages(&packages);
        let composer = work.image("composer");
        work.file
            .copy_from_image(&composer, "/usr/bin/composer", "/usr/local/bin/composer");
        work.file.env("COMPOSER_ALLOW_SUPERUSER", "1");
        work.file.args(work.settings.build_args());
        work.file.workdir(".")?;
        for script in before {
            work.file.script(script);
        }
        match &self.composer {
            Some(composer) => composer.install(work)?,
            None => work.file.copy_all(),
        }
        if let Some(command) = work.settings.build_command()? {
            work.file.run_command(&command);
        }
        Ok(())
    }
}

/// Writes the beginning of the last stage, in which Apache serves this folder.
fn begin_run(work: &mut Work<'_>, root: &str) -> Result<()> {
    work.file.stage_on("base", None);
    work.begin_run(&[])?;
    match root {
        "." => work.file.env("APACHE_DOCUMENT_ROOT", "/app"),
        root => work
            .file
            .env_word("APACHE_DOCUMENT_ROOT", &format!("/app/{root}")),
    }
    Ok(())
}

/// The folder that Apache serves: settings, else `public`, else everything.
fn document_root(work: &mut Work<'_>) -> Result<String> {
    let root = match work.settings.path(&["root", "documentRoot", "publish"])? {
        Some(root) if root == "." || work.tree.has_folder(&root) => root,
        Some(root) => {
            return Err(refused(
                "platformConfig.root",
                format!("there is no folder `{root}` in the sources"),
            ));
        }
        None => {
            let starts = |folder: &str| {
                ["index.php", "index.html"]
                    .iter()
                    .any(|name| work.tree.has(&format!("{folder}/{name}")))
            };
            let usual = ["public", "public_html", "web", "www"]
                .into_iter()
                .find(|folder| starts(folder));
            usual.unwrap_or(".").to_owned()
        }
    };
    if root != "." && !crate::command::is_plain(&root) {
        return Err(refused(
            root,
            "rename it: use letters, digits and `. _ - / @ +` only",
        ));
    }
    work.note(format!("Apache serves the folder {root}"));
    Ok(root)
}

/// Platform `php`.
pub(crate) fn app(work: &mut Work<'_>) -> Result<Ending> {
    let project = Project::open(work, "php")?;
    let root = document_root(work)?;
    let start = work
        .said_start()?
        .unwrap_or_else(|| Command::words(&["apache2-foreground"]));
    project.begin(work, &["mysqli", "opcache", "pdo_mysql"])?;
    let builds = project.composer.is_some() || work.settings.build_command()?.is_some();
    if builds {
        project.build(work, &[])?;
        work.set_apart(Apart::Vendor);
        begin_run(work, &root)?;
        work.copy_apart(Apart::Vendor);
        work.file.copy_from_owned("build", "/out", "./");
    } else {
        begin_run(work, &root)?;
        work.file.copy_all_owned();
    }
    Ok(Ending::Runs(start))
}
