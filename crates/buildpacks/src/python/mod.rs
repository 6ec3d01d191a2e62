//! Platforms that run on Python.

mod app;
mod code;
mod django;
mod flask;
mod manifest;
mod version;

pub(crate) use app::app;
pub(crate) use django::django;
pub(crate) use flask::flask;

use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::images::{BaseImages, Image};
use crate::sources::folder_of;
use crate::version::Version;
use manifest::{Manifest, Tool};
use std::collections::BTreeSet;

// A file of the environment that is a hard link to one of the cache would change with it.
const UV_SYNC: &str = "UV_PROJECT_ENVIRONMENT=/opt/venv UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never /opt/tools/bin/uv sync --locked --no-dev --no-install-project";
const POETRY_INSTALL: &str = "/opt/tools/bin/poetry install --only main --no-root --no-interaction";

/// A tool that is installed with pip, in the version that builds are made with.
struct InstallTool {
    name: &'static str,
    pinned: &'static str,
    /// The oldest Python that this version runs on; an older one gets the newest that does.
    since: Version,
}

const UV: InstallTool = InstallTool {
    name: "uv",
    pinned: "uv==0.13.8",
    since: Version::minor(3, 8),
};
const POETRY: InstallTool = InstallTool {
    name: "poetry",
    pinned: "poetry==2.5.1",
    since: Version::minor(3, 10),
};
const PIPENV: InstallTool = InstallTool {
    name: "pipenv",
    pinned: "pipenv==2026.10.3",
    since: Version::minor(3, 10),
};

/// What a build leaves behind on a developer's machine.
const IGNORED: [&str; 7] = [
    "**/__pycache__",
    "**/*.pyc",
    "**/.venv",
    "venv",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
];

/// Packages that need more than Python: what builds them, and what they need when they run.
const SYSTEM: [(&str, &[&str], &[&str]); 4] = [
    ("psycopg2", &["gcc", "libc6-dev", "libpq-dev"], &["libpq5"]),
    ("psycopg", &[], &["libpq5"]),
    (
        "mysqlclient",
        &[
            "gcc",
            "libc6-dev",
            "pkg-config",
            "default-libmysqlclient-dev",
        ],
        &["libmariadb3"],
    ),
    ("uwsgi", &["gcc", "libc6-dev"], &[]),
];

/// A project of Python.
struct Project {
    image: Image,
    version: Version,
    manifest: Manifest,
}

/// What is special about an app.
struct AppLayout {
    /// The folder in which it is built and started.
    folder: String,
    /// Packages of Debian that it needs.
    packages: Vec<&'static str>,
    /// Packages of Debian that it is built with.
    tools: Vec<&'static str>,
    /// What is done once all files are there.
    steps: Vec<&'static str>,
    /// The module with Django's settings, where it was chosen.
    settings: Option<String>,
}

impl Default for AppLayout {
    fn default() -> Self {
        Self {
            folder: ".".to_owned(),
            packages: Vec::new(),
            tools: Vec::new(),
            steps: Vec::new(),
            settings: None,
        }
    }
}

/// How an app is started, and what that takes beside its own dependencies.
struct Start {
    command: Command,
    needs: Option<&'static str>,
}

impl Start {
    fn explicit(command: Command) -> Self {
        let needs = command
            .argv()
            .iter()
            .any(|word| word.contains("gunicorn"))
            .then_some("gunicorn");
        Self { command, needs }
    }

    /// With Gunicorn, which reads PORT itself.
    fn gunicorn(
        context: &BuildContext<'_>,
        folder: &str,
        module: &str,
        worker: Option<&str>,
    ) -> Self {
        let mut words = vec!["python3", "-m", "gunicorn"];
        let config = match folder {
            "." => "gunicorn.conf.py".to_owned(),
            folder => format!("{folder}/gunicorn.conf.py"),
        };
        // Who has a configuration has decided.
        if !context.tree.has(&config) {
            match worker {
                Some(worker) => words.extend(["--worker-class", worker]),
                // Workers with threads keep connections open, those without do not.
                None => words.extend(["--threads", "4"]),
            }
        }
        words.push(module);
        Self {
            command: Command::words(&words),
            needs: Some("gunicorn"),
        }
    }
}

impl Project {
    fn open(context: &mut BuildContext<'_>, image: &'static str) -> Result<Self> {
        context.ignored.extend(IGNORED);
        let requested = version::version(context)?;
        let usual = BaseImages::usual(image);
        let version = requested.as_ref().map_or(usual, |it| it.version);
        let image = context.base(image, "Python", requested.as_ref());
        let manifest = Manifest::find(context)?;
        Ok(Self {
            image,
            version,
            manifest,
        })
    }

    /// Refuses sources that cannot have what they need.
    fn require_manifest(&self, package: &str) -> Result<()> {
        if self.manifest.tool == Tool::Nothing && !self.image.configured() {
            let advice = format!(
                "is missing; add it with a line `{package}`, or add pyproject.toml or Pipfile"
            );
            return Err(refused("requirements.txt", advice));
        }
        Ok(())
    }

    /// System packages: to build with, and to run with.
    fn system(&self, build: bool) -> Vec<&'static str> {
        // What is in an image of somebody else is theirs to say.
        if self.image.configured() {
            return Vec::new();
        }
        let needed = SYSTEM.iter().filter(|(name, ..)| self.manifest.has(name));
        let mut packages: Vec<_> = needed
            .flat_map(|(_, to_build, to_run)| if build { *to_build } else { *to_run })
            .copied()
            .collect();
        if build && self.manifest.git {
            packages.push("git");
        }
        packages.sort_unstable();
        packages.dedup();
        packages
    }

    /// Writes the app. What is installed and built happens in a stage of its own, so that the last
    /// one has no tools, no caches and no arguments in its history.
    fn write(
        &self,
        context: &mut BuildContext<'_>,
        start: Start,
        layout: &AppLayout,
    ) -> Result<OutputKind> {
        let installs =
            self.manifest.tool != Tool::Nothing || context.settings.install_command()?.is_some();
        let builds = !layout.steps.is_empty() || context.settings.build_command()?.is_some();
        if installs || builds {
            self.write_build(context, &start, layout, installs)?;
        }
        context.file.last_stage(&self.image);
        let mut packages = self.system(false);
        packages.extend(&layout.packages);
        context.begin_run(&packages)?;
        context.file.env("PYTHONUNBUFFERED", "1");
        if installs {
            context.file.env("PATH", "/opt/venv/bin:$PATH");
            context.file.copy_from("build", "/opt/venv", "/opt/venv");
        }
        if context.tree.paths().any(is_below_src) {
            context.file.env("PYTHONPATH", "/app/src");
        }
        if let Some(settings) = &layout.settings {
            context.file.env_word("DJANGO_SETTINGS_MODULE", settings);
        }
        if installs || builds {
            context.file.copy_from_owned("build", "/app", "./");
        } else {
            context.file.copy_all_owned();
        }
        if layout.folder != "." {
            context.file.workdir(&layout.folder)?;
        }
        Ok(OutputKind::Runs(start.command))
    }

    fn write_build(
        &self,
        context: &mut BuildContext<'_>,
        start: &Start,
        layout: &AppLayout,
        installs: bool,
    ) -> Result<()> {
        let mut packages = self.system(true);
        packages.extend(&layout.packages);
        packages.extend(&layout.tools);
        context.begin_build(&self.image, &packages)?;
        if installs {
            // Packages of the base image count, so that one can have the large ones ready.
            context
                .file
                .script("python3 -m venv --system-site-packages /opt/venv");
            context.file.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
            context.file.env("VIRTUAL_ENV", "/opt/venv");
            context.file.env("PATH", "/opt/venv/bin:$PATH");
            context.file.cache_env(self.cache_env());
            self.install(context)?;
            if let Some(needs) = start.needs.filter(|name| !self.manifest.has(name)) {
                context.note(format!(
                    "{needs} is added, because it starts the app; list it to choose its version"
                ));
                self.install_more(context, needs);
            }
            context.file.note_installed();
        }
        if !self.installs_with_all_files(context)? {
            context.file.copy_all();
        }
        if layout.folder != "." {
            context.file.workdir(&layout.folder)?;
        }
        if let Some(settings) = &layout.settings {
            context.file.env_word("DJANGO_SETTINGS_MODULE", settings);
        }
        if let Some(command) = context.settings.build_command()? {
            context.file.run_command(&command);
        }
        for step in &layout.steps {
            context.file.script(step);
        }
        Ok(())
    }

    /// Whether all files are there before anything is installed.
    fn installs_with_all_files(&self, context: &BuildContext<'_>) -> Result<bool> {
        Ok(self.manifest.whole || context.settings.install_command()?.is_some())
    }

    /// Writes what installs the dependencies.
    fn install(&self, context: &mut BuildContext<'_>) -> Result<()> {
        if let Some(command) = context.settings.install_command()? {
            context.file.copy_all();
            context.file.run_command(&command);
            return Ok(());
        }
        match &self.manifest.tool {
            Tool::Uv => self.install_tool(context, &UV),
            Tool::Poetry => self.install_tool(context, &POETRY),
            Tool::Pipenv { .. } => self.install_tool(context, &PIPENV),
            Tool::List(_) | Tool::Listed(_) | Tool::Itself | Tool::Nothing => {}
        }
        if self.manifest.whole {
            context.file.copy_all();
        } else if !matches!(self.manifest.tool, Tool::Listed(_)) {
            self.copy_manifests(context)?;
        }
        let pip = ["pip", "install"];
        match &self.manifest.tool {
            Tool::Uv => context.file.script(UV_SYNC),
            Tool::Poetry => context.file.script(POETRY_INSTALL),
            Tool::Pipenv { locked: true } => {
                context
                    .file
                    .script("/opt/tools/bin/pipenv install --deploy");
            }
            Tool::Pipenv { locked: false } => context
                .file
                .script("/opt/tools/bin/pipenv install --skip-lock"),
            Tool::List(file) => context
                .file
                .run(&[&pip[..], &["-r", file.as_str()]].concat()),
            Tool::Listed(lines) => {
                let lines = lines.iter().map(String::as_str);
                context
                    .file
                    .run(&pip.into_iter().chain(lines).collect::<Vec<_>>());
            }
            Tool::Itself => context.file.run(&[&pip[..], &["."]].concat()),
            Tool::Nothing => {}
        }
        Ok(())
    }

    /// Where pip and what it installs keep what they download.
    fn cache_env(&self) -> &'static [(&'static str, &'static str)] {
        const PIP: (&str, &str) = ("PIP_CACHE_DIR", "pip");
        match self.manifest.tool {
            Tool::Uv => &[PIP, ("UV_CACHE_DIR", "uv")],
            Tool::Poetry => &[PIP, ("POETRY_CACHE_DIR", "poetry")],
            Tool::Pipenv { .. } => &[PIP, ("PIPENV_CACHE_DIR", "pipenv")],
            Tool::List(_) | Tool::Listed(_) | Tool::Itself | Tool::Nothing => &[PIP],
        }
    }

    fn install_more(&self, context: &mut BuildContext<'_>, package: &'static str) {
        if self.manifest.tool == Tool::Uv {
            context
                .file
                .run(&["/opt/tools/bin/uv", "pip", "install", package]);
        } else {
            context.file.run(&["pip", "install", package]);
        }
    }

    /// Installs a tool apart from the app.
    fn install_tool(&self, context: &mut BuildContext<'_>, tool: &InstallTool) {
        let is_new = self.version.minor.is_none() || self.version >= tool.since;
        // Which Python an image of somebody else has is not known.
        let is_pinned = is_new && self.image.versioned();
        let package = if is_pinned { tool.pinned } else { tool.name };
        context.file.script("python3 -m venv /opt/tools");
        context
            .file
            .run(&["/opt/tools/bin/pip", "install", package]);
    }

    /// Copies the files that decide what is installed, to where they are.
    fn copy_manifests(&self, context: &mut BuildContext<'_>) -> Result<()> {
        let folders: BTreeSet<_> = self
            .manifest
            .files
            .iter()
            .map(|file| folder_of(file))
            .collect();
        for folder in folders {
            let inside = self
                .manifest
                .files
                .iter()
                .filter(|file| folder_of(file) == folder);
            let inside: Vec<_> = inside.map(String::as_str).collect();
            let to = if folder == "." {
                "./".to_owned()
            } else {
                format!("{folder}/")
            };
            context.file.copy(&inside, &to)?;
        }
        Ok(())
    }
}

/// Whether a file makes `src` a folder of packages.
fn is_below_src(path: &str) -> bool {
    let name = path
        .strip_prefix("src/")
        .and_then(|rest| rest.strip_suffix("/__init__.py"));
    name.is_some_and(|name| !name.contains('/'))
}
