//! Moving contents from one bucket to another, and to and from a directory.

use estrade_blobs::{
    BlobError, BlobStore, CopyOutcome, Migration, MigrationError, StorageAddress, StoredBlob,
};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tempfile::TempDir;

use crate::LARGE;
use crate::support::{Bucket, bytes, eventually, publish, raw_client};

/// A place, and the disk for what is on its way.
type Place = (StorageAddress, String);

fn place(bucket: &Bucket, work: &TempDir) -> Place {
    let settings = bucket.settings(&work.path().join(&bucket.prefix), 0, None);
    let name = format!("s3://{}", bucket.prefix);
    (StorageAddress::Bucket(Box::new(settings)), name)
}

fn directory(root: &TempDir) -> Place {
    let name = format!("file://{}", root.path().display());
    (StorageAddress::Directory(root.path().to_owned()), name)
}

fn open(from: &Place, to: &Place) -> Result<Migration, MigrationError> {
    let (from, to) = ((from.0.clone(), &*from.1), (to.0.clone(), &*to.1));
    Migration::open(from, to, "test")
}

/// Moves everything, twice: the second time nothing has to be sent.
fn move_all(from: &Place, to: &Place, blobs: &[StoredBlob]) {
    let migration = open(from, to).unwrap();
    for is_first in [true, false] {
        for blob in blobs {
            let object = blob.location.object();
            let outcome = migration.copy_object(object, &[*blob], false).unwrap();
            match outcome {
                CopyOutcome::Copied(length) => assert!(is_first && length >= blob.size),
                CopyOutcome::Present => assert!(!is_first),
                CopyOutcome::Damaged { .. } => panic!("{blob:?} is damaged"),
            }
        }
    }
    migration.close_source().unwrap();
    migration.open_target().unwrap();
}

#[test]
fn contents_move_from_bucket_to_bucket_to_directory_and_back() {
    let (first, second, third) = (Bucket::new(), Bucket::new(), Bucket::new());
    let (work, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let node = first.node();
    let mut blobs = node.add(&[b"small"]);
    blobs.extend(node.add(&[&bytes(LARGE + 1, 1)]));
    blobs.extend(node.add(&[&bytes(65 * LARGE, 2)]));
    let places = [
        place(&first, &work),
        place(&second, &work),
        directory(&root),
        place(&third, &work),
    ];
    for pair in places.windows(2) {
        move_all(&pair[0], &pair[1], &blobs);
    }
    for bucket in [&first, &second] {
        let disk = TempDir::new().unwrap();
        let refused = BlobStore::open_s3(bucket.settings(disk.path(), 0, None), "test");
        assert!(
            matches!(refused, Err(BlobError::Moved { .. })),
            "{refused:?}"
        );
    }
    let there = third.node();
    for blob in &blobs {
        there.store().verify(blob).unwrap();
    }
}

/// What somebody has copied with another tool is not taken for a copy unless it is one.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_its_hash_is_sent_again() {
    let (bucket, work, root) = (
        Bucket::new(),
        TempDir::new().unwrap(),
        TempDir::new().unwrap(),
    );
    let store = BlobStore::open(root.path(), "test").unwrap();
    let content = bytes(LARGE, 1);
    let mut staging = store.stage(u64::MAX, |_| Ok(estrade_blobs::DigestSet::default()));
    staging.add(&content).unwrap();
    let published = staging.publish().unwrap();
    let blob = published.blobs()[0];
    published.keep();
    let id = blob.location.object().to_string();
    let key = format!("{}/files/{}", bucket.prefix, id.trim_start_matches("file:"));
    let raw = raw_client();
    raw.put(&Path::from(key), content.into()).await.unwrap();
    let (from, to) = (directory(&root), place(&bucket, &work));
    tokio::task::spawn_blocking(move || {
        move_all(&from, &to, &[blob]);
        bucket.node().store().verify(&blob).unwrap();
    })
    .await
    .unwrap();
}

#[test]
fn a_node_that_started_in_an_outage_asks_before_it_puts() {
    let bucket = Bucket::new();
    let (mut node, server) = bucket.forwarded_node();
    let blob = node.add(&[&bytes(LARGE, 1)])[0];
    server.cut();
    node.restart().unwrap();
    let (work, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    move_all(&place(&bucket, &work), &directory(&root), &[blob]);
    server.restore();
    let is_moved = |error: &BlobError| matches!(error, BlobError::Moved { .. });
    for content in [b"small".to_vec(), bytes(LARGE, 2)] {
        eventually(|| publish(node.store(), &[&content]).err().filter(is_moved));
    }
    node.store().verify(&blob).unwrap();
}

#[test]
fn a_bucket_that_should_have_contents_is_not_begun() {
    let bucket = Bucket::new();
    let disk = TempDir::new().unwrap();
    let settings = bucket.settings(disk.path(), 0, None);
    for _ in 0..2 {
        let refused = BlobStore::open_used_s3(settings.clone(), "test");
        assert!(matches!(refused, Err(BlobError::NeverUsed)), "{refused:?}");
    }
    BlobStore::open_s3(settings.clone(), "test").unwrap();
    BlobStore::open_used_s3(settings, "test").unwrap();
}
