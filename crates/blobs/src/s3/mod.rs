//! Objects in a bucket of any S3-compatible server, read through a [cache](cache) on this node's disk.
//!
//! # Writing
//!
//! A staging is packs of at most 8 MiB and large files. Each is one PUT, or an upload in parts if it is longer than
//! 64 MiB ([`upload`]); the ends of small stagings that wait at the same moment share one ([`shared_put`]). What is
//! acknowledged was answered by the server with success. The spool file of what was put is renamed into the cache, so
//! that the node that deployed serves at once.
//!
//! Nothing counts on conditional requests: some servers ignore the condition. Names are random, so that two nodes
//! never put the same object, and a request that is repeated puts the same bytes again.
//!
//! # Reading
//!
//! Who wants an open file gets one from the cache, where each object is fetched once however many wait for it
//! ([`flights`], [`fetch`]). An object carries the BLAKE3 hash of its bytes as metadata, and the cached file in its
//! name: no byte is served before it was compared. Small contents are read as ranges as long as nobody else wants
//! the same pack.
//!
//! # Outages
//!
//! Requests are repeated with backoff and jitter for about ten seconds ([`retry`]). Then, until the bucket answers
//! again, all that need it fail at once with [`Unavailable`](crate::BlobError::Unavailable) ([`outage`]); what is cached is served.
//!
//! # Garbage collection with many nodes
//!
//! Claims protect objects from the collector of the same process. From that of another node they are protected like
//! this. Let an object be put at P, and its row be committed at C.
//!
//! - *Mark.* The collector lists the bucket, asks the database for each object, and notes when it met one without a
//!   row for the first time: M. An object that is not there yet is not marked, so P ≤ M. The note goes when a row is
//!   met.
//! - *Grace.* It deletes an object only when `max(M, P)` is longer ago than the grace period G, and asks the database
//!   directly before. P is the bucket's, translated by its own `Date` to the collector's clock ([`clock`]): both ends
//!   of the age are measured by one clock, however wrong the nodes' are.
//! - *Commit.* A release that takes longer than G from its first put to its commit could lose an object. G is hours
//!   and the time of an upload is bounded by less; and a commit that was delayed all the same, as by a suspended
//!   machine, is what the next rule is for.
//! - *Reuse.* A staging puts nothing for contents that have rows. The committing transaction checks that these rows
//!   are there still, and rows are deleted a grace period before their objects: so a row that is there when it commits
//!   names an object that is there, too.
//!
//! So an object that a row names is deleted only if its commit took longer than G. One collector runs at a time; a
//! second one would do no harm, as deleting twice is deleting once. A restored database finds its objects for G after
//! they lost their rows. A collector deletes nothing in a bucket whose owner's record is not its installation's.

mod cache;
mod client;
mod clock;
mod failure;
mod fetch;
mod flights;
mod listing;
mod names;
mod open;
mod outage;
mod put;
mod recent;
mod records;
mod retry;
mod runtime;
mod settings;
mod shared_put;
mod upload;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::ObjectId;
use super::storage::{ObjectEntry, ObjectStorage, PackPart, Record};
use cache::Cache;
use client::Client;
use failure::Failure;
use flights::Flights;
use listing::Listing;
use recent::RecentlyRead;
use runtime::OwnRuntime;
use shared_put::SharedPut;

pub(super) use open::open;
pub use settings::{InvalidS3Endpoint, S3Credentials, S3Endpoint, S3Settings};

/// No pack is longer: what a cold node fetches for one small file.
const MAX_PACK_BYTES: u64 = 8 << 20;

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

/// Objects in a bucket.
#[derive(Debug)]
struct S3Storage {
    client: Arc<Client>,
    cache: Arc<Cache>,
    flights: Flights,
    shared: SharedPut,
    recent: RecentlyRead,
    runtime: OwnRuntime,
}

impl S3Storage {
    /// Waits for a request to the bucket.
    fn request<T, R>(&self, make: impl FnOnce(Arc<Client>) -> R) -> Result<T, Failure>
    where
        T: Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.runtime.run(make(Arc::clone(&self.client)))?
    }
}

impl ObjectStorage for S3Storage {
    fn create_spool(&self) -> io::Result<NamedTempFile> {
        self.cache.create_temporary()
    }

    /// Not synced: durable is what the bucket has.
    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath> {
        Ok(spool.into_temp_path())
    }

    fn remove_spools(&self) -> io::Result<u64> {
        self.cache.remove_temporary()
    }

    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        Ok(self.put_files(objects)?)
    }

    fn max_pack_bytes(&self) -> u64 {
        MAX_PACK_BYTES
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        let put = |pack, body| self.put_shared(ObjectId::Pack(pack), body);
        Ok(self.shared.append(bytes, reserved, put)?)
    }

    fn discard_part(&self, part: PackPart) -> io::Result<()> {
        if SharedPut::give_up(&part) {
            self.delete(part.object())?;
        }
        Ok(())
    }

    fn close_pack(&self, id: ObjectId) -> bool {
        self.shared.close(id)
    }

    fn is_open_pack(&self, id: ObjectId) -> bool {
        self.shared.is_open(id)
    }

    /// A pack that is asked for again and again is fetched as a whole.
    fn read_range(&self, id: ObjectId, offset: u64, length: usize) -> io::Result<Bytes> {
        let file = match self.cache.open_any(id)? {
            None if self.recent.is_repeated(id) => Some(self.open(id)?),
            cached => cached,
        };
        if let Some(file) = file {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset)?;
            return Ok(bytes.into());
        }
        if length == 0 {
            return Ok(Bytes::new());
        }
        let end = offset
            .checked_add(length as u64)
            .ok_or(Failure::BeyondEnd)?;
        self.cache.count_miss();
        Ok(self.request(|client| async move {
            let _permit = client.read_permit().await?;
            client
                .get_range(&client.names.object(id), offset..end)
                .await
        })?)
    }

    fn open_local(&self, id: ObjectId) -> io::Result<Option<File>> {
        self.cache.open_verified(id)
    }

    fn open(&self, id: ObjectId) -> io::Result<File> {
        if let Some(file) = self.cache.open_verified(id)? {
            return Ok(file);
        }
        let fetch = || {
            let cache = Arc::clone(&self.cache);
            self.request(|client| async move { fetch::fetch(&client, &cache, id).await })
        };
        self.flights.open(id, || self.cache.open_any(id), fetch)
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        let listing = Listing::new(&self.runtime, Arc::clone(&self.client));
        Ok(Box::new(listing))
    }

    fn delete(&self, id: ObjectId) -> io::Result<()> {
        self.cache.remove(id)?;
        let delete = |client: Arc<Client>| async move {
            let key = client.names.object(id);
            client.delete(&key).await
        };
        Ok(self.request(delete)?)
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        let read = |client: Arc<Client>| async move { records::read(&client, record).await };
        Ok(self.request(read)?.map(Vec::from))
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        let content = Bytes::copy_from_slice(content);
        let create =
            |client: Arc<Client>| async move { records::create(&client, record, content).await };
        Ok(self.request(create)?)
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        let content = Bytes::copy_from_slice(content);
        let replace =
            |client: Arc<Client>| async move { records::replace(&client, record, content).await };
        Ok(self.request(replace)?)
    }

    fn cache_stats(&self) -> Option<CacheStats> {
        Some(self.cache.stats())
    }
}
