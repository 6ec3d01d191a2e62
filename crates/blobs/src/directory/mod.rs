//! Objects in a local directory.
//!
//! ```text
//! <root>/packs/<24 hex>.pack   small contents, back to back; small stagings share one
//! <root>/files/<24 hex>        one large content each
//! <root>/tmp/                  spool files
//! <root>/installation          whose store this is
//! <root>/orphans               which packs and files are without rows, and since when
//! ```
//!
//! Every path of the store is made in this file, from an [`ObjectId`] or a [`Record`]: no text that a user sent
//! ever becomes part of one. Errors name the path, since only a log ever shows them.
//!
//! A name must never outlive a crash that the bytes behind it do not. So a spool file is synced when it is sealed,
//! renamed when it is put, and then the directory is synced, once for all objects of a kind: a release costs one
//! fsync for each large content, one for a pack of its own, and at most two for directories. A release whose small
//! contents fit into a shared pack ([`shared_pack`]) costs one fsync for them, since the name of that pack was
//! synced when it began.
//!
//! Packs of a staging have no upper bound here: each further one would be a further fsync. Installations have packs
//! of every length from earlier versions; all that matters to a reader is offset and length.

mod shared_pack;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::ObjectId;
use super::storage::{ObjectEntry, ObjectStorage, PackPart, Record};
use shared_pack::SharedPack;

const PACK_SUFFIX: &str = ".pack";

/// Objects in the files of one root directory.
#[derive(Debug)]
pub struct LocalDirectory {
    root: PathBuf,
    packs: PathBuf,
    files: PathBuf,
    temporary: PathBuf,
    /// Where small stagings go.
    shared: SharedPack,
}

impl LocalDirectory {
    /// Opens `root`, which is created if it does not exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        let directory = Self {
            root: root.to_owned(),
            packs: root.join("packs"),
            files: root.join("files"),
            temporary: root.join("tmp"),
            shared: SharedPack::default(),
        };
        for path in [&directory.packs, &directory.files, &directory.temporary] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(naming(path))?;
        }
        // A content is only as durable as the directories above it.
        sync_directory(root)?;
        sync_directory(&root.join(".."))?;
        Ok(directory)
    }

    /// Whether an installation has used `root`: it has an owner, or contents.
    pub fn is_in_use(root: &Path) -> io::Result<bool> {
        for path in ["packs", "files"].map(|name| root.join(name)) {
            let is_empty = match fs::read_dir(&path) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(naming(&path)(error)),
            };
            if !is_empty {
                return Ok(true);
            }
        }
        root.join(Record::Owner.name()).try_exists()
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        match id {
            ObjectId::Pack(id) => self.packs.join(format!("{id}{PACK_SUFFIX}")),
            ObjectId::File(id) => self.files.join(id.to_string()),
        }
    }

    fn record_path(&self, record: Record) -> PathBuf {
        self.root.join(record.name())
    }

    /// Makes all names durable that were given to objects of these ids' kinds.
    fn sync(&self, named: &[ObjectId]) -> io::Result<()> {
        if named.iter().any(|id| matches!(id, ObjectId::Pack(_))) {
            sync_directory(&self.packs)?;
        }
        if named.iter().any(|id| matches!(id, ObjectId::File(_))) {
            sync_directory(&self.files)?;
        }
        Ok(())
    }

    /// The objects that have their final name. A name that is not ours was put there by a person; it is left alone.
    fn names(&self) -> io::Result<impl Iterator<Item = io::Result<ObjectId>> + use<>> {
        let packs = read_directory(&self.packs)?
            .map(|entry| Ok(parse_pack_name(&entry?)))
            .filter_map(Result::transpose);
        let files = read_directory(&self.files)?
            .map(|entry| Ok(parse_file_name(&entry?)))
            .filter_map(Result::transpose);
        Ok(packs.chain(files))
    }

    fn stat(&self, id: ObjectId) -> io::Result<Option<ObjectEntry>> {
        match fs::metadata(self.path(id)) {
            Ok(metadata) => Ok(Some(ObjectEntry {
                id,
                size: metadata.len(),
                written: metadata.modified()?,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ObjectStorage for LocalDirectory {
    fn create_spool(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::new_in(&self.temporary)
    }

    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath> {
        spool.as_file().sync_all()?;
        Ok(spool.into_temp_path())
    }

    fn remove_spools(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in read_directory(&self.temporary)? {
            removed += u64::from(remove_file(&entry?.path())?);
        }
        Ok(removed)
    }

    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        let mut named = Vec::with_capacity(objects.len());
        for (id, synced) in objects {
            let path = self.path(id);
            synced
                .persist_noclobber(&path)
                .map_err(|refused| naming(&path)(refused.error))?;
            named.push(id);
        }
        self.sync(&named)
    }

    fn max_pack_bytes(&self) -> u64 {
        u64::MAX
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        self.append(bytes, reserved)
    }

    fn discard_part(&self, part: PackPart) -> io::Result<()> {
        self.give_up(&part)
    }

    fn close_pack(&self, id: ObjectId) -> bool {
        self.shared.close(id)
    }

    fn is_open_pack(&self, id: ObjectId) -> bool {
        self.shared.is_open(id)
    }

    fn read_range(&self, id: ObjectId, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.open(id)?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }

    fn open_local(&self, id: ObjectId) -> io::Result<Option<File>> {
        self.open(id).map(Some)
    }

    fn open(&self, id: ObjectId) -> io::Result<File> {
        let path = self.path(id);
        File::open(&path).map_err(naming(&path))
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        let entries = self
            .names()?
            .filter_map(|id| id.and_then(|id| self.stat(id)).transpose());
        Ok(Box::new(entries))
    }

    /// Not synced: if a power cut brings it back, it is an orphan like any other.
    fn delete(&self, id: ObjectId) -> io::Result<()> {
        remove_file(&self.path(id)).map(drop)
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        let path = self.record_path(record);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(naming(&path)(error)),
        }
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        let path = self.record_path(record);
        let mut file = self.create_spool()?;
        file.write_all(content)?;
        match self.seal_spool(file)?.persist_noclobber(&path) {
            Ok(()) => sync_directory(&self.root).map(|()| true),
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(refused) => Err(naming(&path)(refused.error)),
        }
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        let path = self.record_path(record);
        let mut file = self.create_spool()?;
        file.write_all(content)?;
        file.persist(&path)
            .map(drop)
            .map_err(|refused| naming(&path)(refused.error))
    }
}

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

fn sync_directory(path: &Path) -> io::Result<()> {
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
fn naming(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
