//! Contents that are durable and in place, while the database does not know of them yet.

use std::io;
use std::sync::Arc;

use tempfile::TempPath;

use super::shared::Shared;
use super::staging_claims::StagingClaims;
use super::storage::{ObjectStorage, PackPart};
use super::{BlobLocation, ObjectId, StoredBlob, UniqueId};

/// What [`Staging::publish`](super::Staging::publish) put in place.
///
/// Hold it until the transaction that inserts its rows has ended. While it lives, the search
/// for orphans leaves its files alone.
///
/// Dropping it removes nothing, on purpose: a future that is cancelled in the middle of a commit
/// does not know whether the commit took place. A file too many is an orphan that is found
/// later, a file too few is a lost release.
#[must_use = "call `keep` after the commit, `discard` if the transaction was rolled back"]
#[derive(Debug)]
pub struct PublishedBlobs {
    store: Arc<Shared>,
    /// Packs and files of its own.
    objects: Vec<ObjectId>,
    /// What lies in a pack that others may have parts of, too.
    part: Option<PackPart>,
    /// These, and the pack of the part.
    claimed: Vec<ObjectId>,
    blobs: Vec<StoredBlob>,
    /// Also those that were stored already.
    claims: Arc<StagingClaims>,
}

impl PublishedBlobs {
    pub(super) fn new(store: Arc<Shared>, blobs: Vec<StoredBlob>, claims: StagingClaims) -> Self {
        Self {
            store,
            objects: Vec::new(),
            part: None,
            claimed: Vec::new(),
            blobs,
            claims: Arc::new(claims),
        }
    }

    pub(super) fn storage(&self) -> &dyn ObjectStorage {
        &*self.store.storage
    }

    /// Puts objects of its own. They are claimed before the search for orphans can meet them.
    pub(super) fn put(&mut self, sealed: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        for &(id, _) in &sealed {
            self.store.claims.add(id);
            self.claimed.push(id);
            self.objects.push(id);
        }
        self.store.storage.put(sealed)
    }

    /// Stores a short pack as a part of one that others share. Its contents move to where that part begins.
    pub(super) fn append(&mut self, pack: UniqueId, bytes: &[u8]) -> io::Result<()> {
        let (claims, claimed) = (&self.store.claims, &mut self.claimed);
        let part = self.store.storage.append_part(bytes, &mut |id| {
            claims.add(id);
            claimed.push(id);
        })?;
        let (id, base) = (part.pack, part.offset);
        self.part = Some(part);
        for blob in &mut self.blobs {
            if let BlobLocation::Pack { id: of, offset } = blob.location
                && of == pack
            {
                let offset = base + offset;
                blob.location = BlobLocation::Pack { id, offset };
            }
        }
        Ok(())
    }

    /// The contents that are new, in the order in which they were added.
    ///
    /// Another release may have committed one of the same digests meanwhile; then its row stays
    /// and the copy that was written here is never read.
    pub fn blobs(&self) -> &[StoredBlob] {
        &self.blobs
    }

    /// Keeps the search for orphans and for garbage away for as long as the transaction that inserts the rows may
    /// take place: move it into that. Its caller may stop waiting, and then this value is dropped
    /// while the transaction goes on.
    pub fn hold(&self) -> PublishedGuard {
        for &id in &self.claimed {
            self.store.claims.add(id);
        }
        PublishedGuard {
            store: Arc::clone(&self.store),
            claimed: self.claimed.clone(),
            _claims: Arc::clone(&self.claims),
        }
    }

    /// The rows are committed, or may be: leave the files alone.
    pub fn keep(self) {}

    /// The rows are certainly not committed: remove the files, and give up our part of a shared one. Its bytes
    /// stay until the clean-up comes, as long as others have parts of it.
    ///
    /// Call [`keep`](Self::keep) instead if the outcome is unknown, as after a connection that
    /// broke during the commit.
    pub fn discard(mut self) {
        for &id in &self.objects {
            if let Err(error) = self.store.storage.delete(id) {
                warn_of_orphan(id, &error);
            }
        }
        if let Some(part) = self.part.take() {
            let id = part.object();
            if let Err(error) = self.store.storage.discard_part(part) {
                warn_of_orphan(id, &error);
            }
        }
    }
}

impl Drop for PublishedBlobs {
    fn drop(&mut self) {
        for &id in &self.claimed {
            self.store.claims.release(id);
        }
    }
}

fn warn_of_orphan(object: ObjectId, error: &io::Error) {
    tracing::warn!(%object, %error, "left an orphaned object to garbage collection");
}

/// Published objects that a transaction needs; made by [`PublishedBlobs::hold`].
#[must_use = "move it into the transaction"]
#[derive(Debug)]
pub struct PublishedGuard {
    store: Arc<Shared>,
    claimed: Vec<ObjectId>,
    _claims: Arc<StagingClaims>,
}

impl Drop for PublishedGuard {
    fn drop(&mut self) {
        for &id in &self.claimed {
            self.store.claims.release(id);
        }
    }
}
