//! What an earlier life of this server left on disk: half-written files, and contents that no
//! release has. The holder of the data directory's lock removes them.

use crate::{Core, Result};
use estrade_model::Timestamp;
use estrade_model::error::causes;
use estrade_store::blob_rows;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How often orphans are looked for.
const LOOK_EVERY: Duration = Duration::from_hours(1);
/// How long PostgreSQL may go on with a commit whose client was killed.
const LATE_COMMIT: Duration = Duration::from_mins(1);

/// Makes the directory for temporary files and removes what is in it, and what is half-written in
/// the blob store. Call it before the first request is accepted.
pub fn sweep_temporary(core: &Core, directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(naming(directory))?;
    let mut count = core.blobs.sweep_temporary()?;
    for entry in fs::read_dir(directory).map_err(naming(directory))? {
        let path = entry?.path();
        match fs::remove_file(&path) {
            Ok(()) => count += 1,
            // A directory is not ours.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            }
            Err(error) => return Err(naming(&path)(error)),
        }
    }
    if count > 0 {
        tracing::info!(count, "removed temporary files of an earlier run");
    }
    Ok(())
}

fn naming(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes contents that no release has, at start and every hour, until `stop`.
pub async fn run(core: Arc<Core>, stop: CancellationToken) {
    // Whatever was published before our start is not on its way to a commit any more, because the
    // process that published it is dead.
    let mut before = core.now();
    let mut wait = if core.db.is_sqlite() {
        Duration::ZERO
    } else {
        LATE_COMMIT
    };
    while stop
        .run_until_cancelled(tokio::time::sleep(wait))
        .await
        .is_some()
    {
        if let Err(error) = remove_orphans(&core, before).await {
            let error = causes(&error);
            tracing::warn!(error, "cannot remove contents that no release has");
        }
        before = core.now();
        wait = LOOK_EVERY;
    }
}

/// Removes contents that were published before this moment and that no release has.
async fn remove_orphans(core: &Arc<Core>, before: Timestamp) -> Result<()> {
    let (core, runtime) = (Arc::clone(core), Handle::current());
    let millis = u64::try_from(before.millis()).unwrap_or(0);
    let before = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    let look = move || {
        let is_known = |place| Ok(runtime.block_on(blob_rows::is_known_place(&core.db, place))?);
        core.blobs.remove_orphans(is_known, before)
    };
    let removed = tokio::task::spawn_blocking(look)
        .await
        .map_err(crate::Error::internal)?
        .map_err(crate::Error::internal)?;
    if removed.places > 0 {
        let (files, bytes) = (removed.places, removed.bytes);
        tracing::info!(files, bytes, "removed contents that no release has");
    }
    Ok(())
}
