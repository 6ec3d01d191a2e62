//! Objects in a bucket of any S3-compatible server.

mod settings;

use super::{BlobError, BlobStore};

pub use settings::{InvalidS3Endpoint, S3Credentials, S3Endpoint, S3Settings};

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

/// Opens the store in a bucket. The [module](self) says how it works.
pub(super) fn open(settings: S3Settings, installation: &str) -> Result<BlobStore, BlobError> {
    let _ = (settings, installation);
    Err(BlobError::Unavailable {
        problem: "buckets are not supported yet".to_owned(),
        source: None,
    })
}
