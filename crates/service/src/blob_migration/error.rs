//! Why a migration ended before its end.

use estrade_blobs::{BlobError, MigrationError, ObjectId};
use estrade_store::StoreError;
use tokio::task::JoinError;

/// With more than so many damaged contents it is not the right place.
pub(super) const MAX_DAMAGED: usize = 100_000;

/// What cut a migration off. The next run goes on where it was.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("cannot copy {object}")]
    Copy {
        object: ObjectId,
        #[source]
        error: BlobError,
    },
    #[error(transparent)]
    Storage(#[from] MigrationError),
    #[error("the database failed")]
    Database(#[from] StoreError),
    #[error("a copy ended early")]
    Task(#[from] JoinError),
    #[error(
        "more than {max} contents are missing or damaged in {place}: is it the right place?",
        max = MAX_DAMAGED
    )]
    WrongPlace { place: String },
    #[error("it was interrupted")]
    Stopped,
    #[error("another process collects garbage, or moves the files as well")]
    Busy,
    #[error("the last step is not complete, and servers refuse new files until it is")]
    Unfinished(#[source] Box<MigrateError>),
    #[error("another run has cancelled the last step meanwhile")]
    SwitchCancelled,
}
