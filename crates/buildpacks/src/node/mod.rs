//! Platforms that are built with Node.js.

mod app;
mod manager;
mod pages;
mod start;
mod version;

pub(crate) use app::{app, next};
pub(crate) use pages::{FOLDERS_LINE, INDEX_LINE, TAKE, pages};

use crate::command::Command;
use crate::context::BuildContext;
use crate::error::Result;
use crate::frameworks::Variant;
use crate::hosting::Hosting;
use crate::images::{BaseImages, Image};
use crate::package::{FILE, Package};
use manager::Manager;

/// The first Node.js whose npm has the command `npm pkg`.
const NPM_PKG_SINCE: u32 = 16;

/// A project of Node.js.
pub(crate) struct Project {
    package: Package,
    manager: Manager,
    image: Image,
    /// Whether its npm can change `package.json`.
    edits_package: bool,
    /// What `vercel.json` or `netlify.toml` say.
    hosting: Hosting,
}

/// What is copied once dependencies are installed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Sources,
    /// The last stage takes the sources itself.
    Nothing,
}

impl Project {
    /// Looks at the project; `setting` names the fields that say which Node.js.
    pub(crate) fn open(
        context: &mut BuildContext<'_>,
        image: &'static str,
        setting: &[&str],
    ) -> Result<Self> {
        let package = Package::read(&context.tree)?;
        let requested = version::requested(context, &package, setting)?;
        let usual = BaseImages::usual(image);
        let version = requested.as_ref().map_or(usual, |it| it.version);
        let image = context.base(image, "Node.js", requested.as_ref());
        let manager = Manager::find(context, &package)?;
        Ok(Self {
            package,
            manager,
            image,
            edits_package: version.major >= NPM_PKG_SINCE,
            hosting: Hosting::read(&context.tree)?,
        })
    }

    /// Packages of Debian to build with, and to run with.
    fn system(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        // What is in an image of somebody else is theirs to say.
        if self.image.configured() {
            return (Vec::new(), Vec::new());
        }
        self.package.system()
    }

    /// Begins the stage that builds.
    fn begin_build(&self, context: &mut BuildContext<'_>) -> Result<()> {
        context.begin_build(&self.image, &self.system().0)
    }

    /// Whether anything of the sources may be needed to install.
    fn needs_all_files(&self, context: &BuildContext<'_>) -> Result<bool> {
        Ok(self.package.is_workspace()
            || (self.package.runs_at_install() && self.put_off().is_empty())
            || self.package.has_local_dependencies()
            || context.tree.has("pnpm-workspace.yaml")
            || self.own_install(context)?.is_some())
    }

    /// Scripts that would run at install and need the sources, but that run once those are there instead: so a change of
    /// the sources installs nothing anew.
    fn put_off(&self) -> Vec<&'static str> {
        if self.edits_package {
            self.package.syncs()
        } else {
            Vec::new()
        }
    }

    /// What installs dependencies instead of the package manager's usual command.
    fn own_install(&self, context: &BuildContext<'_>) -> Result<Option<Command>> {
        let said = context.settings.install_command()?;
        Ok(said.or_else(|| self.hosting.install.clone()))
    }

    /// Writes a stage `assets` beside an app of another language, with all of its files.
    pub(crate) fn build_assets(
        &self,
        context: &mut BuildContext<'_>,
        script: &'static str,
        app: &'static str,
    ) -> Result<()> {
        context.file.stage(&self.image, "assets");
        context.file.args(context.settings.build_args());
        context.file.workdir(".")?;
        self.manager.prepare(context);
        context
            .file
            .copy(&self.manager.manifests(&context.tree), "./")?;
        if self.package.runs_at_install() || self.package.has_local_dependencies() {
            context.file.copy_from(app, "/app", "./");
        }
        context.file.run(&self.manager.install(true));
        context.file.copy_from(app, "/app", "./");
        context.note(format!(
            "assets are built with the script `{script}` of {FILE}"
        ));
        context.file.run(&self.manager.script(script));
        Ok(())
    }

    /// Writes what installs dependencies, and then all other files. Manifests come first, so that
    /// the layer with the dependencies is used again while they stay the same.
    fn install(&self, context: &mut BuildContext<'_>, dev: bool, rest: Rest) -> Result<()> {
        context.file.cache_env(&self.manager.cache_env());
        self.manager.prepare(context);
        if self.needs_all_files(context)? {
            copy_rest(context, rest);
            if let Some(command) = self.own_install(context)? {
                context.file.run_command(&command);
            } else {
                context.note("all files are copied before dependencies are installed: workspaces, local packages or install scripts may need them");
                context.file.run(&self.manager.install(dev));
            }
            return Ok(());
        }
        if self.package.needs_install() {
            context
                .file
                .copy(&self.manager.manifests(&context.tree), "./")?;
            for folder in Manager::folders(&context.tree) {
                context.file.copy(&[folder], &format!("{folder}/"))?;
            }
            let put_off = self.put_off();
            if !put_off.is_empty() {
                let names = put_off.join("` and `");
                context.note(format!(
                    "put off until dependencies are installed and all files are there: the script `{names}`"
                ));
                // Of this copy, which the sources replace. Scripts of dependencies run as ever.
                let scripts = put_off.iter().map(|name| format!("scripts.{name}"));
                let words = ["npm", "pkg", "delete"].map(str::to_owned);
                let words = words.into_iter().chain(scripts);
                context.file.run(&words.collect::<Vec<_>>());
            }
            context.file.run(&self.manager.install(dev));
            context.file.note_installed();
            copy_rest(context, rest);
            for script in put_off {
                context.file.run(&self.manager.script(script));
            }
            return Ok(());
        }
        copy_rest(context, rest);
        Ok(())
    }

    /// Writes what builds the project: the user's command, else a script, else the framework's program. Whether there
    /// is any.
    fn build(&self, context: &mut BuildContext<'_>, variant: &Variant) -> Result<bool> {
        if let Some(command) = context.settings.build_command()? {
            context.note(format!(
                "built with `{}` from the settings",
                command.shown()
            ));
            context.file.run_command(&command);
            return Ok(true);
        }
        if let Some(command) = &self.hosting.build {
            let (line, file) = (command.shown(), self.hosting.file);
            context.note(format!("built with `{line}` from {file}"));
            // That host finds the programs of packages, too.
            context.file.env("PATH", "/app/node_modules/.bin:$PATH");
            context.file.run_command(command);
            return Ok(true);
        }
        if let Some(script) = self.build_script(variant.scripts) {
            context.note(format!("built with the script `{script}` of {FILE}"));
            context.file.run(&self.manager.script(script));
            return Ok(true);
        }
        let [program, arguments @ ..] = variant.build else {
            return Ok(false);
        };
        context.note(format!("built with `{}`", variant.build.join(" ")));
        let program = format!("node_modules/.bin/{program}");
        let words = [program.as_str()]
            .into_iter()
            .chain(arguments.iter().copied());
        context.file.run(&words.collect::<Vec<_>>());
        Ok(true)
    }

    pub(crate) fn build_script(&self, scripts: &'static [&'static str]) -> Option<&'static str> {
        scripts
            .iter()
            .copied()
            .find(|name| self.package.script(name).is_some())
    }

    /// Whether anything builds it, other than the framework's program.
    fn is_built(&self, context: &BuildContext<'_>, variant: &Variant) -> Result<bool> {
        Ok(self.build_script(variant.scripts).is_some()
            || self.hosting.build.is_some()
            || context.settings.build_command()?.is_some())
    }
}

fn copy_rest(context: &mut BuildContext<'_>, rest: Rest) {
    if rest == Rest::Sources {
        context.file.copy_all();
    }
}
