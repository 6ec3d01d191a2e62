//! Why a content cannot be sent.

use estrade_blobs::BlobError;
use std::io;
use std::sync::Arc;

/// Why there is no content.
#[derive(Debug, Clone)]
pub enum ContentError {
    /// The object that should hold it is not there.
    Missing,
    /// It is not on this node's disk, and too many requests wait for such, or this one has waited for too long.
    Busy,
    /// It could not be read.
    Failed(Arc<BlobError>),
}

impl From<BlobError> for ContentError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Missing => Self::Missing,
            other => Self::Failed(Arc::new(other)),
        }
    }
}

impl From<io::Error> for ContentError {
    fn from(error: io::Error) -> Self {
        BlobError::from(error).into()
    }
}
