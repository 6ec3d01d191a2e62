//! The cache on a node's disk.

use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;

use estrade_blobs::{BlobError, ObjectId, StoredBlob};
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};

use crate::support::{Bucket, bytes, raw_client};
use crate::{LARGE, MEBIBYTE};

#[test]
fn the_node_that_stored_it_serves_it_without_a_request() {
    let (node, requests) = Bucket::new().forwarded_node();
    let blobs = node.add(&[&bytes(LARGE, 1), &bytes(1000, 2)]);
    for blob in &blobs {
        assert!(node.is_warm(blob));
        node.store().verify(blob).unwrap();
    }
    assert_eq!(requests.count("GET"), 0);
    let stats = node.stats();
    assert_eq!((stats.misses, stats.bytes), (0, MEBIBYTE + 1000));
    assert!(stats.hits >= 4);
}

#[test]
fn many_readers_of_a_cold_object_are_one_request() {
    let bucket = Bucket::new();
    let blob = bucket.node().add(&[&bytes(4 * LARGE, 1)])[0];
    let (there, requests) = bucket.forwarded_node();
    requests.delay(Duration::from_millis(200));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| there.store().verify(&blob).unwrap());
        }
    });
    assert_eq!(requests.count("GET"), 1);
    assert_eq!(there.stats().misses, 1);
}

#[test]
fn the_cache_stays_below_its_size() {
    let bucket = Bucket::new();
    let contents: Vec<_> = (0..4).map(|seed| bytes(2 * LARGE, seed)).collect();
    let contents: Vec<_> = contents.iter().map(Vec::as_slice).collect();
    let blobs = bucket.node().add(&contents);
    let small = bucket.node_with(5 * MEBIBYTE, None);
    let mut evicted_later = small.store().open_reader(&blobs[0]).unwrap();
    for blob in &blobs {
        small.store().verify(blob).unwrap();
        assert!(small.stats().bytes <= 5 * MEBIBYTE);
        assert!(small.cached_files().len() <= 2);
    }
    assert_eq!(small.stats().evictions, 2);
    assert!(!small.is_warm(&blobs[0]) && small.is_warm(&blobs[3]));
    let mut content = Vec::new();
    evicted_later.read_to_end(&mut content).unwrap();
    assert!(content == contents[0], "who has it open keeps reading");
    // What was used last stays.
    assert!(small.is_warm(&blobs[2]));
    small.store().verify(&blobs[1]).unwrap();
    assert!(small.is_warm(&blobs[2]) && !small.is_warm(&blobs[3]));
}

#[test]
fn what_is_longer_than_the_cache_is_served_and_not_kept() {
    let bucket = Bucket::new();
    let blob = bucket.node().add(&[&bytes(3 * LARGE, 1)])[0];
    let small = bucket.node_with(MEBIBYTE, None);
    small.store().verify(&blob).unwrap();
    assert!(!small.is_warm(&blob));
    assert_eq!((small.stats().bytes, small.spools()), (0, 0));
}

#[test]
fn a_restarted_node_checks_what_it_had_and_uses_it() {
    let bucket = Bucket::new();
    let (mut node, requests) = bucket.forwarded_node();
    let blobs = node.add(&[&bytes(LARGE, 1), &bytes(1000, 2)]);
    node.restart().unwrap();
    for blob in &blobs {
        assert!(!node.is_warm(blob), "nobody has looked at its file yet");
        node.store().verify(blob).unwrap();
        assert!(node.is_warm(blob));
    }
    assert_eq!(requests.count("GET"), 0);
    assert_eq!(node.stats().bytes, MEBIBYTE + 1000);
}

#[test]
fn a_cached_file_that_is_damaged_is_fetched_anew() {
    let mut node = Bucket::new().node();
    let content = bytes(LARGE, 1);
    let blob = node.add(&[&content])[0];
    let path = node.cached_files().remove(0);
    let mut damaged = fs::read(&path).unwrap();
    damaged[1000] ^= 1;
    fs::write(&path, &damaged).unwrap();
    node.restart().unwrap();
    assert!(node.read_all(&blob) == content);
    assert_eq!(node.stats().misses, 1);
    // While it runs, a length that has changed and a name that is gone are noticed.
    fs::write(&path, b"short").unwrap();
    assert!(!node.is_warm(&blob));
    assert!(node.read_all(&blob) == content);
    fs::remove_file(&path).unwrap();
    assert!(node.read_all(&blob) == content);
    assert_eq!(node.stats().misses, 3);
    assert_eq!(node.stats().bytes, MEBIBYTE);
}

#[test]
fn another_bucket_does_not_find_the_cache_of_the_first() {
    let (first, second) = (Bucket::new(), Bucket::new());
    let node = first.node();
    node.add(&[&bytes(LARGE, 1)]);
    let (disk, path) = (node.disk_path(), node.cached_files().remove(0));
    let settings = second.settings(&disk, MEBIBYTE, None);
    estrade_blobs::BlobStore::open_s3(settings, "test").unwrap();
    assert!(!path.exists());
}

fn key(bucket: &Bucket, blob: &StoredBlob) -> Path {
    match blob.location.object() {
        ObjectId::Pack(id) => Path::from(format!("{}/packs/{id}", bucket.prefix)),
        ObjectId::File(id) => Path::from(format!("{}/files/{id}", bucket.prefix)),
    }
}

/// Puts other bytes, or another checksum, where the object of a content is.
async fn overwrite(
    bucket: &Bucket,
    blob: &StoredBlob,
    content: Vec<u8>,
    hash: Option<blake3::Hash>,
) {
    let name = Attribute::Metadata("blake3".into());
    let attributes = hash.map(|it| (name, it.to_hex().to_string()));
    let options = PutOptions::from(Attributes::from_iter(attributes));
    let (raw, key) = (raw_client(), key(bucket, blob));
    let put = raw.put_opts(&key, PutPayload::from(content), options).await;
    put.unwrap();
}

#[tokio::test]
async fn an_object_that_is_damaged_in_the_bucket_is_not_served() {
    let bucket = Bucket::new();
    let content = bytes(2 * LARGE, 1);
    let blob = bucket.node().add(&[&content])[0];
    let node = bucket.node();
    let mut damaged = content.clone();
    damaged[7] ^= 1;
    overwrite(&bucket, &blob, damaged, Some(blake3::hash(&content))).await;
    let id = blob.location.object();
    assert!(matches!(
        node.store().open_object(id),
        Err(BlobError::Damaged)
    ));
    overwrite(&bucket, &blob, content.clone(), None).await;
    assert!(matches!(
        node.store().open_object(id),
        Err(BlobError::Damaged)
    ));
    assert_eq!((node.stats().bytes, node.spools()), (0, 0));
    overwrite(
        &bucket,
        &blob,
        content.clone(),
        Some(blake3::hash(&content)),
    )
    .await;
    node.store().verify(&blob).unwrap();
    raw_client().delete(&key(&bucket, &blob)).await.unwrap();
    let cold = bucket.node();
    assert!(matches!(
        cold.store().open_object(id),
        Err(BlobError::Missing)
    ));
    assert!(node.is_warm(&blob));
}
