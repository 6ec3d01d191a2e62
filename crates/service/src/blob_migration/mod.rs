//! Moving the files of an installation to another storage, beside the servers that use it.
//!
//! Passes over the rows of contents copy what is not there yet, until one finds nothing new; servers go on as ever. Then
//! a switch keeps them from committing new contents, one last pass copies what came in between and so proves that
//! everything is there, and from then on servers start with the new place only. [`estrade_blobs::Migration`] has the
//! order of the steps and why no crash between them loses anything, [`estrade_store::blob_storage`] the fence.

mod error;
mod passes;
mod report;
mod switch;
mod work_directory;

use crate::installation_paths::BlobsAt;
use crate::open_error::OpenError;
use crate::open_storage;
use estrade_blobs::{Migration, MigrationError, StorageAddress};
use estrade_model::error::error_chain;
use estrade_store::{Db, blob_storage};
use passes::Passes;
use std::path::Path;
use std::sync::Arc;
use switch::{alone, cancel, switch};
use tokio_util::sync::CancellationToken;

pub use error::MigrateError;
pub use report::{DamagedContent, MigrationEvent, MigrationOptions, MigrationReport};
pub use work_directory::WorkDirectory;

/// While servers deploy all the time, every pass finds something: the switch comes after so many.
const MAX_PASSES: u32 = 8;

/// Opens both places.
pub async fn open(
    from: &BlobsAt,
    to: &BlobsAt,
    work: &WorkDirectory,
    installation: &str,
) -> Result<Arc<Migration>, OpenError> {
    let (from_name, to_name) = (open_storage::name(from), open_storage::name(to));
    let source = address(from, &work.path.join("source"));
    let target = address(to, &work.path.join("target"));
    let installation = installation.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        Migration::open((source, &from_name), (target, &to_name), &installation)
    });
    let opened = opened
        .await
        .map_err(|error| OpenError::Failed(error.into()))?;
    opened.map(Arc::new).map_err(|error| refusal(&error))
}

/// Nothing is cached: what was put, or fetched, goes at once.
fn address(at: &BlobsAt, work: &Path) -> StorageAddress {
    match at {
        BlobsAt::Directory(directory) => StorageAddress::Directory(directory.clone()),
        BlobsAt::Bucket(settings) => {
            let mut settings = settings.clone();
            work.clone_into(&mut settings.cache_dir);
            settings.cache_bytes = 0;
            StorageAddress::Bucket(settings)
        }
    }
}

/// What to do about it.
fn refusal(error: &MigrationError) -> OpenError {
    let advice = match error {
        MigrationError::SamePlace => "name another place with --to",
        MigrationError::NoSource(_) => {
            "blobs.url must name the place that the servers use now; nothing was copied"
        }
        MigrationError::IncompleteSource { .. } => "complete that first; nothing was copied",
        MigrationError::MovedSource { .. } => "set blobs.url to where they are; nothing was copied",
        MigrationError::AlreadyMoved(_) => "restart every server with that in blobs.url",
        MigrationError::TargetInUse(_) => {
            "name another place with --to; if it is a copy that no server uses, remove `installation` in it"
        }
        MigrationError::ForeignStorage { .. } => {
            "name another bucket, prefix or directory; nothing was copied"
        }
        MigrationError::Failed { .. } => {
            "check that it exists and answers, and its endpoint, region and keys"
        }
    };
    OpenError::Refused(format!("{}; {advice}", error_chain(error)))
}

/// Copies everything, and makes the switch if that is asked for and nothing is damaged.
pub async fn run(
    db: &Db,
    migration: &Arc<Migration>,
    options: MigrationOptions,
    report: &(dyn Fn(MigrationEvent) + Send + Sync),
    stop: &CancellationToken,
) -> Result<MigrationReport, MigrateError> {
    if !migration.is_source_closed() {
        // What is left of a move to the source that was killed after it had come to its end.
        blob_storage::complete_switch(db).await?;
    } else if !options.finish {
        alone(db, cancel(db, migration)).await?;
        report(MigrationEvent::SwitchCancelled);
    }
    let mut passes = Passes::new(db, migration, options, report);
    while passes.number() < MAX_PASSES && passes.run(stop).await? {}
    if !options.finish || passes.refuses_damage() {
        return passes.end(false).await;
    }
    report(MigrationEvent::SwitchBegan);
    let is_finished = alone(db, switch(db, migration, &mut passes, stop)).await?;
    passes.end(is_finished).await
}
