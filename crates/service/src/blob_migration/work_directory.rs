//! Where a migration has what is on its way.

use crate::open_error::{OpenError, cannot};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Both in the data directory.
const WORK_DIRECTORY: &str = "blob-migration";
const LOCK_FILE: &str = "blob-migration.lock";

/// A directory for what is on its way, in the data directory. One migration uses it at a time.
#[must_use]
pub struct WorkDirectory {
    pub(super) path: PathBuf,
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
