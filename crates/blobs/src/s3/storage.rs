//! The bucket as the blob store sees it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use super::blocking::BlockingClient;
use super::cache::Cache;
use super::client::Client;
use super::failure::Failure;
use super::flights::Flights;
use super::listing::Listing;
use super::recent::RecentlyRead;
use super::settings::S3Settings;
use super::shared_put::SharedPut;
use super::{fetch, put, records};
use crate::storage::{CacheStats, Checksum, ObjectEntry, ObjectStorage, PackPart, Record};
use crate::{BlobError, ObjectId, migration_state, owner};

/// No pack is longer: what a cold node fetches for one small file.
const MAX_PACK_BYTES: u64 = 8 << 20;

/// Objects in a bucket.
#[derive(Debug)]
pub(crate) struct S3Storage {
    client: BlockingClient,
    cache: Arc<Cache>,
    flights: Flights,
    shared: SharedPut,
    recent: RecentlyRead,
    /// Whose files the bucket has.
    installation: String,
    /// Whether the bucket has said since the start that its files are ours and have not moved.
    is_admitted: AtomicBool,
}

impl S3Storage {
    /// Opens a bucket; `admit` finds out whether it is `installation`'s own, or makes it so.
    pub(crate) fn open(
        settings: S3Settings,
        installation: &str,
        admit: impl FnOnce(&dyn ObjectStorage, &str) -> Result<(), BlobError>,
    ) -> Result<Self, BlobError> {
        let bucket = describe(&settings, installation);
        let storage = Self::connect(settings, installation)?;
        let admitted =
            admit(&storage, installation).and_then(|()| migration_state::check_settled(&storage));
        match admitted {
            Ok(()) => {
                storage.is_admitted.store(true, Ordering::Release);
                storage.cache.set_bucket(&bucket)?;
            }
            // The owner was seen to be this installation before, and a collector looks again before it removes
            // anything.
            Err(error @ BlobError::Unavailable { .. })
                if storage.client.is_out() && storage.cache.is_of(&bucket)? =>
            {
                tracing::warn!(%error, "serve what is cached until the bucket answers");
            }
            Err(error) => return Err(error),
        }
        Ok(storage)
    }

    /// A bucket for a migration, which finds out by itself what it may do with it.
    pub(crate) fn connect_for_migration(
        settings: S3Settings,
        installation: &str,
    ) -> Result<Self, BlobError> {
        let storage = Self::connect(settings, installation)?;
        storage.is_admitted.store(true, Ordering::Release);
        Ok(storage)
    }

    /// A bucket of which nothing was asked yet.
    fn connect(settings: S3Settings, installation: &str) -> Result<Self, BlobError> {
        let bucket = describe(&settings, installation);
        let cache = Cache::open(&settings.cache_dir, settings.cache_bytes, &bucket)?;
        Ok(Self {
            client: BlockingClient::new(settings)?,
            cache: Arc::new(cache),
            flights: Flights::default(),
            shared: SharedPut::new(MAX_PACK_BYTES),
            recent: RecentlyRead::default(),
            installation: installation.to_owned(),
            is_admitted: AtomicBool::new(false),
        })
    }

    /// Asks the bucket before the first put what could not be asked at the start, when it did not answer. While it was
    /// away, its files may have moved to another place.
    fn check_admission(&self) -> io::Result<()> {
        if !self.is_admitted.load(Ordering::Acquire) {
            owner::check(self, &self.installation)?;
            migration_state::check_settled(self)?;
            self.is_admitted.store(true, Ordering::Release);
        }
        Ok(())
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
        self.check_admission()?;
        Ok(put::put_files(&self.client, &self.cache, objects)?)
    }

    fn max_pack_bytes(&self) -> u64 {
        MAX_PACK_BYTES
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        self.check_admission()?;
        let put =
            |pack, body| put::put_shared(&self.client, &self.cache, ObjectId::Pack(pack), &body);
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
        Ok(self.client.request(|client| async move {
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
            self.client
                .request(|client| async move { fetch::fetch(&client, &cache, id).await })
        };
        self.flights.open(id, || self.cache.open_any(id), fetch)
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        let listing = Listing::new(&self.client);
        Ok(Box::new(listing))
    }

    fn checksum(&self, id: ObjectId) -> io::Result<Option<Checksum>> {
        let head = |client: Arc<Client>| async move {
            let key = client.names.object(id);
            client.checksum(&key).await
        };
        match self.client.request(head) {
            Ok(found) => Ok(Some(found)),
            Err(Failure::Missing) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    fn delete(&self, id: ObjectId) -> io::Result<()> {
        self.cache.remove(id)?;
        let delete = |client: Arc<Client>| async move {
            let key = client.names.object(id);
            client.delete(&key).await
        };
        Ok(self.client.request(delete)?)
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        let read = |client: Arc<Client>| async move { records::read(&client, record).await };
        Ok(self.client.request(read)?.map(Vec::from))
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        let content = Bytes::copy_from_slice(content);
        let create =
            |client: Arc<Client>| async move { records::create(&client, record, content).await };
        Ok(self.client.request(create)?)
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        let content = Bytes::copy_from_slice(content);
        let replace =
            |client: Arc<Client>| async move { records::replace(&client, record, content).await };
        Ok(self.client.request(replace)?)
    }

    fn cache_stats(&self) -> Option<CacheStats> {
        Some(self.cache.stats())
    }
}

/// What a cache must have in common with a bucket to be used for it.
fn describe(settings: &S3Settings, installation: &str) -> String {
    let endpoint = settings.endpoint.as_ref().map(ToString::to_string);
    [
        installation,
        &endpoint.unwrap_or_default(),
        &settings.region,
        &settings.bucket,
        settings.prefix.trim_matches('/'),
    ]
    .join("\n")
}
