//! Images that releases run.

use estrade_model::image_ref::ImageRef;
use estrade_model::{ProjectId, ReleaseId, Timestamp};

/// The image of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnImage {
    /// The project.
    pub project: ProjectId,
    /// The release it was made for.
    pub release: ReleaseId,
}

/// What an image says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…`
    pub id: ImageRef,
    /// The TCP ports that it says it listens on, in order.
    pub ports: Vec<u16>,
    /// Where it wants volumes of its own.
    pub volumes: Vec<String>,
    /// The instructions that are carried out when somebody builds on it.
    pub triggers: Vec<String>,
    /// The user that its processes run as; none: root.
    pub user: Option<String>,
    /// Bytes on disk, with layers that it shares with others.
    pub size: u64,
    /// When it was made; none: it does not say.
    pub created: Option<Timestamp>,
}

impl Image {
    /// Whether its processes run as root unless told otherwise.
    pub fn runs_as_root(&self) -> bool {
        let user = self.user.as_deref().unwrap_or_default();
        matches!(user.split(':').next(), None | Some("" | "0" | "root"))
    }
}

/// An image of ours in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnImageEntry {
    /// Which one.
    pub image: OwnImage,
    /// Bytes on disk, with layers that it shares with others.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
}
