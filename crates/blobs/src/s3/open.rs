//! Opening a bucket: whose it is, and what a node does that starts while the bucket does not answer.

use std::sync::Arc;

use super::cache::Cache;
use super::client::Client;
use super::flights::Flights;
use super::recent::RecentlyRead;
use super::runtime::OwnRuntime;
use super::shared_put::SharedPut;
use super::{MAX_PACK_BYTES, S3Settings, S3Storage};
use crate::{BlobError, BlobStore, owner};

pub(in super::super) fn open(
    settings: S3Settings,
    installation: &str,
) -> Result<BlobStore, BlobError> {
    let bucket = describe(&settings, installation);
    let storage = S3Storage::new(&settings, &bucket)?;
    match owner::claim(&storage, installation) {
        Ok(()) => storage.cache.set_bucket(&bucket)?,
        // The owner was seen to be this installation before, and a collector looks again before it removes anything.
        Err(error @ BlobError::Unavailable { .. })
            if storage.client.is_out() && storage.cache.is_of(&bucket)? =>
        {
            tracing::warn!(%error, "serve what is cached until the bucket answers");
        }
        Err(error) => return Err(error),
    }
    Ok(BlobStore::of_owned(Arc::new(storage), installation))
}

impl S3Storage {
    fn new(settings: &S3Settings, bucket: &str) -> Result<Self, BlobError> {
        let client = Client::new(settings).map_err(std::io::Error::from)?;
        let cache = Cache::open(&settings.cache_dir, settings.cache_bytes, bucket)?;
        Ok(Self {
            client: Arc::new(client),
            cache: Arc::new(cache),
            flights: Flights::default(),
            shared: SharedPut::new(MAX_PACK_BYTES),
            recent: RecentlyRead::default(),
            runtime: OwnRuntime::new()?,
        })
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
