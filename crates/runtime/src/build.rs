//! What to build, and why there is no image.

use crate::error::Error;
use crate::image::OwnImage;
use estrade_model::secret::Secret;
use estrade_model::{OwnerId, Timestamp};
use std::io;
use std::time::Duration;

/// What to build and how.
#[derive(Debug, Clone)]
pub struct BuildSpec {
    /// The image to make.
    pub image: OwnImage,
    /// Whose it is; steps run in the owner's network, which must be there.
    pub owner: OwnerId,
    /// The path of the Dockerfile in the directory.
    pub dockerfile: String,
    /// Build arguments.
    pub args: Vec<(String, Secret)>,
    /// What must not appear in the log: secrets among the arguments. Those shorter than four
    /// characters do.
    pub secrets: Vec<Secret>,
    /// Whether layers of earlier builds may be used.
    pub cache: bool,
    /// Memory of a step in bytes, without any swap.
    pub memory: u64,
    /// CPU time of a step, in billionths of a core.
    pub nano_cpus: u64,
    /// How long all of it may take.
    pub limit: Duration,
    pub now: Timestamp,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The directory or a step of the Dockerfile is at fault.
    #[error("{}{message}", step.as_ref().map(|step| format!("{step}: ")).unwrap_or_default())]
    Failed {
        /// The step that failed, such as `Step 3/5 : RUN make`; none: it failed before the first.
        step: Option<String>,
        /// The exit code of its command, if it was one.
        code: Option<i64>,
        message: String,
    },
    /// It took too long and was stopped.
    #[error("the build took longer than {} seconds and was stopped", .0.as_secs())]
    TimedOut(Duration),
    /// The directory could not be read to its end.
    #[error("the files to build from could not be read")]
    Context(#[source] io::Error),
    /// The engine is at fault.
    #[error(transparent)]
    Engine(#[from] Error),
}
