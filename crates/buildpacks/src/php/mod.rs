//! Platforms that run on PHP, with Apache as in the official image.

mod composer;
mod extensions;
mod laravel;

pub(crate) use laravel::laravel;

use crate::command::Command;
use crate::context::{BuildContext, OutputKind, SeparateLayer};
use crate::error::{Result, refused};
use crate::images::{BaseImages, Image};
use crate::version::Version;
use composer::Composer;

/// Apache on PORT, with the folder of the site, its `.htaccess`, and no hidden files. Apache itself
/// replaces the variables when it starts.
pub(crate) const APACHE: &str = "a2enmod rewrite headers && echo 'Listen ${PORT}' > /etc/apache2/ports.conf \
&& printf '%s\\n' '<VirtualHost *:${PORT}>' 'DocumentRoot ${APACHE_DOCUMENT_ROOT}' \
'<Directory ${APACHE_DOCUMENT_ROOT}>' 'Options -Indexes +FollowSymLinks' 'AllowOverride All' \
'Require all granted' 'DirectoryIndex index.php index.html' '</Directory>' \
'RedirectMatch 404 \"/\\.(?!well-known/)\"' '</VirtualHost>' \
> /etc/apache2/sites-available/000-default.conf";
/// Settings for production, which the image has ready.
pub(crate) const PRODUCTION: &str =
    "cp \"$PHP_INI_DIR/php.ini-production\" \"$PHP_INI_DIR/php.ini\"";
/// PHP does not read TZ.
pub(crate) const TIME_ZONE: &str =
    "echo \"date.timezone=$1\" > \"$PHP_INI_DIR/conf.d/time-zone.ini\"";

/// A project of PHP.
struct Project {
    composer: Option<Composer>,
    image: Image,
    version: Version,
}

impl Project {
    fn open(context: &mut BuildContext<'_>, image: &'static str) -> Result<Self> {
        context.ignored.push("vendor");
        let composer = Composer::read(&context.tree)?;
        let requested = composer::version(context, composer.as_ref())?;
        let version = requested
            .as_ref()
            .map_or(BaseImages::usual(image), |requested| requested.version);
        let image = context.base(image, "PHP", requested.as_ref());
        Ok(Self {
            composer,
            image,
            version: version.without_patch(),
        })
    }

    /// Writes the stage `base`: PHP with its extensions, and Apache.
    fn begin(&self, context: &mut BuildContext<'_>, extensions: &[&'static str]) -> Result<()> {
        context.file.stage(&self.image, "base");
        if self.image.configured() {
            context.note("extensions of PHP are expected in the configured base image");
        } else {
            let required: Vec<_> = self
                .composer
                .iter()
                .flat_map(Composer::extensions)
                .collect();
            extensions::add(context, self.version, extensions, required.into_iter())?;
            context.file.script(PRODUCTION);
        }
        context.file.script(APACHE);
        if let Some(zone) = context.settings.time_zone()? {
            context.file.run(&["/bin/sh", "-c", TIME_ZONE, "sh", &zone]);
        }
        Ok(())
    }

    /// Writes the stage `build`: packages, and the user's build.
    fn build(&self, context: &mut BuildContext<'_>, before: &[&'static str]) -> Result<()> {
        context.file.stage_on("base", Some("build"));
        let requested = context.settings.packages()?;
        let tools: &[&str] = if self.image.configured() {
            &[]
        } else {
            &["git", "unzip"]
        };
        let packages: Vec<_> = tools
            .iter()
            .copied()
            .chain(requested.iter().map(String::as_str))
            .collect();
        context.file.packages(&packages);
        let composer = context.image("composer");
        context
            .file
            .copy_from_image(&composer, "/usr/bin/composer", "/usr/local/bin/composer");
        context.file.env("COMPOSER_ALLOW_SUPERUSER", "1");
        context
            .file
            .cache_env(&[("COMPOSER_CACHE_DIR", "composer")]);
        context.file.args(context.settings.build_args());
        context.file.workdir(".")?;
        for script in before {
            context.file.script(script);
        }
        match &self.composer {
            Some(composer) => composer.install(context)?,
            None => context.file.copy_all(),
        }
        if let Some(command) = context.settings.build_command()? {
            context.file.run_command(&command);
        }
        Ok(())
    }
}

/// Writes the beginning of the last stage, in which Apache serves this folder.
fn begin_run(context: &mut BuildContext<'_>, root: &str) -> Result<()> {
    context.file.stage_on("base", None);
    context.begin_run(&[])?;
    match root {
        "." => context.file.env("APACHE_DOCUMENT_ROOT", "/app"),
        root => context
            .file
            .env_word("APACHE_DOCUMENT_ROOT", &format!("/app/{root}")),
    }
    Ok(())
}

/// The folder that Apache serves: settings, else `public`, else everything.
fn document_root(context: &mut BuildContext<'_>) -> Result<String> {
    let root = match context
        .settings
        .path(&["root", "documentRoot", "publish"])?
    {
        Some(root) if root == "." || context.tree.has_folder(&root) => root,
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
                    .any(|name| context.tree.has(&format!("{folder}/{name}")))
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
    context.note(format!("Apache serves the folder {root}"));
    Ok(root)
}

/// Platform `php`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "php")?;
    let root = document_root(context)?;
    let start = context
        .explicit_start()?
        .unwrap_or_else(|| Command::words(&["apache2-foreground"]));
    project.begin(context, &["mysqli", "opcache", "pdo_mysql"])?;
    let builds = project.composer.is_some() || context.settings.build_command()?.is_some();
    if builds {
        project.build(context, &[])?;
        context.split_layer(SeparateLayer::Vendor);
        begin_run(context, &root)?;
        context.copy_layer(SeparateLayer::Vendor);
        context.file.copy_from_owned("build", "/out", "./");
    } else {
        begin_run(context, &root)?;
        context.file.copy_all_owned();
    }
    Ok(OutputKind::Runs(start))
}
