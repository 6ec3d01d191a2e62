//! What a crash leaves behind is found, and nothing else is taken for it.

#![expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the file system gave"
)]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use estrade_blobs::{BlobError, BlobStore, MIN_LARGE_BYTES, ObjectId};

use crate::{LARGE, bytes, close_packs, counts, new_store, publish, soon, stage, store_contents};

const DAY: Duration = Duration::from_hours(24);

#[test]
fn orphans_of_a_crash_are_found_once_they_are_old_enough() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept", &bytes(LARGE, 1)]);
    let rows: HashSet<ObjectId> = kept.iter().map(|blob| blob.location.object()).collect();
    // PublishedBlobs, and then the process died: no row, and nobody is left to hold a claim.
    let store = BlobStore::open(root.path(), "test").unwrap();
    publish(&store, &[b"lost", &bytes(LARGE, 2)]).keep();
    let store = BlobStore::open(root.path(), "test").unwrap();
    fs::write(root.path().join("files/README"), "not ours").unwrap();
    let is_known = |id| Ok(rows.contains(&id));

    let look = |store: &BlobStore, now| store.remove_orphans(is_known, now, DAY).unwrap();
    // As old as one may be: that says nothing about since when it is an orphan.
    for entry in store.objects().unwrap() {
        age(&root.path().join(path_of(entry.unwrap().id)));
    }
    let (first, margin) = (SystemTime::now(), Duration::from_secs(1));
    assert_eq!(look(&store, first).objects, 0);
    // Another process goes on where this one was.
    let store = BlobStore::open(root.path(), "test").unwrap();
    assert_eq!(look(&store, first + DAY - margin).objects, 0);
    let removed = look(&store, first + DAY + margin);
    assert_eq!((removed.objects, removed.bytes), (2, 4 + MIN_LARGE_BYTES));
    let left: HashSet<_> = store
        .objects()
        .unwrap()
        .map(|entry| entry.unwrap().id)
        .collect();
    assert_eq!(left, rows);
    for blob in &kept {
        store.verify(blob).unwrap();
    }
}

/// Makes a file look as if nobody had written to it for a month.
fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(24 * 30))
        .unwrap();
}

fn path_of(id: ObjectId) -> String {
    match id {
        ObjectId::Pack(id) => format!("packs/{id}.pack"),
        ObjectId::File(id) => format!("files/{id}"),
    }
}

#[test]
fn an_orphan_that_is_known_again_has_another_day() {
    let (_root, store) = new_store();
    let blob = store_contents(&store, &[&bytes(LARGE, 1)])[0];
    let hours = |hours| SystemTime::now() + Duration::from_hours(hours);
    let look = |known: bool, now| {
        let removed = store.remove_orphans(|_| Ok(known), now, Duration::from_hours(24));
        removed.unwrap().objects
    };
    assert_eq!(look(false, hours(1)), 0);
    // The right database was restored, and lost again.
    assert_eq!(look(true, hours(20)), 0);
    assert_eq!(look(false, hours(26)), 0);
    // A database that does not answer changes nothing.
    let down = store.remove_orphans(|_| Err("down".into()), hours(40), Duration::ZERO);
    assert!(down.is_err());
    assert_eq!(look(false, hours(49)), 0);
    store.verify(&blob).unwrap();
    assert_eq!(look(false, hours(51)), 1);
}

#[test]
fn an_orphan_that_another_collector_knew_has_another_day() {
    let (root, here) = new_store();
    let there = BlobStore::open(root.path(), "test").unwrap();
    let blob = store_contents(&here, &[&bytes(LARGE, 1)])[0];
    let hours = |hours| SystemTime::now() + Duration::from_hours(hours);
    let look = |store: &BlobStore, known: bool, now| {
        let removed = store.remove_orphans(|_| Ok(known), now, DAY);
        removed.unwrap().objects
    };
    assert_eq!(look(&here, false, hours(1)), 0);
    assert_eq!(look(&there, true, hours(20)), 0);
    assert_eq!(look(&here, false, hours(26)), 0);
    assert_eq!(look(&there, false, hours(49)), 0);
    here.verify(&blob).unwrap();
    assert_eq!(look(&there, false, hours(51)), 1);
}

#[test]
fn what_another_installation_wrote_is_never_removed() {
    let (root, store) = new_store();
    let blob = store_contents(&store, &[&bytes(LARGE, 1)])[0];
    let refused = BlobStore::open(root.path(), "other");
    assert!(matches!(
        refused,
        Err(BlobError::OtherInstallation { owner }) if owner == "test"
    ));
    // The directory is exchanged under a running server.
    for now_of in ["other", ""] {
        fs::write(root.path().join("installation"), now_of).unwrap();
        let refused = store.remove_orphans(|_| Ok(false), soon(), Duration::ZERO);
        assert!(matches!(refused, Err(BlobError::OtherInstallation { .. })));
    }
    fs::remove_file(root.path().join("installation")).unwrap();
    let refused = store.remove_orphans(|_| Ok(false), soon(), Duration::ZERO);
    assert!(matches!(refused, Err(BlobError::OtherInstallation { .. })));
    store.verify(&blob).unwrap();
    // A store of an earlier version has no owner yet.
    BlobStore::open(root.path(), "test").unwrap();
    let removed = store.remove_orphans(|_| Ok(false), soon(), Duration::ZERO);
    assert_eq!(removed.unwrap().objects, 1);
}

#[test]
fn what_waits_for_its_commit_is_no_orphan() {
    let (_root, store) = new_store();
    let published = publish(&store, &[b"on the way", &bytes(LARGE, 3)]);
    let blobs = published.blobs().to_vec();
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 0);
    for blob in &blobs {
        store.verify(blob).unwrap();
    }
    published.keep();
    // More may come into the pack, until it is closed.
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 1);
    assert_eq!(close_packs(&store), 1);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 1);
}

#[test]
fn what_a_transaction_needs_is_no_orphan_when_its_caller_is_gone() {
    let (_root, store) = new_store();
    let published = publish(&store, &[b"on the way"]);
    let held = published.hold();
    // A request that was dropped: the transaction that it began goes on without it.
    drop(published);
    close_packs(&store);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 0);
    drop(held);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 1);
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

    let store = BlobStore::open(root.path(), "test").unwrap();
    assert_eq!(store.sweep_temporary().unwrap(), 1);
    assert_eq!(store.sweep_temporary().unwrap(), 0);
    assert_eq!(counts(root.path()), [1, 0, 0]);
    store.verify(&kept[0]).unwrap();
}
