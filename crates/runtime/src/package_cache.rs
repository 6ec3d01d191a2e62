//! What the package manager of a project keeps from build to build.

use estrade_model::image_ref::ImageRef;
use estrade_model::{ProjectId, ReleaseId};

/// Where package managers keep what they download while a build runs.
pub(crate) const FOLDER: &str = "/var/cache/estrade";

/// Which cache a build can use. All of it must be the same but for `installs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey {
    pub project: ProjectId,
    /// The label of the builds of its owner and project; see
    /// [`ImageBuilder::cache_label`](crate::ImageBuilder::cache_label).
    pub label: String,
    /// The id of the base image that the cache stands on.
    pub base: ImageRef,
    /// A hash of the secrets that the build is given: what was downloaded with one does not outlive it.
    pub secrets: String,
    /// A hash of what decides what is installed.
    pub installs: String,
}

/// A build that has left a cache behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltCache {
    pub key: CacheKey,
    pub release: ReleaseId,
    /// The number of the stage whose last layer has the cache, from 0.
    pub stage: usize,
    /// The largest cache that is kept, in bytes.
    pub max_bytes: u64,
}

/// What became of the cache of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedCache {
    /// The next build can use it.
    Kept {
        /// Its size.
        bytes: u64,
    },
    /// It is larger than it may be: the next build begins without one.
    TooLarge,
    /// The build has left none behind, or its layers are gone.
    Missing,
}
