//! The seam between the blob store and where its objects lie: a [local directory](super::LocalDirectory) or a bucket
//! ([`open_s3`](super::BlobStore::open_s3)).
//!
//! Above it are contents (hashing, staging, packs, claims, the search for orphans); below it are *objects*, which
//! have a name and bytes and nothing else. What an implementation may count on, and what it promises:
//!
//! - **Immutable.** An object is put once, under a random name, and never changes. The one exception is a pack that an
//!   implementation lets grow on its own account ([`append_part`](ObjectStorage::append_part)): bytes that were
//!   handed out stay what they are. An implementation that cannot append puts one pack per call, or one for all
//!   calls that wait at the same moment.
//! - **Durable on return.** When [`put`](ObjectStorage::put) or `append_part` returns, a power cut takes nothing away.
//! - **Spool files are local.** Bytes of unknown length arrive in a file of this node's disk, so that the hash, and
//!   with it the question whether they are needed at all, comes before they are put.
//! - **Reads are local or ranged.** Who serves needs an open file ([`open_local`](ObjectStorage::open_local)): the
//!   directory's own, or that of a cache. Who needs one small content reads a range.
//!
//! Calls block, as their callers do on threads for that; an implementation over the network drives its futures
//! there. `open_local` is the exception: it runs on the edge's workers and must not wait for a network.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::{Digest, ObjectId, UniqueId};

/// Where packs and large files lie. The [module](self) says what all implementations promise.
pub trait ObjectStorage: Debug + Send + Sync + 'static {
    /// A new, empty file (mode 0600) on this node's disk, which is removed unless it is put.
    fn create_spool(&self) -> io::Result<NamedTempFile>;

    /// Ends a spool file and closes it: a staging of many large contents would run out of descriptors otherwise.
    /// An implementation may do here what makes [`put`](Self::put) quick.
    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath>;

    /// Removes the spool files of an earlier process; returns how many there were.
    fn remove_spools(&self) -> io::Result<u64>;

    /// Puts sealed spool files under new names, all at once, so that what they cost together is paid once. All are
    /// durable on return. After an error some of them may be there: the caller deletes every one.
    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()>;

    /// No pack that a staging makes is longer. At least twice [`MIN_LARGE_BYTES`](super::MIN_LARGE_BYTES).
    fn max_pack_bytes(&self) -> u64;

    /// Stores the small contents of one staging (together less than a mebibyte) in a pack that others may share;
    /// durable on return.
    ///
    /// `reserved` is called with the pack before this part of it counts on anybody: from then on the caller's claim
    /// keeps the pack, also if this call fails.
    fn append_part(&self, bytes: &[u8], reserved: &mut dyn FnMut(ObjectId))
    -> io::Result<PackPart>;

    /// Gives up a part that no row will name. The pack goes with the last of its parts; else the bytes stay, and no
    /// other part ever takes their room.
    fn discard_part(&self, part: PackPart) -> io::Result<()>;

    /// Ends a pack that parts are added to; returns whether it was one. The next part begins another.
    fn close_pack(&self, id: ObjectId) -> bool;

    /// Whether parts may still be added to a pack. Once false it stays so, and every part was `reserved` before.
    fn is_open_pack(&self, id: ObjectId) -> bool;

    /// Reads a part of an object. [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the object ends before it does,
    /// [`NotFound`](io::ErrorKind::NotFound) if there is none.
    fn read_range(&self, id: ObjectId, offset: u64, length: usize) -> io::Result<Bytes>;

    /// Opens an object that lies on this node's disk; none if it would have to be fetched. Never waits for a network.
    fn open_local(&self, id: ObjectId) -> io::Result<Option<File>>;

    /// Opens an object, which is fetched to this node's disk first if need be.
    fn open(&self, id: ObjectId) -> io::Result<File>;

    /// Goes through every object, in no order. One that disappears meanwhile is left out.
    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>>;

    /// The length of an object and the hash of its bytes, none if there is no such object. Nothing is fetched for it.
    fn checksum(&self, id: ObjectId) -> io::Result<Option<Checksum>>;

    /// Deletes an object, if it is there. Need not be durable: what comes back is an orphan. Who has it open keeps
    /// reading.
    fn delete(&self, id: ObjectId) -> io::Result<()>;

    /// Reads a record; none if it was never written.
    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>>;

    /// Writes a record that is not there yet, durably; returns false if it is.
    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool>;

    /// Replaces a record as a whole, or makes it; durable on return.
    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()>;

    /// How the cache on this node's disk does, if objects are fetched to one.
    fn cache_stats(&self) -> Option<CacheStats> {
        None
    }
}

/// What a storage holds besides objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The name of the installation whose objects these are.
    Owner,
    /// Which objects are without rows, and since when.
    Orphans,
    /// Whether contents move here from another storage, or have moved from here to another one.
    Migration,
}

impl Record {
    /// The name that implementations give it, beside the objects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "installation",
            Self::Orphans => "orphans",
            Self::Migration => "migration",
        }
    }
}

/// How the cache of a bucket does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads that were answered from this node's disk.
    pub hits: u64,
    /// Reads that had to ask the bucket.
    pub misses: u64,
    /// Objects that made room for others.
    pub evictions: u64,
    /// What the cached objects take now.
    pub bytes: u64,
    /// How much they may take.
    pub capacity: u64,
}

/// What an object is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Its length in bytes.
    pub length: u64,
    /// The BLAKE3 hash of its bytes; none if the storage has lost it.
    pub hash: Option<Digest>,
}

/// One pack or file as the storage has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    pub id: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// When something was written to it for the last time.
    pub written: SystemTime,
}

/// A part of a pack that belongs to one staging.
#[derive(Debug)]
pub struct PackPart {
    pub pack: UniqueId,
    /// Where in the pack the part begins.
    pub offset: u64,
    /// How many parts of the pack were begun and not given up; shared by all of them.
    pub siblings: Arc<AtomicU64>,
}

impl PackPart {
    /// The pack that it is a part of.
    pub const fn object(&self) -> ObjectId {
        ObjectId::Pack(self.pack)
    }
}
