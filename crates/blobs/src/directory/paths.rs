//! The paths of the store, and what makes names in them durable.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::ObjectId;
use crate::storage::Record;

pub(super) const PACK_SUFFIX: &str = ".pack";

/// Where a store has its objects.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) root: PathBuf,
    pub(super) packs: PathBuf,
    pub(super) files: PathBuf,
    pub(super) temporary: PathBuf,
}

impl Paths {
    /// Makes the directories that do not exist yet.
    pub(super) fn create(root: &Path) -> io::Result<Self> {
        let paths = Self {
            root: root.to_owned(),
            packs: root.join("packs"),
            files: root.join("files"),
            temporary: root.join("tmp"),
        };
        for path in [&paths.packs, &paths.files, &paths.temporary] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(naming(path))?;
        }
        // A content is only as durable as the directories above it.
        sync_directory(root)?;
        sync_directory(&root.join(".."))?;
        Ok(paths)
    }

    pub(super) fn path(&self, id: ObjectId) -> PathBuf {
        match id {
            ObjectId::Pack(id) => self.packs.join(format!("{id}{PACK_SUFFIX}")),
            ObjectId::File(id) => self.files.join(id.to_string()),
        }
    }

    pub(super) fn record_path(&self, record: Record) -> PathBuf {
        self.root.join(record.name())
    }

    /// Makes all names durable that were given to objects of these ids' kinds.
    pub(super) fn sync(&self, named: &[ObjectId]) -> io::Result<()> {
        if named.iter().any(|id| matches!(id, ObjectId::Pack(_))) {
            sync_directory(&self.packs)?;
        }
        if named.iter().any(|id| matches!(id, ObjectId::File(_))) {
            sync_directory(&self.files)?;
        }
        Ok(())
    }

    /// Not synced: if a power cut brings it back, it is an orphan like any other.
    pub(super) fn delete(&self, id: ObjectId) -> io::Result<()> {
        remove_file(&self.path(id)).map(drop)
    }
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(naming(path))
}

/// Returns whether there was a file to remove.
pub(super) fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(naming(path)(error)),
    }
}

/// Adds the path to an error and keeps its kind.
pub(super) fn naming(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
