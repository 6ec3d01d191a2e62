//! Contents of releases, stored by what they are: named by their BLAKE3 hash, written once,
//! never changed: a file may grow, but what is in it stays as it is until the file is removed.
//!
//! The bytes lie here, the index lies in the database: a row says for each [`Digest`] in which
//! [`BlobLocation`] its content is. A release is stored in this order, so that a crash at any point
//! leaves at worst files that no row names:
//!
//! 1. [`BlobStore::stage`] collects new contents under `tmp/`.
//! 2. [`Staging::publish`] makes them durable and gives them their final names.
//! 3. The caller commits the rows for [`PublishedBlobs::blobs`], or calls [`PublishedBlobs::discard`].
//!
//! ```text
//! <root>/packs/<24 hex>.pack   small contents, back to back; small stagings share one
//! <root>/files/<24 hex>        one large content each
//! <root>/tmp/                  what is being written
//! <root>/installation          whose store this is
//! <root>/orphans               which packs and files are without rows, and since when
//! ```
//!
//! Names on disk are random, not digests. Two stagings that meet the same new content write two
//! copies and the database keeps one row; so a staging that gives up removes only what it alone
//! wrote, or leaves bytes in a shared pack that nobody reads. Every call here blocks, except
//! [`BlobStore::stream`]: use `spawn_blocking`.

mod claims;
mod digest;
mod disk;
mod error;
mod inventory;
mod location;
mod orphans;
mod owner;
mod pack;
mod published;
mod read;
mod shared;
mod staging;
mod writer;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

pub use digest::{BadDigest, Digest, DigestMap, DigestSet};
pub use error::{BlobError, LookupError};
pub use inventory::{ObjectEntry, RemovedOrphans};
pub use location::{BlobLocation, InvalidLocation, ObjectId, StoredBlob, UniqueId};
pub use published::{PublishedBlobs, PublishedGuard};
pub use read::{Part, RandomReader};
pub use staging::{HashedContent, Staging};
pub use writer::{Content, ContentWriter};

use disk::Disk;

/// Contents of at least this many bytes get a file of their own; smaller ones share a pack.
pub const MIN_LARGE_BYTES: u64 = 1 << 20;

/// What is written to find out whether writes succeed: more than a file system has left over in a full block.
pub const PROBE_BYTES: usize = 64 << 10;

/// The blob store of one data directory. Cloning is cheap and shares the store.
#[derive(Clone, Debug)]
pub struct BlobStore {
    disk: Arc<Disk>,
}

impl BlobStore {
    /// Opens the store in `root`, which is created if it does not exist. It belongs to the first installation
    /// that opens it; another one gets [`BlobError::OtherInstallation`].
    ///
    /// One process should open a root once and clone the handle: the clones share the knowledge
    /// of what is published but not yet in the database.
    pub fn open(root: &Path, installation: &str) -> Result<Self, BlobError> {
        let disk = Disk::open(root, installation)?;
        owner::claim(&disk)?;
        Ok(Self {
            disk: Arc::new(disk),
        })
    }

    /// Whether an installation has used the store in `root`: it has an owner, or contents.
    pub fn is_in_use(root: &Path) -> Result<bool, BlobError> {
        owner::is_in_use(root)
    }

    /// Removes what an earlier process left half-written; returns how many files that were.
    ///
    /// Call it at start, before the first [`stage`](Self::stage): it would take away the
    /// temporary files of stagings that are under way.
    pub fn sweep_temporary(&self) -> Result<u64, BlobError> {
        Ok(self.disk.sweep_temporary()?)
    }

    /// Writes a little, and takes it away again: fails where contents could not be written either.
    pub fn probe_write(&self) -> Result<(), BlobError> {
        let mut file = self.disk.new_temporary()?;
        Ok(file.write_all(&vec![0; PROBE_BYTES])?)
    }

    /// Begins to collect contents, together at most `max_total` bytes.
    ///
    /// `find_known` is asked once for each distinct content, for many at a time, which of them are
    /// stored already; those are not written, and [wanted](Self::is_wanted) until the caller has
    /// committed. Another node may not know that, so the committing transaction must check again
    /// that the rows are there.
    pub fn stage<'k>(
        &self,
        max_total: u64,
        find_known: impl FnMut(&[Digest]) -> Result<DigestSet, LookupError> + Send + 'k,
    ) -> Staging<'k> {
        Staging::new(Arc::clone(&self.disk), max_total, Box::new(find_known))
    }

    /// Whether a release on its way through this process counts on a content to be stored.
    pub fn is_wanted(&self, digest: &Digest) -> bool {
        self.disk.wanted.contains(digest)
    }

    /// Begins to receive one content that a staging will [adopt](Staging::adopt) when it is complete.
    pub fn receive(&self) -> Content {
        Content::new(Arc::clone(&self.disk))
    }

    /// Ends the pack that small stagings add to, if it is this one; whether it was. The next ones begin another.
    pub fn close_pack(&self, id: ObjectId) -> bool {
        self.disk.close_shared(id)
    }

    /// Removes a pack or file; that it is gone already is fine.
    ///
    /// Remove the rows that name it first. Who has it open keeps reading.
    pub fn remove_object(&self, id: ObjectId) -> Result<(), BlobError> {
        Ok(self.disk.remove(id)?)
    }
}
