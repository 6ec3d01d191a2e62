//! What a crash leaves behind is found, and nothing else is taken for it.

#![expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the file system gave"
)]

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, SystemTime};

use estrade_store::blobs::{BlobStore, LARGE_CONTENT, PlaceId};

use crate::{LARGE, bytes, counts, new_store, publish, stage, store_contents};

fn soon() -> SystemTime {
    SystemTime::now() + Duration::from_mins(1)
}

#[test]
fn orphans_of_a_crash_are_found_once_they_are_old_enough() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept", &bytes(LARGE, 1)]);
    let rows: HashSet<PlaceId> = kept.iter().map(|blob| blob.place.id()).collect();
    // Published, and then the process died: no row, and nobody is left to hold a claim.
    publish(&store, &[b"lost", &bytes(LARGE, 2)]).keep();
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
    let removed = store.remove_orphans(|_| Ok(false), soon()).unwrap();
    assert_eq!(removed.places, 2);
}

#[test]
fn what_a_transaction_needs_is_no_orphan_when_its_caller_is_gone() {
    let (_root, store) = new_store();
    let published = publish(&store, &[b"on the way"]);
    let held = published.hold();
    // A request that was dropped: the transaction that it began goes on without it.
    drop(published);
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
    assert_eq!(counts(root.path()), [1, 0, 2]);

    let store = BlobStore::open(root.path()).unwrap();
    assert_eq!(store.sweep_temporary().unwrap(), 2);
    assert_eq!(store.sweep_temporary().unwrap(), 0);
    assert_eq!(counts(root.path()), [1, 0, 0]);
    store.verify(&kept[0]).unwrap();
}
