//! Platforms that are built with Node.js.

mod manager;
mod next;
mod package;
mod pages;

pub(crate) use next::next;
pub(crate) use pages::pages;

use crate::command::Command;
use crate::context::{BuildContext, OutputKind, SeparateLayer};
use crate::error::{Result, refused};
use crate::images::Image;
use crate::sources::Tree;
use manager::Manager;
use package::{FILE, Package};

/// Files that are started when nobody says what to start.
const MAINS: [&str; 8] = [
    "server.js",
    "index.js",
    "app.js",
    "main.js",
    "server.mjs",
    "index.mjs",
    "app.mjs",
    "main.mjs",
];

/// A project of Node.js.
pub(crate) struct Project {
    package: Package,
    manager: Manager,
    image: Image,
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
        let requested = package::version(context, &package, setting)?;
        let image = context.base(image, "Node.js", requested.as_ref());
        let manager = Manager::find(context, &package)?;
        Ok(Self {
            package,
            manager,
            image,
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
            || self.package.runs_at_install()
            || self.package.has_local_dependencies()
            || context.tree.has("pnpm-workspace.yaml")
            || context.settings.install_command()?.is_some())
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
        self.manager.prepare(context);
        if self.needs_all_files(context)? {
            copy_rest(context, rest);
            if let Some(command) = context.settings.install_command()? {
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
            context.file.run(&self.manager.install(dev));
        }
        copy_rest(context, rest);
        Ok(())
    }

    /// Writes what builds the project: the user's command, else a script. Whether there is any.
    fn build(&self, context: &mut BuildContext<'_>, scripts: &[&'static str]) -> Result<bool> {
        if let Some(command) = context.settings.build_command()? {
            context.note(format!(
                "built with `{}` from the settings",
                command.shown()
            ));
            context.file.run_command(&command);
            return Ok(true);
        }
        let Some(script) = self.build_script(scripts) else {
            return Ok(false);
        };
        context.note(format!("built with the script `{script}` of {FILE}"));
        context.file.run(&self.manager.script(script));
        Ok(true)
    }

    pub(crate) fn build_script(&self, scripts: &[&'static str]) -> Option<&'static str> {
        scripts
            .iter()
            .copied()
            .find(|name| self.package.script(name).is_some())
    }

    /// What starts it.
    fn start(&self, context: &mut BuildContext<'_>) -> Result<Option<Command>> {
        if let Some(command) = context.said_start()? {
            return Ok(Some(command));
        }
        if let Some(script) = self.package.script("start") {
            context.note(format!("start script of {FILE}: {script}"));
            // Without npm in between, the app itself gets the signal to stop.
            let alone = ["prestart", "poststart"]
                .iter()
                .all(|name| self.package.script(name).is_none());
            let plain = Command::from_line(script).filter(|line| matches!(line, Command::Words(_)));
            let run = Command::words(&self.manager.script("start"));
            return Ok(Some(plain.filter(|_| alone).unwrap_or(run)));
        }
        Ok(main_file(&self.package, &context.tree).map(|file| Command::words(&["node", &file])))
    }

    /// Writes the last stage: Node.js, and the manager if the app is started with it.
    fn begin_run(&self, context: &mut BuildContext<'_>, start: &Command) -> Result<()> {
        context.file.last_stage(&self.image);
        context.begin_run(&self.system().1)?;
        let program = self.manager.program();
        if let Some(setup) = self.manager.setup()
            && start.argv().iter().any(|word| word.contains(program))
        {
            context.file.run(&setup);
        }
        context.file.env("NODE_ENV", "production");
        context.file.env("PATH", "/app/node_modules/.bin:$PATH");
        Ok(())
    }

    /// Writes an app that runs with its `node_modules`.
    fn run_app(
        &self,
        context: &mut BuildContext<'_>,
        scripts: &[&'static str],
        start: Command,
    ) -> Result<OutputKind> {
        let builds =
            self.build_script(scripts).is_some() || context.settings.build_command()?.is_some();
        let own_install = context.settings.install_command()?.is_some();
        let installs = self.package.needs_install() || own_install;
        if !builds && !installs {
            self.begin_run(context, &start)?;
            context.file.copy_all_owned();
            return Ok(OutputKind::Runs(start));
        }
        let script = self.package.script("start").unwrap_or_default();
        let keeps_dev = self.package.uses_dev_program(script);
        if keeps_dev {
            context.note("dependencies for development are kept: the start script uses one");
        }
        let dev = builds || keeps_dev || self.package.runs_at_install();
        let only_installs = !builds && !self.needs_all_files(context)?;
        let rest = if only_installs {
            Rest::Nothing
        } else {
            Rest::Sources
        };
        self.begin_build(context)?;
        self.install(context, dev, rest)?;
        self.build(context, scripts)?;
        if dev
            && !keeps_dev
            && installs
            && !own_install
            && let Some(prune) = self.manager.prune()
        {
            context.file.run(prune);
        }
        self.take_app(context, &start, only_installs)?;
        Ok(OutputKind::Runs(start))
    }

    /// Writes the end of the stage that builds, and the last one with what comes out of it.
    fn take_app(
        &self,
        context: &mut BuildContext<'_>,
        start: &Command,
        only_installs: bool,
    ) -> Result<()> {
        if only_installs {
            context.file.script("mkdir -p node_modules");
        } else {
            context.split_layer(SeparateLayer::NodeModules);
        }
        self.begin_run(context, start)?;
        context.copy_layer(SeparateLayer::NodeModules);
        if only_installs {
            context.file.copy_all_owned();
        } else {
            context.file.copy_from_owned("build", "/out", "./");
        }
        Ok(())
    }
}

fn copy_rest(context: &mut BuildContext<'_>, rest: Rest) {
    if rest == Rest::Sources {
        context.file.copy_all();
    }
}

fn main_file(package: &Package, tree: &Tree<'_>) -> Option<String> {
    let main = package
        .text("main")
        .map(|main| main.strip_prefix("./").unwrap_or(main));
    let main = main.filter(|main| tree.has(main));
    main.or_else(|| tree.first(&MAINS)).map(str::to_owned)
}

/// Platform `node`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "node", &["version", "nodeVersion"])?;
    let start = project.start(context)?;
    let start = start.ok_or_else(|| {
        refused(FILE, "does not say what to start; add \"scripts\": {\"start\": \"node server.js\"} with your file")
    })?;
    project.run_app(context, &["build"], start)
}
