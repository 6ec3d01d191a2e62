//! Moving the files of an installation to another storage, beside the servers that use it.
//!
//! Passes over the rows of contents copy what is not there yet, until one finds nothing new; servers go on as ever. Then
//! a switch keeps them from committing new contents, one last pass copies what came in between and so proves that
//! everything is there, and from then on servers start with the new place only. [`estrade_blobs::Migration`] has the
//! order of the steps and why no crash between them loses anything, [`estrade_store::blob_storage`] the fence.

mod passes;

use crate::installation_paths::BlobsAt;
use crate::open_error::{OpenError, cannot};
use crate::open_storage;
use estrade_blobs::{BlobError, Migration, MigrationError, ObjectId, StorageAddress};
use estrade_store::blob_storage::{self, StoredTotal};
use estrade_store::{Db, StoreError};
use passes::Passes;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

pub use passes::DamagedContent;

/// While servers deploy all the time, every pass finds something: the switch comes after so many.
const MAX_PASSES: u32 = 8;
/// Both in the data directory.
const WORK_DIRECTORY: &str = "blob-migration";
const LOCK_FILE: &str = "blob-migration.lock";

/// How a migration is to be done.
#[derive(Debug, Clone, Copy)]
pub struct MigrationOptions {
    /// Objects that are copied at a time.
    pub parallel: usize,
    /// Whether servers shall use the target from now on.
    pub finish: bool,
    /// Whether contents that are damaged in the source are left behind.
    pub accept_damaged: bool,
}

/// What is going on.
#[derive(Debug, Clone, Copy)]
pub enum MigrationEvent {
    /// A switch that an earlier run left was taken back.
    SwitchCancelled,
    PassBegan {
        number: u32,
        total: StoredTotal,
    },
    /// So many bytes of contents are there, or were found to be damaged.
    Checked {
        bytes: u64,
    },
    /// From now on servers refuse new contents.
    SwitchBegan,
}

/// What a migration did.
#[derive(Debug, Clone, Default)]
pub struct MigrationReport {
    pub passes: u32,
    /// Objects and bytes that were sent.
    pub copied_objects: u64,
    pub copied_bytes: u64,
    /// What is stored in all, at the beginning of the last pass.
    pub total: StoredTotal,
    pub damaged: Vec<DamagedContent>,
    /// Whether servers use the target from now on.
    pub is_finished: bool,
}

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
        max = passes::MAX_DAMAGED
    )]
    WrongPlace { place: String },
    #[error("it was interrupted")]
    Stopped,
    #[error("another run has cancelled the last step meanwhile")]
    SwitchCancelled,
}

/// A directory for what is on its way, in the data directory. One migration uses it at a time.
#[must_use]
pub struct WorkDirectory {
    path: PathBuf,
    _lock: File,
}

impl WorkDirectory {
    /// Takes it, unless another migration has it.
    pub fn lock(data_dir: &Path) -> Result<Self, OpenError> {
        let path = data_dir.join(WORK_DIRECTORY);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| cannot("create", &path, &error))?;
        // Beside it, since it goes in the end.
        let lock = data_dir.join(LOCK_FILE);
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock);
        let file = opened.map_err(|error| cannot("open", &lock, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Refused(
                "the files of this installation are being moved by another process".into(),
            )),
            Err(TryLockError::Error(error)) => Err(cannot("lock", &lock, &error)),
        }
    }

    /// Removes what is left in it.
    pub fn remove(self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "cannot remove the directory of a migration");
        }
    }
}

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
    opened.map(Arc::new).map_err(refusal)
}

/// Nothing is cached: what was put, or fetched, goes at once.
fn address(at: &BlobsAt, work: &Path) -> StorageAddress {
    match at {
        BlobsAt::Directory(directory) => StorageAddress::Directory(directory.clone()),
        BlobsAt::Bucket(settings) => {
            let mut settings = settings.clone();
            settings.cache_dir = work.to_owned();
            settings.cache_bytes = 0;
            StorageAddress::Bucket(settings)
        }
    }
}

/// What to do about it.
fn refusal(error: MigrationError) -> OpenError {
    let advice = match &error {
        MigrationError::SamePlace => "name another place with --to",
        MigrationError::NoSource(_) => {
            "blobs.url must name the place that the servers use now; nothing was copied"
        }
        MigrationError::IncompleteSource { .. } => "complete that first; nothing was copied",
        MigrationError::MovedSource { .. } => "set blobs.url to where they are; nothing was copied",
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
    OpenError::Refused(format!(
        "{}; {advice}",
        estrade_model::error::error_chain(&error)
    ))
}

/// Copies everything, and makes the switch if that is asked for and nothing is damaged.
pub async fn run(
    db: &Db,
    migration: &Arc<Migration>,
    options: MigrationOptions,
    report: &(dyn Fn(MigrationEvent) + Send + Sync),
    stop: &CancellationToken,
) -> Result<MigrationReport, MigrateError> {
    if migration.is_source_closed() && !options.finish {
        cancel(db, migration).await?;
        report(MigrationEvent::SwitchCancelled);
    }
    let mut passes = Passes::new(db, migration, options, report);
    while passes.number() < MAX_PASSES && unless_stopped(stop, passes.run()).await? {}
    if options.finish && !passes.refuses_damage() {
        report(MigrationEvent::SwitchBegan);
        let switched = switch(db, migration, &mut passes, stop).await;
        match switched {
            Ok(true) => return passes.end(true).await,
            Ok(false) => cancel(db, migration).await?,
            Err(error) => {
                // A run that is killed here is completed, or taken back, by the next one.
                if let Err(failed) = cancel(db, migration).await {
                    let error = estrade_model::error::error_chain(&failed);
                    tracing::error!(error, "cannot take the switch back: run this again");
                }
                return Err(error);
            }
        }
    }
    passes.end(false).await
}

/// Whether servers use the target from now on; not if something is damaged.
async fn switch(
    db: &Db,
    migration: &Arc<Migration>,
    passes: &mut Passes<'_>,
    stop: &CancellationToken,
) -> Result<bool, MigrateError> {
    blocking(migration, Migration::close_source).await?;
    let switch = blob_storage::begin_switch(db).await?;
    unless_stopped(stop, passes.run()).await?;
    if passes.refuses_damage() {
        return Ok(false);
    }
    if !blob_storage::complete_switch(db, switch).await? {
        return Err(MigrateError::SwitchCancelled);
    }
    blocking(migration, Migration::open_target).await?;
    Ok(true)
}

async fn unless_stopped<T>(
    stop: &CancellationToken,
    pass: impl Future<Output = Result<T, MigrateError>>,
) -> Result<T, MigrateError> {
    let outcome = stop.run_until_cancelled(pass).await;
    outcome.unwrap_or(Err(MigrateError::Stopped))
}

/// Lets servers go on with the source.
async fn cancel(db: &Db, migration: &Arc<Migration>) -> Result<(), MigrateError> {
    blob_storage::cancel_switch(db).await?;
    blocking(migration, Migration::reopen_source).await
}

async fn blocking(
    migration: &Arc<Migration>,
    step: fn(&Migration) -> Result<(), MigrationError>,
) -> Result<(), MigrateError> {
    let migration = Arc::clone(migration);
    Ok(tokio::task::spawn_blocking(move || step(&migration)).await??)
}
