//! The last step: from when it begins, servers add nothing to the source, and when it has ended, they start with the
//! target.

use super::error::MigrateError;
use super::passes::Passes;
use estrade_blobs::{Migration, MigrationError};
use estrade_model::error::error_chain;
use estrade_store::blob_gc::GcGuard;
use estrade_store::{Db, blob_storage};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A collector of garbage may be at work, which takes seconds.
const MAX_LOCK_ATTEMPTS: u32 = 120;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Whether servers use the target from now on; not if something is damaged.
pub(super) async fn switch(
    db: &Db,
    migration: &Arc<Migration>,
    passes: &mut Passes<'_>,
    stop: &CancellationToken,
) -> Result<bool, MigrateError> {
    let prepared = prepare_switch(db, migration, passes, stop).await;
    if !matches!(prepared, Ok(true)) {
        // A run that is killed here is completed, or taken back, by the next one.
        if let Err(failed) = cancel(db, migration).await {
            return Err(MigrateError::Unfinished(Box::new(failed)));
        }
        return prepared;
    }
    let opened = blocking(migration, Migration::open_target).await;
    opened.map_err(|error| MigrateError::Unfinished(Box::new(error)))?;
    if let Err(error) = blob_storage::complete_switch(db).await {
        let error = error_chain(&error);
        tracing::warn!(error, "the next migration will note that this one is final");
    }
    Ok(true)
}

/// Ends what servers add to the source, and copies what there is.
async fn prepare_switch(
    db: &Db,
    migration: &Arc<Migration>,
    passes: &mut Passes<'_>,
    stop: &CancellationToken,
) -> Result<bool, MigrateError> {
    blocking(migration, Migration::close_source).await?;
    let switch = blob_storage::begin_switch(db).await?;
    passes.run(stop).await?;
    if passes.refuses_damage() {
        return Ok(false);
    }
    if !blob_storage::is_under_way(db, switch).await? {
        return Err(MigrateError::SwitchCancelled);
    }
    Ok(true)
}

/// Does something that no other node does at the same time: two migrations, on two machines, could complete and cancel
/// a switch at once.
pub(super) async fn alone<T>(
    db: &Db,
    work: impl Future<Output = Result<T, MigrateError>>,
) -> Result<T, MigrateError> {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        if let Some(guard) = GcGuard::take(db).await? {
            let outcome = work.await;
            guard.release().await;
            return outcome;
        }
        sleep(LOCK_RETRY_DELAY).await;
    }
    Err(MigrateError::Busy)
}

/// Lets servers go on with the source.
pub(super) async fn cancel(db: &Db, migration: &Arc<Migration>) -> Result<(), MigrateError> {
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
