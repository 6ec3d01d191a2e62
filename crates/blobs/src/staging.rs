//! Collecting the new contents of one release, before any of them is visible.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::content::Body;
use super::pack::{Finished, PackWriter, seal};
use super::shared::Shared;
use super::staging_claims::StagingClaims;
use super::storage::ObjectStorage;
use super::{
    BlobError, BlobLocation, Content, Digest, DigestSet, LookupError, MIN_LARGE_BYTES, ObjectId,
    PublishedBlobs, StoredBlob, UniqueId,
};

pub(super) type FindKnown<'k> =
    Box<dyn FnMut(&[Digest]) -> Result<DigestSet, LookupError> + Send + 'k>;

type WatchNew<'k> = Box<dyn FnMut(Digest, &[u8]) + Send + 'k>;

/// Small contents are buffered in memory until it is known whether they are stored already. These bound
/// how much is buffered, and so make one question out of many.
const MAX_PENDING: usize = 128;
const MAX_PENDING_BYTES: usize = 1 << 20;

/// A content in memory, and its hash: only the two together, so that they belong together.
#[derive(Debug, Clone)]
pub struct HashedContent {
    digest: Digest,
    bytes: Bytes,
}

impl HashedContent {
    /// Hashes a content.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            digest: Digest::of(&bytes),
            bytes,
        }
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Contents on their way into the store; made by [`BlobStore::stage`](super::BlobStore::stage).
///
/// Dropping it leaves nothing behind; after an error other than [`BlobError::TooLarge`] that is all
/// it is good for.
pub struct Staging<'k> {
    store: Arc<Shared>,
    max_total: u64,
    total: u64,
    find_known: FindKnown<'k>,
    watch_new: Option<WatchNew<'k>>,
    /// The digests that need no further thought: known before, written here, or pending.
    seen: DigestSet,
    claims: StagingClaims,
    pending: Vec<(Digest, Bytes)>,
    pending_bytes: usize,
    pack: Option<PackWriter>,
    /// Large contents, and packs that are full.
    sealed: Vec<(ObjectId, TempPath)>,
    stored: Vec<StoredBlob>,
}

impl<'k> Staging<'k> {
    pub(super) fn new(store: Arc<Shared>, max_total: u64, find_known: FindKnown<'k>) -> Self {
        Self {
            seen: DigestSet::default(),
            claims: StagingClaims::new(Arc::clone(&store)),
            store,
            max_total,
            total: 0,
            find_known,
            watch_new: None,
            pending: Vec::new(),
            pending_bytes: 0,
            pack: None,
            sealed: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// Shows every small content that turns out to be new.
    pub fn watch_new(&mut self, watch: impl FnMut(Digest, &[u8]) + Send + 'k) {
        self.watch_new = Some(Box::new(watch));
    }

    /// Adds a content that is in memory.
    pub fn add(&mut self, content: &[u8]) -> Result<Digest, BlobError> {
        self.check_room(content.len() as u64)?;
        self.add_hashed(HashedContent::new(Bytes::copy_from_slice(content)))
    }

    /// The same with one that was hashed already.
    pub fn add_hashed(&mut self, content: HashedContent) -> Result<Digest, BlobError> {
        let (digest, bytes) = (content.digest, content.bytes);
        let size = bytes.len() as u64;
        self.check_room(size)?;
        if size < MIN_LARGE_BYTES {
            self.take_small(digest, bytes)?;
        } else {
            self.take_large(digest, size, |storage| {
                let mut file = BufWriter::new(storage.create_spool()?);
                file.write_all(&bytes)?;
                Ok(file)
            })?;
        }
        Ok(digest)
    }

    /// Counts from the start again, because the same contents are about to be added once more.
    pub fn count_anew(&mut self) {
        self.total = 0;
    }

    /// Keeps a content that is stored already from being forgotten until the rows are committed.
    pub fn want(&mut self, digest: Digest) {
        self.claims.insert(digest);
    }

    /// Adds a content that arrives piece by piece, of any size, in bounded memory.
    ///
    /// Dropping the writer unfinished forgets the content.
    pub fn writer(&mut self) -> ContentWriter<'_, 'k> {
        ContentWriter::new(self)
    }

    /// Adds a content that was received before; returns its digest and size.
    pub fn adopt(&mut self, content: Content) -> Result<(Digest, u64), BlobError> {
        let (digest, size) = (content.digest(), content.size());
        self.check_room(size)?;
        match content.into_body() {
            Body::Small(content) => self.take_small(digest, content.into())?,
            Body::Large(file) => self.take_large(digest, size, |_| Ok(file))?,
        }
        Ok((digest, size))
    }

    /// Makes every new content durable and gives it its location.
    ///
    /// On an error nothing stays, but for what a failed write may have left at the end of a pack that others
    /// share.
    pub fn publish(mut self) -> Result<PublishedBlobs, BlobError> {
        self.write_pending(None)?;
        let mut published = PublishedBlobs::new(self.store, self.stored, self.claims);
        let outcome = (|| {
            let mut small = None;
            if let Some(pack) = self.pack {
                let id = pack.id();
                match pack.finish(published.storage())? {
                    Finished::Small(bytes) => small = Some((id, bytes)),
                    Finished::Sealed(file) => self.sealed.push((ObjectId::Pack(id), file)),
                }
            }
            if !self.sealed.is_empty() {
                published.put(self.sealed)?;
            }
            // Last, because it cannot be taken back when something else fails.
            match small {
                Some((id, bytes)) => published.append(id, &bytes),
                None => Ok(()),
            }
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
    fn check_room(&self, more: u64) -> Result<(), BlobError> {
        match self.total.checked_add(more) {
            Some(total) if total <= self.max_total => Ok(()),
            _ => Err(BlobError::TooLarge {
                max: self.max_total,
            }),
        }
    }

    /// Takes a complete small content.
    fn take_small(&mut self, digest: Digest, content: Bytes) -> Result<(), BlobError> {
        self.total += content.len() as u64;
        if !self.seen.insert(digest) {
            return Ok(());
        }
        self.want(digest);
        self.pending_bytes += content.len();
        self.pending.push((digest, content));
        if self.pending.len() >= MAX_PENDING || self.pending_bytes >= MAX_PENDING_BYTES {
            self.write_pending(None)?;
        }
        Ok(())
    }

    /// Takes a complete large content; `file` is called for its temporary file if it is new.
    fn take_large(
        &mut self,
        digest: Digest,
        size: u64,
        file: impl FnOnce(&dyn ObjectStorage) -> io::Result<BufWriter<NamedTempFile>>,
    ) -> Result<(), BlobError> {
        self.total += size;
        if !self.seen.insert(digest) {
            return Ok(());
        }
        self.want(digest);
        if !self.write_pending(Some(digest))? {
            let storage = &*self.store.storage;
            let sealed = seal(storage, file(storage)?)?;
            let id = UniqueId::new()?;
            self.sealed.push((ObjectId::File(id), sealed));
            self.record(digest, size, BlobLocation::File { id });
        }
        Ok(())
    }

    /// Puts the pending contents that are new into the pack; says whether `also` is known.
    fn write_pending(&mut self, also: Option<Digest>) -> Result<bool, BlobError> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let mut asked: Vec<_> = pending.iter().map(|(digest, _)| *digest).collect();
        asked.extend(also);
        if asked.is_empty() {
            return Ok(false);
        }
        let known = (self.find_known)(&asked).map_err(BlobError::Lookup)?;
        for (digest, content) in pending {
            if known.contains(&digest) {
                continue;
            }
            let location = self.append_to_pack(&content)?;
            self.record(digest, content.len() as u64, location);
            if let Some(watch) = &mut self.watch_new {
                watch(digest, &content);
            }
        }
        Ok(also.is_some_and(|digest| known.contains(&digest)))
    }

    fn append_to_pack(&mut self, content: &[u8]) -> Result<BlobLocation, BlobError> {
        let storage = &*self.store.storage;
        let length = content.len() as u64;
        let is_full =
            |pack: &mut PackWriter| pack.length().saturating_add(length) > storage.max_pack_bytes();
        if let Some(full) = self.pack.take_if(is_full) {
            let id = ObjectId::Pack(full.id());
            self.sealed.push((id, full.seal(storage)?));
        }
        let pack = match &mut self.pack {
            Some(pack) => pack,
            none => none.insert(PackWriter::new(UniqueId::new()?)),
        };
        let offset = pack.append(storage, content)?;
        let id = pack.id();
        Ok(BlobLocation::Pack { id, offset })
    }

    fn record(&mut self, digest: Digest, size: u64, location: BlobLocation) {
        self.stored.push(StoredBlob {
            digest,
            size,
            location,
        });
    }
}

/// Writes one content into a [`Staging`]; made by [`Staging::writer`].
///
/// An error of `write` says like any other `std::io::Write` that nothing of that piece was
/// taken; turned into a [`BlobError`] it tells [`BlobError::TooLarge`] from the rest.
pub struct ContentWriter<'s, 'k> {
    staging: &'s mut Staging<'k>,
    content: Content,
}

impl<'s, 'k> ContentWriter<'s, 'k> {
    pub(super) fn new(staging: &'s mut Staging<'k>) -> Self {
        let content = Content::new(Arc::clone(&staging.store));
        Self { staging, content }
    }

    /// Ends the content and adds it to the staging; returns its digest and size.
    pub fn finish(self) -> Result<(Digest, u64), BlobError> {
        self.staging.adopt(self.content)
    }
}

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let size = self.content.size() + piece.len() as u64;
        self.staging.check_room(size)?;
        self.content.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
