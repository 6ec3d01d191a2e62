//! Contents that are durable and in place, while the database does not know of them yet.

use std::io;
use std::sync::Arc;

use tempfile::TempPath;

use super::claims::Wanted;
use super::disk::Disk;
use super::shared::SharedPart;
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
    disk: Arc<Disk>,
    /// Packs and files of its own.
    objects: Vec<ObjectId>,
    /// What lies in a pack that others have parts of, too.
    shared: Option<SharedPart>,
    blobs: Vec<StoredBlob>,
    /// Also those that were stored already.
    wanted: Arc<Wanted>,
}

impl PublishedBlobs {
    pub(super) fn new(disk: Arc<Disk>, blobs: Vec<StoredBlob>, wanted: Wanted) -> Self {
        Self {
            disk,
            objects: Vec::new(),
            shared: None,
            blobs,
            wanted: Arc::new(wanted),
        }
    }

    pub(super) fn publish(&mut self, synced: TempPath, id: ObjectId) -> io::Result<()> {
        self.disk.claims.add(id);
        self.objects.push(id);
        self.disk.publish(synced, id)
    }

    /// Puts a pack that has no file of its own into the one that small ones share.
    pub(super) fn share(&mut self, pack: UniqueId, bytes: &[u8]) -> io::Result<()> {
        let part = self.disk.append(bytes)?;
        let (id, base) = (part.id, part.offset);
        self.shared = Some(part);
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

    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync(&self.objects)
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
        let objects: Vec<_> = self.claimed().collect();
        for &id in &objects {
            self.disk.claims.add(id);
        }
        PublishedGuard {
            disk: Arc::clone(&self.disk),
            objects,
            _wanted: Arc::clone(&self.wanted),
        }
    }

    fn claimed(&self) -> impl Iterator<Item = ObjectId> {
        let shared = self.shared.iter().map(SharedPart::object);
        self.objects.iter().copied().chain(shared)
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
            if let Err(error) = self.disk.remove(id) {
                tracing::warn!(object = %id, %error, "left an orphaned blob for the next clean-up");
            }
        }
        if let Some(part) = self.shared.take() {
            self.disk.give_up(part);
        }
    }
}

impl Drop for PublishedBlobs {
    fn drop(&mut self) {
        for id in self.claimed() {
            self.disk.claims.release(id);
        }
    }
}

/// PublishedBlobs files that a transaction needs; made by [`PublishedBlobs::hold`].
#[must_use = "move it into the transaction"]
#[derive(Debug)]
pub struct PublishedGuard {
    disk: Arc<Disk>,
    objects: Vec<ObjectId>,
    _wanted: Arc<Wanted>,
}

impl Drop for PublishedGuard {
    fn drop(&mut self) {
        for &id in &self.objects {
            self.disk.claims.release(id);
        }
    }
}
