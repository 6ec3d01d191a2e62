//! What an earlier life of this server left on disk: half-written files, and files that hold no
//! content. The holder of the data directory's lock removes them.

use crate::{Core, Error, Result};
use estrade_store::blob_rows;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

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

/// Removes packs and files of this node, or of the bucket, that hold no content, a day after they were found to be
/// such; returns how many there were. By then also a commit of PostgreSQL has ended whose client was killed.
pub(crate) async fn remove_orphans(core: &Arc<Core>) -> Result<u64> {
    let millis = u64::try_from(core.now().millis()).unwrap_or(0);
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    let (core, runtime) = (Arc::clone(core), Handle::current());
    let remove = move || {
        let is_known = |place| Ok(runtime.block_on(blob_rows::is_known_object(&core.db, place))?);
        let min_age = core.settings.min_orphan_age;
        core.blobs.remove_orphans(is_known, now, min_age)
    };
    let removed = tokio::task::spawn_blocking(remove)
        .await
        .map_err(Error::internal)??;
    Ok(removed.objects)
}
