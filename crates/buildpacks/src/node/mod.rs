//! Platforms that are built with Node.js.

mod manager;
mod next;
mod package;
mod pages;

pub(crate) use next::next;
pub(crate) use pages::pages;

use crate::command::Command;
use crate::error::{Result, refused};
use crate::images::Image;
use crate::sources::Tree;
use crate::work::{Apart, Ending, Work};
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
    pub(crate) fn open(work: &mut Work<'_>, image: &'static str, setting: &[&str]) -> Result<Self> {
        let package = Package::read(&work.tree)?;
        let asked = package::version(work, &package, setting)?;
        let image = work.base(image, "Node.js", asked.as_ref());
        let manager = Manager::find(work, &package)?;
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
    fn begin_build(&self, work: &mut Work<'_>) -> Result<()> {
        work.begin_build(&self.image, &self.system().0)
    }

    /// Whether anything of the sources may be needed to install.
    fn needs_all_files(&self, work: &Work<'_>) -> Result<bool> {
        Ok(self.package.is_workspace()
            || self.package.runs_at_install()
            || self.package.has_local_dependencies()
            || work.tree.has("pnpm-workspace.yaml")
            || work.settings.install_command()?.is_some())
    }

    /// Writes a stage `assets` beside an app of another language, with all of its files.
    pub(crate) fn build_assets(
        &self,
        work: &mut Work<'_>,
        script: &'static str,
        app: &'static str,
    ) -> Result<()> {
        work.file.stage(&self.image, "assets");
        work.file.args(work.settings.build_args());
        work.file.workdir(".")?;
        self.manager.prepare(work);
        work.file.copy(&self.manager.manifests(&work.tree), "./")?;
        if self.package.runs_at_install() || self.package.has_local_dependencies() {
            work.file.copy_from(app, "/app", "./");
        }
        work.file.run(&self.manager.install(true));
        work.file.copy_from(app, "/app", "./");
        work.note(format!(
            "assets are built with the script `{script}` of {FILE}"
        ));
        work.file.run(&self.manager.script(script));
        Ok(())
    }

    /// Writes what installs dependencies, and then all other files. Manifests come first, so that
    /// the layer with the dependencies is used again while they stay the same.
    fn install(&self, work: &mut Work<'_>, dev: bool, rest: Rest) -> Result<()> {
        self.manager.prepare(work);
        if self.needs_all_files(work)? {
            copy_rest(work, rest);
            if let Some(command) = work.settings.install_command()? {
                work.file.run_command(&command);
            } else {
                work.note("all files are copied before dependencies are installed: workspaces, local packages or install scripts may need them");
                work.file.run(&self.manager.install(dev));
            }
            return Ok(());
        }
        if self.package.needs_install() {
            work.file.copy(&self.manager.manifests(&work.tree), "./")?;
            for folder in Manager::folders(&work.tree) {
                work.file.copy(&[folder], &format!("{folder}/"))?;
            }
            work.file.run(&self.manager.install(dev));
        }
        copy_rest(work, rest);
        Ok(())
    }

    /// Writes what builds the project: the user's command, else a script. Whether there is any.
    fn build(&self, work: &mut Work<'_>, scripts: &[&'static str]) -> Result<bool> {
        if let Some(command) = work.settings.build_command()? {
            work.note(format!(
                "built with `{}` from the settings",
                command.shown()
            ));
            work.file.run_command(&command);
            return Ok(true);
        }
        let Some(script) = self.build_script(scripts) else {
            return Ok(false);
        };
        work.note(format!("built with the script `{script}` of {FILE}"));
        work.file.run(&self.manager.script(script));
        Ok(true)
    }

    pub(crate) fn build_script(&self, scripts: &[&'static str]) -> Option<&'static str> {
        scripts
            .iter()
            .copied()
            .find(|name| self.package.script(name).is_some())
    }

    /// What starts it.
    fn start(&self, work: &mut Work<'_>) -> Result<Option<Command>> {
        if let Some(command) = work.said_start()? {
            return Ok(Some(command));
        }
        if let Some(script) = self.package.script("start") {
            work.note(format!("start script of {FILE}: {script}"));
            // Without npm in between, the app itself gets the signal to stop.
            let alone = ["prestart", "poststart"]
                .iter()
                .all(|name| self.package.script(name).is_none());
            let plain = Command::from_line(script).filter(|line| matches!(line, Command::Words(_)));
            let run = Command::words(&self.manager.script("start"));
            return Ok(Some(plain.filter(|_| alone).unwrap_or(run)));
        }
        Ok(main_file(&self.package, &work.tree).map(|file| Command::words(&["node", &file])))
    }

    /// Writes the last stage: Node.js, and the manager if the app is started with it.
    fn begin_run(&self, work: &mut Work<'_>, start: &Command) -> Result<()> {
        work.file.last_stage(&self.image);
        work.begin_run(&self.system().1)?;
        let program = self.manager.program();
        if let Some(setup) = self.manager.setup()
            && start.argv().iter().any(|word| word.contains(program))
        {
            work.file.run(&setup);
        }
        work.file.env("NODE_ENV", "production");
        work.file.env("PATH", "/app/node_modules/.bin:$PATH");
        Ok(())
    }

    /// Writes an app that runs with its `node_modules`.
    fn run_app(
        &self,
        work: &mut Work<'_>,
        scripts: &[&'static str],
        start: Command,
    ) -> Result<Ending> {
        let builds =
            self.build_script(scripts).is_some() || work.settings.build_command()?.is_some();
        let own_install = work.settings.install_command()?.is_some();
        let installs = self.package.needs_install() || own_install;
        if !builds && !installs {
            self.begin_run(work, &start)?;
            work.file.copy_all_owned();
            return Ok(Ending::Runs(start));
        }
        let script = self.package.script("start").unwrap_or_default();
        let keeps_dev = self.package.uses_dev_program(script);
        if keeps_dev {
            work.note("dependencies for development are kept: the start script uses one");
        }
        let dev = builds || keeps_dev || self.package.runs_at_install();
        let only_installs = !builds && !self.needs_all_files(work)?;
        let rest = if only_installs {
            Rest::Nothing
        } else {
            Rest::Sources
        };
        self.begin_build(work)?;
        self.install(work, dev, rest)?;
        self.build(work, scripts)?;
        if dev
            && !keeps_dev
            && installs
            && !own_install
            && let Some(prune) = self.manager.prune()
        {
            work.file.run(prune);
        }
        self.take_app(work, &start, only_installs)?;
        Ok(Ending::Runs(start))
    }

    /// Writes the end of the stage that builds, and the last one with what comes out of it.
    fn take_app(&self, work: &mut Work<'_>, start: &Command, only_installs: bool) -> Result<()> {
        if only_installs {
            work.file.script("mkdir -p node_modules");
        } else {
            work.set_apart(Apart::NodeModules);
        }
        self.begin_run(work, start)?;
        work.copy_apart(Apart::NodeModules);
        if only_installs {
            work.file.copy_all_owned();
        } else {
            work.file.copy_from_owned("build", "/out", "./");
        }
        Ok(())
    }
}

fn copy_rest(work: &mut Work<'_>, rest: Rest) {
    if rest == Rest::Sources {
        work.file.copy_all();
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
pub(crate) fn app(work: &mut Work<'_>) -> Result<Ending> {
    let project = Project::open(work, "node", &["version", "nodeVersion"])?;
    let start = project.start(work)?;
    let start = start.ok_or_else(|| {
        refused(FILE, "does not say what to start; add \"scripts\": {\"start\": \"node server.js\"} with your file")
    })?;
    project.run_app(work, &["build"], start)
}
