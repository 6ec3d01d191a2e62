//! What is known while a plan is made, and the steps that all platforms share.

use crate::command::Command;
use crate::dockerfile::Writer;
use crate::error::{Result, one_line};
use crate::frameworks::Found;
use crate::images::{BaseImages, Image};
use crate::procfile;
use crate::settings::Settings;
use crate::sources::Tree;
use crate::version::Version;
use estrade_model::platform::Platform;

/// Sorts the app's own files from its dependencies.
pub(crate) const SPLIT_NODE_MODULES: &str =
    "mkdir -p node_modules /out && tar --exclude=./node_modules -cf - . | tar -C /out -xf -";
pub(crate) const SPLIT_VENDOR: &str =
    "mkdir -p vendor /out && tar --exclude=./vendor -cf - . | tar -C /out -xf -";

/// State of the build plan while a buildpack makes it.
pub(crate) struct BuildContext<'a> {
    pub(crate) platform: Platform,
    pub(crate) tree: Tree<'a>,
    pub(crate) settings: Settings,
    pub(crate) file: Writer,
    pub(crate) notes: Vec<String>,
    /// Rules about files that this platform leaves out.
    pub(crate) ignored: Vec<&'static str>,
    /// What was found when the platform is left to the sources.
    pub(crate) found: Option<Found>,
    images: &'a BaseImages,
}

/// What the Dockerfile of a platform produces.
pub(crate) enum OutputKind {
    /// Something that is started like this.
    Runs(Command),
    /// Files in the folder [`crate::build_plan::SITE`] of the stage `build`.
    Static {
        spa: bool,
        /// Where the build may have left them.
        looked_in: Vec<String>,
    },
}

/// A folder of dependencies that is copied into the last stage by itself: while they stay the same,
/// releases share that layer.
#[derive(Clone, Copy)]
pub(crate) enum SeparateLayer {
    NodeModules,
    Vendor,
}

/// A version that the sources or settings ask for, and where.
pub(crate) struct RequestedVersion {
    pub(crate) version: Version,
    pub(crate) place: String,
}

impl<'a> BuildContext<'a> {
    pub(crate) fn new(
        platform: Platform,
        tree: Tree<'a>,
        settings: Settings,
        images: &'a BaseImages,
    ) -> Self {
        Self {
            platform,
            tree,
            settings,
            file: Writer::new(platform.as_str()),
            notes: Vec::new(),
            ignored: Vec::new(),
            found: None,
            images,
        }
    }

    /// Adds a line to the build log.
    pub(crate) fn note(&mut self, line: impl AsRef<str>) {
        self.notes.push(one_line(line.as_ref()));
    }

    /// Chooses a base image for a language, and says why.
    pub(crate) fn base(
        &mut self,
        name: &'static str,
        language: &'static str,
        requested: Option<&RequestedVersion>,
    ) -> Image {
        let usual = BaseImages::usual(name);
        let version = requested.map_or(usual, |requested| requested.version);
        let image = self.images.get(name, version);
        let request =
            requested.map(|requested| format!("{language} {version} from {}", requested.place));
        let line = match (request, image.versioned()) {
            (Some(request), true) => request,
            (Some(request), false) => {
                format!("{language} as in the configured base image {image}, not {request}")
            }
            (None, true) => format!("{language} {version}, because nothing asks for a version"),
            (None, false) => format!("{language} as in the configured base image {image}"),
        };
        self.note(line);
        image
    }

    /// An image that is part of the build without being about a version.
    pub(crate) fn image(&self, name: &'static str) -> Image {
        self.images.get(name, BaseImages::usual(name))
    }

    /// The same, in a version that follows another image.
    pub(crate) fn image_of(&self, name: &'static str, version: Option<Version>) -> Image {
        self.images
            .get(name, version.unwrap_or(BaseImages::usual(name)))
    }

    /// What the user says that shall be started: in settings, else in a Procfile.
    pub(crate) fn explicit_start(&mut self) -> Result<Option<Command>> {
        if let Some(command) = self.settings.start_command()? {
            self.note("start command from platformConfig");
            return Ok(Some(command));
        }
        let command = procfile::web(&self.tree)?;
        if command.is_some() {
            self.note("start command from Procfile");
        }
        Ok(command)
    }

    /// The beginning of a stage in which the app runs: its user, what it needs, its folder.
    pub(crate) fn begin_run(&mut self, packages: &[&str]) -> Result<()> {
        self.file.make_user();
        self.install_packages(packages)?;
        if let Some(zone) = self.settings.time_zone()? {
            self.file.env_word("TZ", &zone);
        }
        self.file.workdir(".")
    }

    /// Installs what the platform needs and what the settings ask for.
    fn install_packages(&mut self, packages: &[&str]) -> Result<()> {
        let requested = self.settings.packages()?;
        let packages: Vec<_> = packages
            .iter()
            .copied()
            .chain(requested.iter().map(String::as_str))
            .collect();
        self.file.packages(&packages);
        Ok(())
    }

    /// The beginning of a stage in which something is built.
    pub(crate) fn begin_build(&mut self, image: &Image, packages: &[&str]) -> Result<()> {
        self.file.stage(image, "build");
        self.install_packages(packages)?;
        self.file.args(self.settings.build_args());
        self.file.workdir(".")
    }

    /// In the stage that builds: sorts the app's own files from its dependencies.
    pub(crate) fn split_layer(&mut self, layer: SeparateLayer) {
        self.file.script(match layer {
            SeparateLayer::NodeModules => SPLIT_NODE_MODULES,
            SeparateLayer::Vendor => SPLIT_VENDOR,
        });
    }

    /// In the last stage: takes the dependencies.
    pub(crate) fn copy_layer(&mut self, layer: SeparateLayer) {
        match layer {
            SeparateLayer::NodeModules => {
                self.file
                    .copy_from_owned("build", "/app/node_modules", "./node_modules");
            }
            SeparateLayer::Vendor => self
                .file
                .copy_from_owned("build", "/app/vendor", "./vendor"),
        }
    }
}
