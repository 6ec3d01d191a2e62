//! Nodes that share a bucket, each with a cache of its own.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use estrade_blobs::{
    BlobError, BlobStore, CacheStats, DigestSet, PublishedBlobs, S3Credentials, S3Settings,
    Staging, StoredBlob,
};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use tempfile::TempDir;

use crate::forwarder::Forwarder;

pub(crate) const ROOMY: u64 = 1 << 30;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run ./test tests, which starts an S3 server")
    })
}

/// A part of the bucket that no other test uses.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) prefix: String,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        let random = TempDir::new().unwrap();
        let name = random.path().file_name().unwrap().to_string_lossy();
        Self {
            prefix: format!("tests/{}", name.trim_start_matches('.')),
        }
    }

    /// A node that talks to the server directly.
    pub(crate) fn node(&self) -> Node {
        self.node_with(ROOMY, None)
    }

    pub(crate) fn node_with(&self, cache_bytes: u64, via: Option<&Forwarder>) -> Node {
        let disk = TempDir::new().unwrap();
        let settings = self.settings(disk.path(), cache_bytes, via);
        let store = BlobStore::open_s3(settings.clone(), "test").unwrap();
        Node {
            store: Some(store),
            settings,
            disk,
        }
    }

    /// A node whose requests can be counted and cut.
    pub(crate) fn forwarded_node(&self) -> (Node, Forwarder) {
        let forwarder = Forwarder::start(&server_address());
        let node = self.node_with(ROOMY, Some(&forwarder));
        forwarder.forget();
        (node, forwarder)
    }

    pub(crate) fn settings(
        &self,
        cache: &Path,
        cache_bytes: u64,
        via: Option<&Forwarder>,
    ) -> S3Settings {
        let endpoint = match via {
            Some(forwarder) => forwarder.endpoint(),
            None => variable("ESTRADE_TEST_S3_ENDPOINT"),
        };
        S3Settings {
            bucket: variable("ESTRADE_TEST_S3_BUCKET"),
            prefix: self.prefix.clone(),
            endpoint: Some(endpoint.parse().unwrap()),
            region: "us-east-1".to_owned(),
            path_style: true,
            credentials: S3Credentials::Keys {
                access_key_id: variable("ESTRADE_TEST_S3_KEY"),
                secret_access_key: variable("ESTRADE_TEST_S3_SECRET").into(),
                session_token: None,
            },
            cache_dir: cache.to_owned(),
            cache_bytes,
        }
    }
}

/// The bucket as a client sees it that is not the product.
pub(crate) fn raw_client() -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(variable("ESTRADE_TEST_S3_ENDPOINT"))
        .with_allow_http(true)
        .with_bucket_name(variable("ESTRADE_TEST_S3_BUCKET"))
        .with_region("us-east-1")
        .with_access_key_id(variable("ESTRADE_TEST_S3_KEY"))
        .with_secret_access_key(variable("ESTRADE_TEST_S3_SECRET"))
        .build()
        .unwrap()
}

fn server_address() -> String {
    let endpoint = variable("ESTRADE_TEST_S3_ENDPOINT");
    endpoint.trim_start_matches("http://").to_owned()
}

/// A server with a disk of its own.
pub(crate) struct Node {
    store: Option<BlobStore>,
    settings: S3Settings,
    disk: TempDir,
}

impl Node {
    pub(crate) fn store(&self) -> &BlobStore {
        self.store.as_ref().unwrap()
    }

    /// Ends the process and starts it again on the same disk.
    pub(crate) fn restart(&mut self) -> Result<(), BlobError> {
        self.store = None;
        self.store = Some(BlobStore::open_s3(self.settings.clone(), "test")?);
        Ok(())
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.store().cache_stats().unwrap()
    }

    /// The files of cached objects.
    pub(crate) fn cached_files(&self) -> Vec<PathBuf> {
        let folders = ["packs", "files"].map(|name| self.disk.path().join(name));
        let entries = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn disk_path(&self) -> PathBuf {
        self.disk.path().to_owned()
    }

    /// How many files are being written.
    pub(crate) fn spools(&self) -> usize {
        fs::read_dir(self.disk.path().join("tmp")).unwrap().count()
    }

    /// Publishes, and keeps as after a commit.
    pub(crate) fn add(&self, contents: &[&[u8]]) -> Vec<StoredBlob> {
        let published = publish(self.store(), contents).unwrap();
        let blobs = published.blobs().to_vec();
        published.keep();
        blobs
    }

    pub(crate) fn read_all(&self, blob: &StoredBlob) -> Vec<u8> {
        let mut content = Vec::new();
        let mut reader = self.store().open_reader(blob).unwrap();
        reader.read_to_end(&mut content).unwrap();
        content
    }

    pub(crate) fn is_warm(&self, blob: &StoredBlob) -> bool {
        let opened = self.store().open_local(blob.location.object());
        opened.unwrap().is_some()
    }
}

/// A staging for which every content is new.
pub(crate) fn stage(store: &BlobStore) -> Staging<'static> {
    store.stage(u64::MAX, |_| Ok(DigestSet::default()))
}

pub(crate) fn publish(store: &BlobStore, contents: &[&[u8]]) -> Result<PublishedBlobs, BlobError> {
    let mut staging = stage(store);
    for content in contents {
        staging.add(content)?;
    }
    staging.publish()
}

/// A content of this length; different seeds give different contents.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut content);
    content
}

/// Runs something and says how long it took.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    (run(), began.elapsed())
}

/// Tries until it works.
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it never worked");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn is_unavailable<T>(outcome: &Result<T, BlobError>) -> bool {
    matches!(outcome, Err(BlobError::Unavailable { .. }))
}
