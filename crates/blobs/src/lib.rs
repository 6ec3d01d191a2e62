//! Contents of releases, stored by what they are: named by their BLAKE3 hash, written once, never changed.
//!
//! The bytes lie in an [`ObjectStorage`] (a [local directory](LocalDirectory); [`storage`] is the seam for others),
//! the index lies in the database: a row says for each [`Digest`] at which [`BlobLocation`] its content is. Small
//! contents lie back to back in packs, large ones are objects of their own.
//!
//! A release is stored in this order:
//!
//! 1. [`BlobStore::stage`] collects new contents, in memory and in spool files.
//! 2. [`Staging::publish`] makes them durable objects under their final names.
//! 3. The caller commits the rows for [`PublishedBlobs::blobs`], or calls [`PublishedBlobs::discard`].
//!
//! # Durability
//!
//! A row is committed after `publish` has returned, and that is after the bytes and the names of all its objects
//! are durable. So no row ever names bytes that a power cut took. The reverse is allowed: bytes without a row are
//! garbage that takes room, and nothing else.
//!
//! # A crash at each point
//!
//! - While contents are staged: spool files stay. [`BlobStore::sweep_temporary`] removes them at the next start.
//! - While they are published: some objects stay without rows, or bytes at the end of a shared pack that no row
//!   names. Objects are orphans: [`BlobStore::remove_orphans`] removes them when they have been without rows for long
//!   enough. Bytes in a pack stay until garbage collection moves what is needed out of it.
//! - Between publishing and the commit: the same.
//! - During the commit, or when the connection broke in it: nobody knows. [`PublishedBlobs::keep`] leaves the objects;
//!   they have rows, or are orphans.
//! - While objects are removed: one that is gone had no row. Rows are deleted first, and objects a grace period
//!   later, so that who has read where a content lies still finds it.
//!
//! # Stagings at the same time
//!
//! Names are random, not digests. Two stagings that meet the same new content write two copies and the database
//! keeps one row; so a staging that gives up removes only what it alone wrote, or leaves bytes in a shared pack that
//! nobody reads. No part of a pack is ever written twice.
//!
//! # Garbage collection
//!
//! It runs beside stagings, and asks the database what is needed. Two kinds of claims protect what the database does
//! not say yet; both are made before the question that they protect from can be asked:
//!
//! - A content that a staging has found to be stored, or is about to store, is [wanted](BlobStore::is_wanted) until
//!   its transaction has ended: its row stays.
//! - An object that was published is claimed until its transaction has ended. The search for orphans asks whether
//!   a pack is open first, then for claims, then the database: once a pack is closed, every part of it has been
//!   claimed; once a claim is gone, its transaction has ended and the database gives the final answer.
//!
//! Other processes do not see these claims. For them an object is young for a grace period after its last write, and
//! the committing transaction checks that the rows it counts on are still there.
//!
//! Every call here blocks, except [`BlobStore::open_local`] and [`BlobStore::stream`]: use `spawn_blocking`.

mod claims;
mod content;
mod digest;
mod directory;
mod error;
mod inventory;
mod location;
mod migration;
mod migration_state;
mod orphans;
mod owner;
mod pack;
mod published;
mod read;
mod s3;
mod shared;
mod staging;
mod staging_claims;
pub mod storage;

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

pub use content::Content;
pub use digest::{BadDigest, Digest, DigestMap, DigestSet};
pub use directory::LocalDirectory;
pub use error::{BlobError, LookupError};
pub use inventory::RemovedOrphans;
pub use location::{
    BlobLocation, InvalidLocation, MIN_LARGE_BYTES, ObjectId, StoredBlob, UniqueId,
};
pub use migration::{CopyOutcome, Migration, MigrationError, StorageAddress};
pub use published::{PublishedBlobs, PublishedGuard};
pub use read::{Part, RandomReader};
pub use s3::{InvalidS3Endpoint, S3Credentials, S3Endpoint, S3Settings};
pub use staging::{ContentWriter, HashedContent, Staging};
pub use storage::{CacheStats, ObjectEntry, ObjectStorage};

use claims::Claims;
use shared::Shared;

/// What is written to find out whether writes succeed: more than a file system has left over in a full block.
pub const PROBE_BYTES: usize = 64 << 10;

/// The blob store of one installation. Cloning is cheap and shares the store.
#[derive(Clone, Debug)]
pub struct BlobStore {
    inner: Arc<Shared>,
}

impl BlobStore {
    /// Opens the store in the local directory `root`, which is created if it does not exist.
    pub fn open(root: &Path, installation: &str) -> Result<Self, BlobError> {
        Self::with_storage(Arc::new(LocalDirectory::open(root)?), installation)
    }

    /// Opens the store in any storage. It belongs to the first installation that opens it; another one gets
    /// [`BlobError::OtherInstallation`]. One whose contents are [moving](Migration) cannot be opened.
    ///
    /// One process should open a storage once and clone the handle: the clones share the knowledge
    /// of what is published but not yet in the database.
    pub fn with_storage(
        storage: Arc<dyn ObjectStorage>,
        installation: &str,
    ) -> Result<Self, BlobError> {
        owner::claim(&*storage, installation)?;
        migration_state::check_settled(&*storage)?;
        Ok(Self::of_owned(storage, installation))
    }

    /// The store in a storage that belongs to `installation`.
    fn of_owned(storage: Arc<dyn ObjectStorage>, installation: &str) -> Self {
        let inner = Shared {
            storage,
            installation: installation.to_owned(),
            claims: Claims::default(),
            wanted: Claims::default(),
            orphans: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Opens the store in a bucket, with a cache on this node's disk.
    ///
    /// It asks the bucket whose it is. A node that has used this bucket before opens it also while the bucket does
    /// not answer, and serves what its cache holds; else that is [`BlobError::Unavailable`].
    pub fn open_s3(settings: S3Settings, installation: &str) -> Result<Self, BlobError> {
        let storage = s3::S3Storage::open(settings, installation, owner::claim)?;
        Ok(Self::of_owned(Arc::new(storage), installation))
    }

    /// The same for an installation that has contents already: a bucket that has no owner is
    /// [`BlobError::NeverUsed`], and stays so.
    pub fn open_used_s3(settings: S3Settings, installation: &str) -> Result<Self, BlobError> {
        let storage = s3::S3Storage::open(settings, installation, owner::require)?;
        Ok(Self::of_owned(Arc::new(storage), installation))
    }

    /// How the cache of a bucket does; none for a local directory.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.inner.storage.cache_stats()
    }

    /// Whether an installation has used the store in the local directory `root`: it has an owner, or contents.
    pub fn is_in_use(root: &Path) -> Result<bool, BlobError> {
        Ok(LocalDirectory::is_in_use(root)?)
    }

    /// Removes what an earlier process left half-written; returns how many files that were.
    ///
    /// Call it at start, before the first [`stage`](Self::stage): it would take away the
    /// temporary files of stagings that are under way.
    pub fn sweep_temporary(&self) -> Result<u64, BlobError> {
        Ok(self.inner.storage.remove_spools()?)
    }

    /// Writes a little, and takes it away again: fails where contents could not be written either.
    pub fn probe_write(&self) -> Result<(), BlobError> {
        let mut file = self.inner.storage.create_spool()?;
        Ok(file.write_all(&vec![0; PROBE_BYTES])?)
    }

    /// Asks the storage for its owner's record: fails with [`BlobError::Unavailable`] while a bucket does not answer.
    pub fn probe_storage(&self) -> Result<(), BlobError> {
        self.inner.storage.read_record(storage::Record::Owner)?;
        Ok(())
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
        Staging::new(Arc::clone(&self.inner), max_total, Box::new(find_known))
    }

    /// Whether a release on its way through this process counts on a content to be stored.
    pub fn is_wanted(&self, digest: &Digest) -> bool {
        self.inner.wanted.contains(digest)
    }

    /// Begins to receive one content that a staging will [adopt](Staging::adopt) when it is complete.
    pub fn receive(&self) -> Content {
        Content::new(Arc::clone(&self.inner))
    }

    /// Ends the pack that small stagings add to, if it is this one; whether it was. The next ones begin another.
    pub fn close_pack(&self, id: ObjectId) -> bool {
        self.inner.storage.close_pack(id)
    }

    /// Removes a pack or file; that it is gone already is fine.
    ///
    /// Remove the rows that name it first. Who has it open keeps reading.
    pub fn remove_object(&self, id: ObjectId) -> Result<(), BlobError> {
        Ok(self.inner.storage.delete(id)?)
    }
}
