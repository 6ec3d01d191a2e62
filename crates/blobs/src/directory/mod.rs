//! Objects in a local directory.
//!
//! ```text
//! <root>/packs/<24 hex>.pack   small contents, back to back; small stagings share one
//! <root>/files/<24 hex>        one large content each
//! <root>/tmp/                  spool files
//! <root>/installation          whose store this is
//! <root>/orphans               which packs and files are without rows, and since when
//! <root>/migration             whether contents move here, or have moved from here
//! ```
//!
//! Every path of the store is made in [`paths`], from an [`ObjectId`] or a [`Record`]: no text that a user sent
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

mod paths;
mod shared_pack;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::ObjectId;
use super::storage::{Checksum, ObjectEntry, ObjectStorage, PackPart, Record};
use paths::{PACK_SUFFIX, Paths, naming, remove_file, sync_directory};
use shared_pack::SharedPack;

/// Objects in the files of one root directory.
#[derive(Debug)]
pub struct LocalDirectory {
    paths: Paths,
    /// Where small stagings go.
    shared: SharedPack,
}

impl LocalDirectory {
    /// Opens `root`, which is created if it does not exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self {
            paths: Paths::create(root)?,
            shared: SharedPack::default(),
        })
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

    /// The objects that have their final name. A name that is not ours was put there by a person; it is left alone.
    fn names(&self) -> io::Result<impl Iterator<Item = io::Result<ObjectId>> + use<>> {
        let packs = read_directory(&self.paths.packs)?
            .map(|entry| Ok(parse_pack_name(&entry?)))
            .filter_map(Result::transpose);
        let files = read_directory(&self.paths.files)?
            .map(|entry| Ok(parse_file_name(&entry?)))
            .filter_map(Result::transpose);
        Ok(packs.chain(files))
    }

    fn stat(&self, id: ObjectId) -> io::Result<Option<ObjectEntry>> {
        match fs::metadata(self.paths.path(id)) {
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
        NamedTempFile::new_in(&self.paths.temporary)
    }

    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath> {
        spool.as_file().sync_all()?;
        Ok(spool.into_temp_path())
    }

    fn remove_spools(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in read_directory(&self.paths.temporary)? {
            removed += u64::from(remove_file(&entry?.path())?);
        }
        Ok(removed)
    }

    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        let mut named = Vec::with_capacity(objects.len());
        for (id, synced) in objects {
            let path = self.paths.path(id);
            synced
                .persist_noclobber(&path)
                .map_err(|refused| naming(&path)(refused.error))?;
            named.push(id);
        }
        self.paths.sync(&named)
    }

    fn max_pack_bytes(&self) -> u64 {
        u64::MAX
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        self.shared.append(&self.paths, bytes, reserved)
    }

    fn discard_part(&self, part: PackPart) -> io::Result<()> {
        self.shared.give_up(&self.paths, &part)
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
        let path = self.paths.path(id);
        File::open(&path).map_err(naming(&path))
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        let entries = self
            .names()?
            .filter_map(|id| id.and_then(|id| self.stat(id)).transpose());
        Ok(Box::new(entries))
    }

    /// Reads it as a whole: files have no hash beside them.
    fn checksum(&self, id: ObjectId) -> io::Result<Option<Checksum>> {
        let file = match self.open(id) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        Ok(Some(Checksum {
            length: hasher.count(),
            hash: Some(hasher.finalize().into()),
        }))
    }

    fn delete(&self, id: ObjectId) -> io::Result<()> {
        self.paths.delete(id)
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        let path = self.paths.record_path(record);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(naming(&path)(error)),
        }
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        let path = self.paths.record_path(record);
        let mut file = self.create_spool()?;
        file.write_all(content)?;
        match self.seal_spool(file)?.persist_noclobber(&path) {
            Ok(()) => sync_directory(&self.paths.root).map(|()| true),
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(refused) => Err(naming(&path)(refused.error)),
        }
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        let path = self.paths.record_path(record);
        let mut file = self.create_spool()?;
        file.write_all(content)?;
        self.seal_spool(file)?
            .persist(&path)
            .map_err(|refused| naming(&path)(refused.error))?;
        sync_directory(&self.paths.root)
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
