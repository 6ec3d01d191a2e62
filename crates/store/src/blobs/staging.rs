//! Collecting the new contents of one release, before any of them is visible.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tempfile::{NamedTempFile, TempPath};

use super::disk::Disk;
use super::pack::{PackWriter, sync_temporary};
use super::{
    BlobError, ContentWriter, Digest, LARGE_CONTENT, LookupError, Place, PlaceId, Published,
    StoredBlob, UniqueId,
};

pub(super) type IsKnown<'k> = Box<dyn FnMut(&Digest) -> Result<bool, LookupError> + Send + 'k>;

/// Contents on their way into the store; made by [`BlobStore::stage`](super::BlobStore::stage).
///
/// Dropping it leaves nothing behind.
pub struct Staging<'k> {
    pub(super) disk: Arc<Disk>,
    max_total: u64,
    total: u64,
    is_known: IsKnown<'k>,
    /// The digests that need no further thought: known before, or written here.
    seen: HashSet<Digest>,
    pack: Option<PackWriter>,
    large: Vec<(PlaceId, TempPath)>,
    stored: Vec<StoredBlob>,
}

impl<'k> Staging<'k> {
    pub(super) fn new(disk: Arc<Disk>, max_total: u64, is_known: IsKnown<'k>) -> Self {
        Self {
            disk,
            max_total,
            total: 0,
            is_known,
            seen: HashSet::new(),
            pack: None,
            large: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// Adds a content that is in memory.
    pub fn add(&mut self, content: &[u8]) -> Result<Digest, BlobError> {
        let size = content.len() as u64;
        self.check_room(size)?;
        let digest = Digest::of(content);
        if size < LARGE_CONTENT {
            self.take_small(digest, content)?;
        } else {
            self.take_large(digest, size, |disk| {
                let mut file = BufWriter::new(disk.new_temporary()?);
                file.write_all(content)?;
                Ok(file)
            })?;
        }
        Ok(digest)
    }

    /// Adds a content that arrives piece by piece, of any size, in bounded memory.
    ///
    /// Dropping the writer unfinished forgets the content.
    pub fn writer(&mut self) -> ContentWriter<'_, 'k> {
        ContentWriter::new(self)
    }

    /// Makes every new content durable and gives it its place.
    ///
    /// On an error nothing stays on disk.
    pub fn publish(self) -> Result<Published, BlobError> {
        let mut published = Published::new(self.disk, self.stored);
        let outcome = (|| {
            if let Some(pack) = self.pack {
                let id = PlaceId::Pack(pack.id());
                published.publish(pack.finish()?, id)?;
            }
            for (id, file) in self.large {
                published.publish(file, id)?;
            }
            published.sync()
        })();
        match outcome {
            Ok(()) => Ok(published),
            Err(error) => {
                published.discard();
                Err(error.into())
            }
        }
    }

    /// Counts every byte that was offered, also of contents that are known already: what fits
    /// must not depend on what other people have stored.
    pub(super) fn check_room(&self, more: u64) -> Result<(), BlobError> {
        match self.total.checked_add(more) {
            Some(total) if total <= self.max_total => Ok(()),
            _ => Err(BlobError::TooLarge {
                max: self.max_total,
            }),
        }
    }

    /// Takes a complete small content, into the pack if it is new.
    pub(super) fn take_small(&mut self, digest: Digest, content: &[u8]) -> Result<(), BlobError> {
        let size = content.len() as u64;
        if self.is_new(&digest)? {
            let pack = match &mut self.pack {
                Some(pack) => pack,
                none => none.insert(PackWriter::create(&self.disk, UniqueId::new()?)?),
            };
            let offset = pack.append(content)?;
            let place = Place::Pack {
                id: pack.id(),
                offset,
            };
            self.record(digest, size, place);
        }
        self.total += size;
        Ok(())
    }

    /// Takes a complete large content; `file` is called for its temporary file if it is new.
    pub(super) fn take_large(
        &mut self,
        digest: Digest,
        size: u64,
        file: impl FnOnce(&Disk) -> io::Result<BufWriter<NamedTempFile>>,
    ) -> Result<(), BlobError> {
        if self.is_new(&digest)? {
            let synced = sync_temporary(file(&self.disk)?)?;
            let id = UniqueId::new()?;
            self.large.push((PlaceId::File(id), synced));
            self.record(digest, size, Place::File { id });
        }
        self.total += size;
        Ok(())
    }

    fn is_new(&mut self, digest: &Digest) -> Result<bool, BlobError> {
        if self.seen.contains(digest) {
            return Ok(false);
        }
        let known = (self.is_known)(digest).map_err(BlobError::Lookup)?;
        if known {
            self.seen.insert(*digest);
        }
        Ok(!known)
    }

    fn record(&mut self, digest: Digest, size: u64, place: Place) {
        self.seen.insert(digest);
        self.stored.push(StoredBlob {
            digest,
            size,
            place,
        });
    }
}
