//! The blob store, through its public face: what is stored reads back, what is given up leaves
//! nothing, and no crash loses or keeps too much.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bucket;
mod crashes;
mod migration;
mod reading;
mod sharing;
mod staging;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use estrade_blobs::{BlobStore, DigestSet, PublishedBlobs, Staging, StoredBlob};
use tempfile::TempDir;

/// The size from which a content has a file of its own.
const LARGE: usize = 1 << 20;
const NO_LIMIT: u64 = u64::MAX;

fn new_store() -> (TempDir, BlobStore) {
    let root = TempDir::new().unwrap();
    let store = BlobStore::open(root.path(), "test").unwrap();
    (root, store)
}

/// A staging for which every content is new.
fn stage(store: &BlobStore) -> Staging<'static> {
    store.stage(NO_LIMIT, |_| Ok(DigestSet::default()))
}

fn publish(store: &BlobStore, contents: &[&[u8]]) -> PublishedBlobs {
    let mut staging = stage(store);
    for content in contents {
        staging.add(content).unwrap();
    }
    staging.publish().unwrap()
}

/// Publishes, and keeps as after a commit.
fn store_contents(store: &BlobStore, contents: &[&[u8]]) -> Vec<StoredBlob> {
    let published = publish(store, contents);
    let blobs = published.blobs().to_vec();
    published.keep();
    blobs
}

fn read_all(store: &BlobStore, blob: &StoredBlob) -> Vec<u8> {
    let mut content = Vec::new();
    let mut reader = store.open_reader(blob).unwrap();
    reader.read_to_end(&mut content).unwrap();
    content
}

/// Ends the packs that new contents are added to; how many there were.
fn close_packs(store: &BlobStore) -> usize {
    let objects = store.objects().unwrap().map(|entry| entry.unwrap().id);
    objects.filter(|id| store.close_pack(*id)).count()
}

/// After everything that was published so far.
#[expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the file system gave"
)]
fn soon() -> SystemTime {
    SystemTime::now() + Duration::from_mins(1)
}

/// How many files lie in a directory of the store.
fn count(root: &Path, directory: &str) -> usize {
    fs::read_dir(root.join(directory)).unwrap().count()
}

/// How many files lie in `packs`, `files` and `tmp`.
fn counts(root: &Path) -> [usize; 3] {
    ["packs", "files", "tmp"].map(|directory| count(root, directory))
}

/// A content of this length; different seeds give different contents.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..=250)
        .map(|byte: u8| byte ^ seed)
        .cycle()
        .take(length)
        .collect()
}
