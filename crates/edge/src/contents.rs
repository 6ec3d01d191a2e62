//! The bytes of contents: small ones from memory, large ones straight from their files.

use crate::site::Stored;
use bytes::Bytes;
use estrade_store::blobs::{BlobError, BlobStore, PlaceId};
use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Contents up to this size are sent from memory; for larger ones the kernel copies less.
const SMALL: u64 = 8 * 1024;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of contents in memory.
    pub bytes: u64,
    /// Files that are kept open.
    pub files: usize,
}

/// Reads contents and remembers those that are asked for often.
pub struct Contents {
    store: BlobStore,
    /// By all of where it lies: an empty content begins where the next one does.
    small: Cache<Stored, Bytes, ByLength>,
    lately: Lately,
    files: Cache<PlaceId, Arc<File>>,
}

/// The bytes of a content, or where to get them.
#[derive(Debug, Clone)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file.
    File(FileSlice),
}

/// A part of an open file that never changes.
#[derive(Debug, Clone)]
pub struct FileSlice {
    /// The file.
    pub file: Arc<File>,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// Which contents were asked for lately, roughly. One is kept in memory the second time: among a million
/// that are each asked for once in a while, to keep one and drop another costs more than to read it.
struct Lately {
    marks: Box<[AtomicU16]>,
    hashes: RandomState,
}

/// How many are remembered: a power of two.
const REMEMBERED: usize = 1 << 15;

impl Default for Lately {
    fn default() -> Self {
        Self {
            marks: (0..REMEMBERED).map(|_| AtomicU16::new(0)).collect(),
            hashes: RandomState::default(),
        }
    }
}

impl Lately {
    /// Notes that a content was asked for; whether it was already.
    fn met(&self, stored: &Stored) -> bool {
        let hash = self.hashes.hash_one(stored);
        let place = usize::try_from(hash & (REMEMBERED as u64 - 1)).unwrap_or_default();
        // Other bits than those of the place, and never the mark of an empty one.
        let mark = u16::try_from(hash >> 48).unwrap_or_default() | 1;
        let marked = self.marks.get(place);
        marked.is_some_and(|it| it.swap(mark, Ordering::Relaxed) == mark)
    }
}

#[derive(Clone)]
struct ByLength;

impl Weighter<Stored, Bytes> for ByLength {
    fn weight(&self, _: &Stored, bytes: &Bytes) -> u64 {
        // What an entry costs besides its bytes.
        bytes.len() as u64 + 128
    }
}

impl Contents {
    /// With nothing in memory yet.
    pub fn new(store: BlobStore, room: Room) -> Self {
        let entries = usize::try_from(room.bytes / 4096)
            .unwrap_or(usize::MAX)
            .max(16);
        Self {
            store,
            small: Cache::with_weighter(entries, room.bytes, ByLength),
            lately: Lately::default(),
            files: Cache::new(room.files.min(openable()).max(16)),
        }
    }

    /// Closes files that a clean-up has removed: as long as they are open, they take their room on
    /// the disk.
    pub fn close_removed(&self) {
        for (place, file) in self.files.iter() {
            if !file.metadata().is_ok_and(|it| it.nlink() > 0) {
                self.files.remove(&place);
            }
        }
    }

    /// A content. It waits only when the bytes have to come from the disk.
    pub async fn open(&self, stored: Stored) -> Result<Content, BlobError> {
        let Stored {
            place,
            offset,
            size,
        } = stored;
        if size > SMALL {
            let file = self.file(place)?;
            return Ok(Content::File(FileSlice {
                file,
                offset,
                length: size,
            }));
        }
        if let Some(bytes) = self.small.get(&stored) {
            return Ok(Content::Bytes(bytes));
        }
        let slice = FileSlice {
            file: self.file(place)?,
            offset,
            length: size,
        };
        let bytes = slice.read().await?;
        if self.lately.met(&stored) {
            self.small.insert(stored, bytes.clone());
        }
        Ok(Content::Bytes(bytes))
    }

    fn file(&self, place: PlaceId) -> Result<Arc<File>, BlobError> {
        if let Some(file) = self.files.get(&place) {
            return Ok(file);
        }
        let file = Arc::new(self.store.open_place(place)?);
        self.files.insert(place, Arc::clone(&file));
        Ok(file)
    }
}

/// How many files may be kept open: the other half of what this process may have is for connections.
fn openable() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.map_or(usize::MAX, |most| {
        usize::try_from(most / 2).unwrap_or(usize::MAX)
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
    /// Reads it whole: at once when the kernel has it in memory, else on a thread that may wait.
    pub async fn read(&self) -> io::Result<Bytes> {
        let length = usize::try_from(self.length).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let mut target = [IoSliceMut::new(&mut bytes)];
        match preadv2(
            &*self.file,
            &mut target,
            self.offset,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(read) if read == length => return Ok(bytes.into()),
            // In part or not in memory, or a file system that cannot tell.
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let read = move || {
            file.read_exact_at(&mut bytes, offset)
                .map(|()| bytes.into())
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_store::blobs::{DigestSet, Place};

    #[test]
    fn a_content_is_kept_the_second_time() {
        let lately = Lately::default();
        let stored = |offset| Stored {
            place: Place::from_columns("pack:0123456789abcdef01234567", 0)
                .unwrap()
                .id(),
            offset,
            size: 1,
        };
        assert!(!lately.met(&stored(1)));
        assert!(lately.met(&stored(1)));
        // Many others push it out.
        let met = (10..1_000_000).filter(|offset| lately.met(&stored(*offset)));
        assert!(met.count() < 1000);
        assert!(!lately.met(&stored(1)));
    }

    #[tokio::test]
    async fn a_removed_file_does_not_stay_open() {
        let directory = tempfile::tempdir().unwrap();
        let store = BlobStore::open(directory.path()).unwrap();
        let publish = |content: &[u8]| {
            let mut staging = store.stage(u64::MAX, |_| Ok(DigestSet::default()));
            staging.add(content).unwrap();
            staging.publish().unwrap()
        };
        let room = Room {
            bytes: 1 << 20,
            files: 100,
        };
        let contents = Contents::new(store.clone(), room);
        let kept = publish(b"kept");
        store.close_pack(kept.blobs()[0].place.id());
        let removed = publish(b"removed");
        for published in [&kept, &removed] {
            let blob = published.blobs()[0];
            let stored = Stored {
                place: blob.place.id(),
                offset: blob.place.offset(),
                size: blob.size,
            };
            contents.open(stored).await.unwrap();
        }
        assert_eq!(contents.files.len(), 2);
        store.remove_place(removed.blobs()[0].place.id()).unwrap();
        contents.close_removed();
        assert_eq!(contents.files.len(), 1);
    }
}
