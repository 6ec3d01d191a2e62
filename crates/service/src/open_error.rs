//! Why an installation could not be opened.

use crate::Error;
use estrade_store::StoreError;
use std::io;
use std::path::Path;

/// Why an installation could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something that the administrator has to put right first.
    #[error("{0}")]
    Refused(String),
    /// The database's file is damaged.
    #[error("the database is damaged")]
    Damaged(#[source] StoreError),
    /// Something failed that should not.
    #[error("cannot open the installation")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unusable(reason) => Self::Refused(reason),
            damage if damage.is_damage() => Self::Damaged(damage),
            other => Self::Failed(other.into()),
        }
    }
}
impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The refusal that names a file which could not be used.
pub(crate) fn cannot(verb: &str, path: &Path, error: &io::Error) -> OpenError {
    OpenError::Refused(format!("cannot {verb} {}: {error}", path.display()))
}
