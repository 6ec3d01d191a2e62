//! The directories of a blob store and the few operations on them.
//!
//! Every path of the store is made in this file, from a [`ObjectId`]: no text that a user sent
//! ever becomes part of one. Errors name the path, since only a log ever shows them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::{NamedTempFile, TempPath};

use super::claims::Claims;
use super::orphans::Orphans;
use super::shared::SharedPack;
use super::{Digest, ObjectId};

const PACK_SUFFIX: &str = ".pack";

/// One root directory, and the claims on what is in it.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    installation: String,
    packs: PathBuf,
    files: PathBuf,
    temporary: PathBuf,
    /// Places that are published while their rows are on the way.
    pub(super) claims: Claims<ObjectId>,
    /// Contents that a release on its way may have found to be stored.
    pub(super) wanted: Claims<Digest>,
    /// Where small stagings go.
    pub(super) shared: SharedPack,
    /// What was found to be without rows.
    pub(super) orphans: Mutex<Orphans>,
}

impl Disk {
    pub(super) fn open(root: &Path, installation: &str) -> io::Result<Self> {
        let disk = Self {
            root: root.to_owned(),
            installation: installation.to_owned(),
            packs: root.join("packs"),
            files: root.join("files"),
            temporary: root.join("tmp"),
            claims: Claims::default(),
            wanted: Claims::default(),
            shared: SharedPack::default(),
            orphans: Mutex::default(),
        };
        for directory in [&disk.packs, &disk.files, &disk.temporary] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(naming(directory))?;
        }
        // A content is only as durable as the directories above it.
        sync_directory(root)?;
        sync_directory(&root.join(".."))?;
        Ok(disk)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whose store this is.
    pub(super) fn installation(&self) -> &str {
        &self.installation
    }

    pub(super) fn orphans_path(&self) -> PathBuf {
        self.root.join("orphans")
    }

    pub(super) fn path(&self, id: ObjectId) -> PathBuf {
        match id {
            ObjectId::Pack(id) => self.packs.join(format!("{id}{PACK_SUFFIX}")),
            ObjectId::File(id) => self.files.join(id.to_string()),
        }
    }

    /// Opens what lies at `id` for reading.
    pub(super) fn open_object(&self, id: ObjectId) -> io::Result<File> {
        let path = self.path(id);
        File::open(&path).map_err(naming(&path))
    }

    /// A new file (mode 0600) under `tmp/`, which is removed unless it is published.
    pub(super) fn new_temporary(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::new_in(&self.temporary)
    }

    /// Gives a file its final name. The name lasts once [`sync`](Self::sync) has returned.
    ///
    /// The file's content must have been synced before: a name must never outlive a crash that
    /// the bytes behind it do not.
    pub(super) fn publish(&self, synced: TempPath, id: ObjectId) -> io::Result<()> {
        let path = self.path(id);
        synced
            .persist_noclobber(&path)
            .map_err(|refused| naming(&path)(refused.error))
    }

    /// Makes all names durable that were given to objects of these ids' kinds.
    pub(super) fn sync(&self, published: &[ObjectId]) -> io::Result<()> {
        if published.iter().any(|id| matches!(id, ObjectId::Pack(_))) {
            sync_directory(&self.packs)?;
        }
        if published.iter().any(|id| matches!(id, ObjectId::File(_))) {
            sync_directory(&self.files)?;
        }
        Ok(())
    }

    /// Removes what lies at `id`, if anything does. Not synced: if a power cut brings it back,
    /// it is an orphan like any other.
    pub(super) fn remove(&self, id: ObjectId) -> io::Result<()> {
        remove_file(&self.path(id)).map(drop)
    }

    pub(super) fn sweep_temporary(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in read_directory(&self.temporary)? {
            removed += u64::from(remove_file(&entry?.path())?);
        }
        Ok(removed)
    }

    /// Lists every pack and file that has its final name.
    pub(super) fn list(&self) -> io::Result<impl Iterator<Item = io::Result<ObjectId>> + use<>> {
        let packs = read_directory(&self.packs)?
            .map(|entry| Ok(parse_pack_name(&entry?)))
            .filter_map(Result::transpose);
        let files = read_directory(&self.files)?
            .map(|entry| Ok(parse_file_name(&entry?)))
            .filter_map(Result::transpose);
        Ok(packs.chain(files))
    }
}

// A name that is not ours was put there by a person; it is left alone.

fn parse_pack_name(entry: &fs::DirEntry) -> Option<ObjectId> {
    let name = entry.file_name();
    let id = name.to_str()?.strip_suffix(PACK_SUFFIX)?;
    id.parse().ok().map(ObjectId::Pack)
}

fn parse_file_name(entry: &fs::DirEntry) -> Option<ObjectId> {
    let name = entry.file_name();
    name.to_str()?.parse().ok().map(ObjectId::File)
}

fn read_directory(path: &Path) -> io::Result<fs::ReadDir> {
    fs::read_dir(path).map_err(naming(path))
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(naming(path))
}

/// Returns whether there was a file to remove.
fn remove_file(path: &Path) -> io::Result<bool> {
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
