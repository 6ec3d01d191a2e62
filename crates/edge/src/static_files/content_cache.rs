//! Content cache: small contents in memory behind an admission filter, open files for `sendfile`.
//!
//! Blobs are immutable, so nothing here is ever invalidated; files that garbage collection or the cache of a bucket has
//! removed are closed, because an open file keeps its space on the disk.
//!
//! An object that is not on this node's disk is [fetched](crate::static_files::content_fetch). Requests for open files
//! never reach the store, so [`ContentCache::close_removed`] tells it which ones are in use: otherwise the cache of a
//! bucket would take the most wanted objects for the least used.

use crate::id_table::IdTable;
use crate::static_files::content_error::ContentError;
use crate::static_files::content_fetch::Fetches;
use crate::static_files::site::ContentLocation;
use bytes::Bytes;
use estrade_blobs::{BlobError, BlobStore, ObjectId};
use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use foldhash::quality::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use zerocopy::FromZeros;

/// Contents up to this size are sent from memory; for larger ones the kernel copies less.
const MAX_IN_MEMORY: u64 = 8 * 1024;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct ContentCacheLimits {
    /// Bytes of contents in memory.
    pub bytes: u64,
    /// Files that are kept open.
    pub files: usize,
}

/// Reads contents and remembers those that are asked for often.
pub struct ContentCache {
    store: BlobStore,
    fetches: Fetches,
    /// Keyed by the whole location: an empty content has the same offset as the next one.
    small: Cache<ContentLocation, Bytes, ByLength>,
    admission: AdmissionFilter,
    files: Cache<ObjectId, Arc<OpenFile>>,
    /// Open files by the ids that entries of the response cache hold; weak, so that eviction closes them.
    open_files: IdTable<Weak<OpenFile>>,
    /// Assigned ids. A file that is opened again keeps its id: otherwise opening and closing many files would
    /// use up the ids.
    file_ids: Mutex<HashMap<ObjectId, u32>>,
}

/// A pack or file that is open.
struct OpenFile {
    place: ObjectId,
    file: Arc<File>,
    /// Assigned on first use by the response cache.
    id: OnceLock<Option<u32>>,
    /// Whether it was asked for since the store was last told.
    used: AtomicBool,
}

impl OpenFile {
    fn note_use(&self) {
        // Written only on change: the line of a hot file stays shared between the cores.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// The bytes of a content, or where to get them.
#[derive(Debug, Clone)]
pub enum Content {
    Bytes(Bytes),
    /// In a file.
    File(FileSlice),
}

/// A part of an open file that never changes.
#[derive(Debug, Clone)]
pub struct FileSlice {
    pub file: Arc<File>,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// Admission filter of the memory cache: a direct-mapped table of 16-bit fingerprints. A content is admitted
/// at its second request. Failure prevented: with a million contents that are each requested rarely, every
/// request would insert one and evict another, which costs more than reading it from the page cache.
///
/// Contents of a pack lie one behind the other. For some seeds the fast variant of the hash maps such offsets to slots
/// and fingerprints in step, so that thousands of a million are taken for seen (a test failed so once); this one mixes again.
struct AdmissionFilter {
    fingerprints: Box<[AtomicU16]>,
    hashes: RandomState,
}

/// One fingerprint per so many bytes of the cache, so that there are more fingerprints than cached contents.
const BYTES_PER_FINGERPRINT: u64 = 256;
const MIN_FINGERPRINTS: usize = 1 << 10;

impl AdmissionFilter {
    /// For so many bytes of contents.
    fn new(bytes: u64) -> Self {
        let fingerprints =
            usize::try_from(bytes / BYTES_PER_FINGERPRINT).unwrap_or(MIN_FINGERPRINTS);
        let fingerprints = fingerprints.max(MIN_FINGERPRINTS).next_power_of_two();
        Self {
            // Untouched until they are used.
            fingerprints: <[AtomicU16]>::new_box_zeroed_with_elems(fingerprints)
                .unwrap_or_default(),
            hashes: RandomState::default(),
        }
    }

    /// Records a request for a content; true when its fingerprint was there already.
    fn seen_before(&self, stored: &ContentLocation) -> bool {
        let hash = self.hashes.hash_one(stored);
        let place =
            usize::try_from(hash).unwrap_or_default() & self.fingerprints.len().wrapping_sub(1);
        // High bits, independent of the slot's; never 0, which is an empty slot.
        let fingerprint = u16::try_from(hash >> 48).unwrap_or_default() | 1;
        let Some(slot) = self.fingerprints.get(place) else {
            return false;
        };
        let seen = slot.load(Ordering::Relaxed) == fingerprint;
        // Written only on change: the line of a hot content stays shared between the cores.
        if !seen {
            slot.store(fingerprint, Ordering::Relaxed);
        }
        seen
    }
}

#[derive(Clone)]
struct ByLength;

impl Weighter<ContentLocation, Bytes> for ByLength {
    fn weight(&self, _: &ContentLocation, bytes: &Bytes) -> u64 {
        // What an entry costs besides its bytes.
        bytes.len() as u64 + 128
    }
}

impl ContentCache {
    /// With nothing in memory yet.
    pub fn new(store: BlobStore, limits: ContentCacheLimits) -> Self {
        let entries = usize::try_from(limits.bytes / 4096)
            .unwrap_or(usize::MAX)
            .max(16);
        Self {
            fetches: Fetches::new(store.clone()),
            store,
            small: Cache::with_weighter(entries, limits.bytes, ByLength),
            admission: AdmissionFilter::new(limits.bytes),
            files: Cache::new(limits.files.min(max_open_files()).max(16)),
            open_files: IdTable::default(),
            file_ids: Mutex::default(),
        }
    }

    /// Closes files that were removed: as long as they are open, they take their room on the disk. Tells the store
    /// which of the others were asked for, if it has a cache that makes room for other objects.
    pub fn close_removed(&self) {
        let has_cache = self.store.cache_stats().is_some();
        for (place, open) in self.files.iter() {
            if open.file.metadata().is_ok_and(|it| it.nlink() > 0) {
                if has_cache && open.used.swap(false, Ordering::Relaxed) {
                    // Opening is using. If it cannot be opened, the next request finds out.
                    drop(self.store.open_local(place));
                }
            } else {
                self.files.remove(&place);
                if let Some(id) = self.file_ids().remove(&place) {
                    self.open_files.set(id, Weak::new());
                }
            }
        }
    }

    /// A content of a site of this owner. It waits when the bytes have to come from the disk, or from a bucket.
    pub async fn open(
        &self,
        owner: OwnerId,
        stored: ContentLocation,
    ) -> Result<Content, ContentError> {
        let admitted = self.is_admitted(&stored);
        if let Some(bytes) = self.in_memory(&stored, admitted) {
            return Ok(Content::Bytes(bytes));
        }
        let open = match self.local_file(stored.place)? {
            Some(open) => open,
            None => Box::pin(self.fetch(owner, stored.place)).await?,
        };
        Ok(self.read(&open.file, stored, admitted).await?)
    }

    /// The number of the file that a content lies in; none when it cannot have one.
    pub(crate) fn file_id(&self, place: ObjectId) -> Option<u32> {
        let open = self.local_file(place).ok()??;
        let id = (*open.id.get_or_init(|| self.assign_file_id(place)))?;
        // Two threads may have opened the file at once, and the one with the id may be closed again.
        if self.open_files.get(id)?.strong_count() == 0 {
            self.open_files.set(id, Arc::downgrade(&open));
        }
        Some(id)
    }

    fn assign_file_id(&self, place: ObjectId) -> Option<u32> {
        let mut file_ids = self.file_ids();
        if let Some(id) = file_ids.get(&place) {
            return Some(*id);
        }
        let id = self.open_files.add(Weak::new())?;
        file_ids.insert(place, id);
        Some(id)
    }

    fn file_ids(&self) -> MutexGuard<'_, HashMap<ObjectId, u32>> {
        // Nothing can be left half-done under it.
        self.file_ids.lock_ignoring_poison()
    }

    /// A content in the file of this number; none when that is not open any more, or not good.
    pub(crate) async fn open_by_id(&self, id: u32, offset: u64, size: u64) -> Option<Content> {
        let open = self.open_files.get(id)?.upgrade()?;
        open.note_use();
        let place = open.place;
        let stored = ContentLocation {
            place,
            offset,
            size,
        };
        let admitted = self.is_admitted(&stored);
        if let Some(bytes) = self.in_memory(&stored, admitted) {
            return Some(Content::Bytes(bytes));
        }
        self.read(&open.file, stored, admitted).await.ok()
    }

    /// Whether a content is small and passes the admission filter.
    fn is_admitted(&self, stored: &ContentLocation) -> bool {
        stored.size <= MAX_IN_MEMORY && self.admission.seen_before(stored)
    }

    /// A content from memory. What the filter does not admit is not looked up either: a lookup that mostly
    /// misses costs as much as reading from the page cache.
    fn in_memory(&self, stored: &ContentLocation, admitted: bool) -> Option<Bytes> {
        admitted.then(|| self.small.get(stored)).flatten()
    }

    /// Reads what is small, and keeps it if it is asked for often.
    async fn read(
        &self,
        file: &Arc<File>,
        stored: ContentLocation,
        admitted: bool,
    ) -> io::Result<Content> {
        let ContentLocation { offset, size, .. } = stored;
        if size > MAX_IN_MEMORY {
            return Ok(Content::File(FileSlice {
                file: Arc::clone(file),
                offset,
                length: size,
            }));
        }
        let bytes = read(file, offset, size).await?;
        if admitted {
            self.small.insert(stored, bytes.clone());
        }
        Ok(Content::Bytes(bytes))
    }

    /// A file that is open, or lies on this node's disk.
    fn local_file(&self, place: ObjectId) -> Result<Option<Arc<OpenFile>>, BlobError> {
        if let Some(open) = self.files.get(&place) {
            open.note_use();
            return Ok(Some(open));
        }
        let file = self.store.open_local(place)?;
        Ok(file.map(|file| self.keep_open(place, Arc::new(file))))
    }

    /// A file that has to come from elsewhere first.
    async fn fetch(&self, owner: OwnerId, place: ObjectId) -> Result<Arc<OpenFile>, ContentError> {
        let file = self.fetches.fetch(owner, place).await?;
        // Another request may have waited for the same object.
        let kept = self.files.get(&place);
        Ok(kept.unwrap_or_else(|| self.keep_open(place, file)))
    }

    fn keep_open(&self, place: ObjectId, file: Arc<File>) -> Arc<OpenFile> {
        let open = Arc::new(OpenFile {
            place,
            file,
            id: OnceLock::new(),
            used: AtomicBool::new(false),
        });
        self.files.insert(place, Arc::clone(&open));
        open
    }
}

/// How many files may be kept open: the rest of what this process may have is for connections.
fn max_open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.map_or(usize::MAX, |most| {
        usize::try_from(most / 8).unwrap_or(usize::MAX)
    })
}

impl Content {
    /// A part of it.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<u64>) -> Self {
        match self {
            Self::Bytes(bytes) => {
                let at = |offset| {
                    usize::try_from(offset)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len())
                };
                Self::Bytes(bytes.slice(at(range.start)..at(range.end)))
            }
            Self::File(slice) => Self::File(FileSlice {
                file: Arc::clone(&slice.file),
                offset: slice.offset + range.start,
                length: range.end - range.start,
            }),
        }
    }

    /// How long it is.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(slice) => slice.length,
        }
    }
}

impl FileSlice {
    /// Reads it whole.
    pub async fn read(&self) -> io::Result<Bytes> {
        read(&self.file, self.offset, self.length).await
    }
}

/// Reads a part of a file: `RWF_NOWAIT` when it is in the page cache, else on the blocking pool, so that a
/// slow disk never blocks a worker.
async fn read(file: &Arc<File>, offset: u64, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut target = [IoSliceMut::new(&mut bytes)];
    match preadv2(&**file, &mut target, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) if read == length => return Ok(bytes.into()),
        // In part or not in memory, or a file system that cannot tell.
        Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let file = Arc::clone(file);
    let read = move || {
        file.read_exact_at(&mut bytes, offset)
            .map(|()| bytes.into())
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_blobs::{BlobLocation, DigestSet, StoredBlob};

    #[test]
    fn a_content_is_kept_the_second_time() {
        let admission = AdmissionFilter::new(8 << 20);
        let stored = |offset| ContentLocation {
            place: BlobLocation::from_columns("pack:0123456789abcdef01234567", 0)
                .unwrap()
                .object(),
            offset,
            size: 1,
        };
        assert!(!admission.seen_before(&stored(1)));
        assert!(admission.seen_before(&stored(1)));
        // Many others push it out.
        let seen = (10..1_000_000).filter(|offset| admission.seen_before(&stored(*offset)));
        assert!(seen.count() < 1000);
        assert!(!admission.seen_before(&stored(1)));
    }

    #[tokio::test]
    async fn a_removed_file_does_not_stay_open() {
        let directory = tempfile::tempdir().unwrap();
        let store = BlobStore::open(directory.path(), "test").unwrap();
        let publish = |content: &[u8]| {
            let mut staging = store.stage(u64::MAX, |_| Ok(DigestSet::default()));
            staging.add(content).unwrap();
            staging.publish().unwrap()
        };
        let limits = ContentCacheLimits {
            bytes: 1 << 20,
            files: 100,
        };
        let contents = ContentCache::new(store.clone(), limits);
        let owner = "0123456789abcdef01234567".parse().unwrap();
        let kept = publish(b"kept");
        store.close_pack(kept.blobs()[0].location.object());
        let removed = publish(b"removed");
        for published in [&kept, &removed] {
            let blob = published.blobs()[0];
            let stored = ContentLocation {
                place: blob.location.object(),
                offset: blob.location.offset(),
                size: blob.size,
            };
            contents.open(owner, stored).await.unwrap();
        }
        assert_eq!(contents.files.len(), 2);
        let [kept, removed] = [&kept, &removed].map(|it| it.blobs()[0]);
        let file_ids = [kept, removed].map(|it| contents.file_id(it.location.object()).unwrap());
        let again = async |at: usize, blob: StoredBlob| {
            let opened = contents.open_by_id(file_ids[at], blob.location.offset(), blob.size);
            opened.await.map(|content| content.length())
        };
        assert_eq!(again(0, kept).await, Some(4));
        assert_eq!(again(1, removed).await, Some(7));
        store.remove_object(removed.location.object()).unwrap();
        contents.close_removed();
        assert_eq!(contents.files.len(), 1);
        assert_eq!(again(1, removed).await, None);
        // One that was closed for lack of room is found again under its number, once it is open again.
        contents.files.remove(&kept.location.object());
        assert_eq!(again(0, kept).await, None);
        assert_eq!(contents.file_id(kept.location.object()), Some(file_ids[0]));
        assert_eq!(again(0, kept).await, Some(4));
    }
}
