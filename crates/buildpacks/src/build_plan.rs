//! The plan of a build: what the engine gets, and what comes of it.

use crate::bases::Bases;
use crate::ignore::IgnoreRules;
use crate::settings::BuildArg;
use crate::sources::IGNORE_FILE;

/// The folder of an image in which static files are.
pub(crate) const SITE: &str = "/site";
/// The exit code of the step that finds no site.
pub const NO_SITE: i64 = 66;
/// What a Dockerfile of ours is called beside the user's files.
pub(crate) const OWN_NAME: &str = ".estrade.Dockerfile";

/// How sources become an image.
#[derive(Debug)]
pub struct BuildPlan {
    /// What the engine builds.
    pub dockerfile: Dockerfile,
    /// Which files of the sources it does not get to see.
    pub ignore: IgnoreRules,
    /// Arguments for the engine; their values may be secret.
    pub build_args: Vec<BuildArg>,
    /// Whether layers of earlier builds may be used.
    pub cache: bool,
    /// What the package manager may keep for the next build; none where it cannot be told what it depends on.
    pub package_cache: Option<PackageCache>,
    /// What the image is for.
    pub outcome: Outcome,
    /// Lines for the build log: what was found, and why it was decided so.
    pub notes: Vec<String>,
}

/// The cache of the package manager of a Dockerfile of ours, in the folder [`CACHE_FOLDER`](crate::CACHE_FOLDER) of the
/// stage `build`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageCache {
    /// A hash of all that decides what is installed, but the image that the stage begins with.
    pub key: String,
    /// The number of the instruction that installs, from 1.
    pub installs: usize,
}

/// Where the Dockerfile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dockerfile {
    /// Among the user's files.
    Theirs {
        /// Its path.
        path: String,
        /// What it builds on.
        bases: Bases,
    },
    /// Made here.
    Ours {
        /// Its text.
        text: String,
        /// What it builds on.
        bases: Bases,
    },
}

/// What an image is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It runs.
    Runs {
        /// The words to start it with instead of its own, for `Cmd` of a container.
        command: Option<Vec<String>>,
        /// Where the app listens. It is told so by the environment variable `PORT`.
        port: u16,
    },
    /// It holds files that are taken out and served.
    Static {
        /// The absolute path of their folder.
        folder: &'static str,
        /// Whether paths without a file show `index.html`, unless settings say otherwise.
        spa: bool,
        /// The folders of the sources that the build may have written them to. The step that looks for them ends with
        /// [`NO_SITE`] when none has an `index.html`.
        looked_in: Vec<String>,
    },
}

impl BuildPlan {
    /// The path of the Dockerfile in the build context.
    pub fn dockerfile_path(&self) -> &str {
        match &self.dockerfile {
            Dockerfile::Theirs { path, .. } => path,
            Dockerfile::Ours { .. } => OWN_NAME,
        }
    }

    /// The images that it builds on.
    pub fn bases(&self) -> &Bases {
        match &self.dockerfile {
            Dockerfile::Theirs { bases, .. } | Dockerfile::Ours { bases, .. } => bases,
        }
    }

    /// Files to put into the build context beside (or, by name, instead of) the user's: the Dockerfile as the engine
    /// gets it, and what keeps ours out of the image.
    pub fn added_files(&self, dockerfile: String) -> Vec<(String, String)> {
        let file = |path: &str, text: String| (path.to_owned(), text);
        match &self.dockerfile {
            Dockerfile::Theirs { path, .. } => vec![file(path, dockerfile)],
            Dockerfile::Ours { .. } => vec![
                file(OWN_NAME, dockerfile),
                file(IGNORE_FILE, format!("{OWN_NAME}\n{IGNORE_FILE}\n")),
            ],
        }
    }
}
