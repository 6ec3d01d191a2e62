//! Images that releases run.

use estrade_model::image_ref::ImageRef;
use estrade_model::{ProjectId, ReleaseId, Timestamp};

/// The image of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnImage {
    pub project: ProjectId,
    /// The release it was made for.
    pub release: ReleaseId,
}

/// An image and its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…`
    pub id: ImageRef,
    /// The TCP ports that it exposes, in order.
    pub ports: Vec<u16>,
    /// Where it wants volumes of its own.
    pub volumes: Vec<String>,
    /// Its `ONBUILD` triggers: instructions that run in builds on it.
    pub triggers: Vec<String>,
    /// The user that its processes run as; none: root.
    pub user: Option<String>,
    /// What registries call its content, with the name under which each has it: `node@sha256:…`.
    pub digests: Vec<String>,
    /// Bytes on disk, with layers that it shares with others.
    pub size: u64,
    /// When it was made; none: it is not recorded.
    pub created: Option<Timestamp>,
}

impl Image {
    /// Whether its processes run as root by default.
    pub fn runs_as_root(&self) -> bool {
        let user = self.user.as_deref().unwrap_or_default();
        matches!(user.split(':').next(), None | Some("" | "0" | "root"))
    }
}

/// An image of ours in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnImageEntry {
    pub image: OwnImage,
    /// Bytes on disk, with layers that it shares with others.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
}
