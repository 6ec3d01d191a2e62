//! What a crash leaves behind is found, and nothing else is taken for it.

#![expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the file system gave"
)]

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, SystemTime};

use estrade_store::blobs::{BlobStore, LARGE_CONTENT, PlaceId};

use crate::{LARGE, bytes, close_packs, counts, new_store, publish, soon, stage, store_contents};

#[test]
fn orphans_of_a_crash_are_found_once_they_are_old_enough() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept", &bytes(LARGE, 1)]);
    let rows: HashSet<PlaceId> = kept.iter().map(|blob| blob.place.id()).collect();
    // Published, and then the process died: no row, and nobody is left to hold a claim.
    let store = BlobStore::open(root.path()).unwrap();
    publish(&store, &[b"lost", &bytes(LARGE, 2)]).keep();
    let store = BlobStore::open(root.path()).unwrap();
    fs::write(root.path().join("files/README"), "not ours").unwrap();
    let is_known = |id| Ok(rows.contains(&id));

    let long_ago = SystemTime::now() - Duration::from_hours(1);
    let removed = store.remove_orphans(is_known, long_ago).unwrap();
    assert_eq!(removed.places, 0);

    let removed = store.remove_orphans(is_known, soon()).unwrap();
    assert_eq!((removed.places, removed.bytes), (2, 4 + LARGE_CONTENT));
    let left: HashSet<_> = store
        .places()
        .unwrap()
        .map(|entry| entry.unwrap().id)
        .collect();
    assert_eq!(left, rows);
    for blob in &kept {
        store.verify(blob).unwrap();
    }
}

#[test]
fn what_waits_for_its_commit_is_no_orphan() {
    let (_root, store) = new_store();
    let published = publish(&store, &[b"on the way", &bytes(LARGE, 3)]);
    let blobs = published.blobs().to_vec();
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 0);
    for blob in &blobs {
        store.verify(blob).unwrap();
    }
    published.keep();
    // More may come into the pack, until it is closed.
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 1);
    assert_eq!(close_packs(&store), 1);
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 1);
}

#[test]
fn what_a_transaction_needs_is_no_orphan_when_its_caller_is_gone() {
    let (_root, store) = new_store();
    let published = publish(&store, &[b"on the way"]);
    let held = published.hold();
    // A request that was dropped: the transaction that it began goes on without it.
    drop(published);
    close_packs(&store);
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 0);
    drop(held);
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 1);
}

#[test]
fn a_kill_before_publishing_leaves_only_temporary_files() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept"]);
    let mut staging = stage(&store);
    staging.add(b"small").unwrap();
    staging.add(&bytes(LARGE, 4)).unwrap();
    // No destructor runs, as in a process that was killed.
    std::mem::forget(staging);
    assert_eq!(counts(root.path()), [1, 0, 1]);

    let store = BlobStore::open(root.path()).unwrap();
    assert_eq!(store.sweep_temporary().unwrap(), 1);
    assert_eq!(store.sweep_temporary().unwrap(), 0);
    assert_eq!(counts(root.path()), [1, 0, 0]);
    store.verify(&kept[0]).unwrap();
}
