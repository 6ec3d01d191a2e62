//! Objects on this node's disk that were fetched from the bucket, or put there by this node.
//!
//! ```text
//! <cache_dir>/packs/<24 hex>-<64 hex>   a pack, and the BLAKE3 hash of all its bytes
//! <cache_dir>/files/<24 hex>-<64 hex>   a large content
//! <cache_dir>/tmp/                      spool files, and objects that are arriving
//! <cache_dir>/bucket                    which bucket this is a cache of
//! ```
//!
//! A file is renamed into place when all of its bytes were compared with the hash. It is not synced: after a restart
//! every file is compared once more before it is used, and what a power cut damaged is fetched anew. Who has a file
//! open that makes room for another keeps reading it.

mod index;
mod verify;

use std::fs::{self, DirBuilder, DirEntry, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use estrade_model::sync::MutexExt;
use tempfile::{NamedTempFile, TempPath};

use super::flights::Fetched;
use crate::storage::CacheStats;
use crate::{ObjectId, UniqueId};
use index::{Entry, Index};
pub(super) use verify::hash_file;

const PACKS: &str = "packs";
const FILES: &str = "files";
const TEMPORARY: &str = "tmp";
const BUCKET: &str = "bucket";

#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    capacity: u64,
    index: Mutex<Index>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl Cache {
    /// Opens the directory `root`, which is created if it does not exist. What lies there is used again if it is of
    /// the same bucket.
    pub(super) fn open(root: &Path, capacity: u64, bucket: &str) -> io::Result<Self> {
        for name in [PACKS, FILES, TEMPORARY] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(root.join(name))?;
        }
        let cache = Self {
            root: root.to_owned(),
            capacity,
            index: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        };
        if cache.is_of(bucket)? {
            for (id, hash, size) in cache.scan()? {
                cache.lock().insert(id, hash, size, false);
            }
            drop(cache.reserve(0));
        }
        Ok(cache)
    }

    /// Whether this is the cache of that bucket, and was used before.
    pub(super) fn is_of(&self, bucket: &str) -> io::Result<bool> {
        match fs::read(self.root.join(BUCKET)) {
            Ok(found) => Ok(found == bucket.as_bytes()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes which bucket this is a cache of, once that is known to be ours. What is left of another one goes.
    pub(super) fn set_bucket(&self, bucket: &str) -> io::Result<()> {
        if self.is_of(bucket)? {
            return Ok(());
        }
        for folder in [PACKS, FILES] {
            for entry in fs::read_dir(self.root.join(folder))? {
                remove_file(&entry?.path())?;
            }
        }
        let temporary = self.create_temporary()?;
        fs::write(&temporary, bucket)?;
        temporary.persist(self.root.join(BUCKET))?;
        Ok(())
    }

    pub(super) fn create_temporary(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::new_in(self.root.join(TEMPORARY))
    }

    /// Removes what an earlier process left half-written.
    pub(super) fn remove_temporary(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(self.root.join(TEMPORARY))? {
            removed += u64::from(remove_file(&entry?.path())?);
        }
        Ok(removed)
    }

    /// Opens an object that lies here and was compared with its hash since this process began.
    pub(super) fn open_verified(&self, id: ObjectId) -> io::Result<Option<File>> {
        match self.find(id) {
            Some(entry) if entry.is_verified => self.open_file(id, &entry),
            _ => Ok(None),
        }
    }

    /// Opens an object that lies here; it is compared with its hash first if need be.
    pub(super) fn open_any(&self, id: ObjectId) -> io::Result<Option<File>> {
        let Some(entry) = self.find(id) else {
            return Ok(None);
        };
        if !entry.is_verified {
            let path = self.path(id, &entry.hash);
            // A sector that cannot be read is damage as well: the bucket has the bytes.
            let is_intact = match File::open(&path) {
                Ok(file) => verify::is_intact(&file, entry.size, entry.hash).unwrap_or(false),
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            };
            if !is_intact {
                tracing::warn!(object = %id, "fetch a cached object anew: it is damaged");
                self.forget(id, &entry)?;
                return Ok(None);
            }
            self.lock().set_verified(id, entry.generation);
        }
        self.open_file(id, &entry)
    }

    pub(super) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes room for an object that arrives, and evicts others for it; none if it is longer than all there is, or if
    /// what arrives already has half of it: large files that are visited at the same moment must not empty the cache.
    pub(super) fn reserve(&self, size: u64) -> Option<Reservation<'_>> {
        let evicted = self.lock().reserve(size, self.capacity)?;
        let reservation = Reservation { cache: self, size };
        self.remove_evicted(evicted);
        Some(reservation)
    }

    /// Makes room on a disk that is full; false if nothing is cached any more.
    pub(super) fn shrink(&self) -> bool {
        let evicted = self.lock().shrink();
        let has_evicted = !evicted.is_empty();
        self.remove_evicted(evicted);
        has_evicted
    }

    /// Keeps a file that was compared with its hash. Without a reservation it goes when it was read.
    pub(super) fn insert(
        &self,
        id: ObjectId,
        hash: &blake3::Hash,
        file: TempPath,
        reservation: Option<Reservation<'_>>,
    ) -> io::Result<Fetched> {
        let Some(mut reservation) = reservation else {
            return Ok(Fetched::Unkept(file));
        };
        let path = self.path(id, hash);
        file.persist(&path).map_err(|refused| refused.error)?;
        let size = std::mem::take(&mut reservation.size);
        let evicted = self.lock().insert_reserved(id, *hash, size, self.capacity);
        self.remove_evicted(evicted);
        Ok(Fetched::Cached(path))
    }

    pub(super) fn remove(&self, id: ObjectId) -> io::Result<()> {
        let removed = self.lock().remove(id);
        match removed {
            Some(entry) => remove_file(&self.path(id, &entry.hash)).map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            bytes: self.lock().bytes,
            capacity: self.capacity,
        }
    }

    fn remove_evicted(&self, evicted: Vec<(ObjectId, Entry)>) {
        for (id, entry) in evicted {
            self.evictions.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = remove_file(&self.path(id, &entry.hash)) {
                tracing::warn!(object = %id, %error, "cannot remove a cached object");
            }
        }
    }

    fn find(&self, id: ObjectId) -> Option<Entry> {
        self.lock().find(id)
    }

    /// A file that is gone, or has another length, is forgotten: somebody was in the directory.
    fn open_file(&self, id: ObjectId, entry: &Entry) -> io::Result<Option<File>> {
        match File::open(self.path(id, &entry.hash)) {
            Ok(file) if file.metadata()?.len() == entry.size => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Ok(Some(file))
            }
            Ok(_) => self.forget(id, entry).map(|()| None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.lock().remove_generation(id, entry.generation);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn forget(&self, id: ObjectId, entry: &Entry) -> io::Result<()> {
        if self.lock().remove_generation(id, entry.generation) {
            remove_file(&self.path(id, &entry.hash))?;
        }
        Ok(())
    }

    fn path(&self, id: ObjectId, hash: &blake3::Hash) -> PathBuf {
        let (folder, id) = match id {
            ObjectId::Pack(id) => (PACKS, id),
            ObjectId::File(id) => (FILES, id),
        };
        self.root
            .join(folder)
            .join(format!("{id}-{}", hash.to_hex()))
    }

    /// What an earlier process cached, in the order in which it arrived.
    fn scan(&self) -> io::Result<Vec<(ObjectId, blake3::Hash, u64)>> {
        let mut found = Vec::new();
        for folder in [PACKS, FILES] {
            for entry in fs::read_dir(self.root.join(folder))? {
                let entry = entry?;
                let Some((id, hash)) = parse_name(&entry) else {
                    continue;
                };
                let id = if folder == PACKS {
                    ObjectId::Pack(id)
                } else {
                    ObjectId::File(id)
                };
                let metadata = entry.metadata()?;
                found.push((metadata.modified()?, (id, hash, metadata.len())));
            }
        }
        found.sort_by_key(|(arrived, _)| *arrived);
        Ok(found.into_iter().map(|(_, it)| it).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock_ignoring_poison()
    }
}

/// Room for an object that arrives.
#[derive(Debug)]
pub(super) struct Reservation<'c> {
    cache: &'c Cache,
    size: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.cache.lock().release(self.size);
    }
}

fn parse_name(entry: &DirEntry) -> Option<(UniqueId, blake3::Hash)> {
    let name = entry.file_name();
    let (id, hash) = name.to_str()?.split_once('-')?;
    Some((id.parse().ok()?, blake3::Hash::from_hex(hash).ok()?))
}

/// Returns whether there was a file to remove.
fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
