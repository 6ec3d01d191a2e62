//! The pack that small stagings share: it grows, and what is in it stays what it was.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use estrade_blobs::{BlobError, BlobStore, StoredBlob};

use crate::{LARGE, bytes, close_packs, counts, new_store, publish, soon, stage, store_contents};

/// Where a content begins and ends.
fn extent(blob: &StoredBlob) -> (u64, u64) {
    let offset = blob.location.offset();
    (offset, offset + blob.size)
}

fn packs(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("packs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_place_that_was_given_up_keeps_its_bytes() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept"])[0];
    // In the middle and at the end; of all sizes that a file system might treat differently.
    let given_up = [1, 2, 3].map(|seed| {
        let published = publish(&store, &[&bytes(LARGE / 4, seed), &[seed], b""]);
        let blobs = published.blobs().to_vec();
        let next = publish(&store, &[&bytes(5000, seed)]);
        published.discard();
        next.discard();
        blobs
    });
    let given_up = given_up.concat();
    let length = fs::metadata(&packs(root.path())[0]).unwrap().len();
    let end = given_up.iter().map(|blob| extent(blob).1).max().unwrap();
    assert!(length >= end, "nothing was cut off");
    let later: Vec<_> = (10..20)
        .flat_map(|seed| store_contents(&store, &[&bytes(LARGE / 4, seed), b"later"]))
        .collect();
    assert_eq!(counts(root.path()), [1, 0, 0]);
    for blob in later.iter().chain(&given_up).chain([&kept]) {
        store.verify(blob).unwrap();
    }
    for blob in &later {
        assert!(extent(blob).0 >= length, "no room is used twice");
    }
}

#[test]
fn a_pack_that_others_have_parts_of_is_never_removed() {
    let (root, store) = new_store();
    let [first, second, third] =
        [b"first".as_slice(), b"second", b"third"].map(|content| publish(&store, &[content]));
    let blobs = [&first, &second, &third].map(|part| part.blobs()[0]);
    first.discard();
    third.discard();
    store.verify(&blobs[1]).unwrap();
    // Also when nobody can add to it any more.
    assert_eq!(close_packs(&store), 1);
    let fourth = publish(&store, &[b"fourth"]);
    assert_ne!(
        fourth.blobs()[0].location.object(),
        blobs[1].location.object()
    );
    fourth.discard();
    store.verify(&blobs[1]).unwrap();
    assert_eq!(counts(root.path()), [1, 0, 0]);
    second.discard();
    assert_eq!(counts(root.path()), [0, 0, 0]);
    assert!(matches!(store.verify(&blobs[1]), Err(BlobError::Missing)));
    let next = store_contents(&store, &[b"next"])[0];
    assert!(
        !blobs
            .map(|it| it.location.object())
            .contains(&next.location.object())
    );
    store.verify(&next).unwrap();
}

#[test]
fn a_part_that_may_be_committed_keeps_its_pack() {
    let (_root, store) = new_store();
    let dropped = publish(&store, &[b"dropped"]);
    let blob = dropped.blobs()[0];
    let other = publish(&store, &[b"other"]);
    // A request that went away in the middle of its commit.
    drop(dropped);
    other.discard();
    store.verify(&blob).unwrap();
}

#[test]
fn stagings_that_come_and_go_at_once_do_not_disturb_each_other() {
    let (root, store) = new_store();
    let start = Barrier::new(8);
    let kept: Vec<StoredBlob> = thread::scope(|scope| {
        let come_and_go = |thread: u8| {
            let (store, start) = (&store, &start);
            move || {
                start.wait();
                let mut kept = Vec::new();
                for round in 0..50_usize {
                    let content = bytes(100 * round + usize::from(thread), thread);
                    let published = publish(store, &[&content, b"in all"]);
                    if round % 3 == 0 {
                        kept.extend_from_slice(published.blobs());
                        published.keep();
                    } else {
                        published.discard();
                    }
                    if round % 20 == 0 {
                        close_packs(store);
                    }
                }
                kept
            }
        };
        let threads: Vec<_> = (0..8).map(|it| scope.spawn(come_and_go(it))).collect();
        let kept = threads.into_iter().map(|it| it.join().unwrap());
        kept.flatten().collect()
    });
    assert_eq!(kept.len(), 8 * 17 * 2);
    for blob in &kept {
        store.verify(blob).unwrap();
    }
    // Nothing is claimed any more but what is open.
    close_packs(&store);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert!(removed.objects > 0);
    assert_eq!(counts(root.path()), [0, 0, 0]);
}

#[test]
fn small_stagings_share_a_pack_until_it_is_full() {
    let (root, store) = new_store();
    let mut stored = Vec::new();
    for number in 0..66_u32 {
        let mut content = bytes(LARGE - 10, 0);
        content[..4].copy_from_slice(&number.to_be_bytes());
        stored.extend(store_contents(&store, &[&content]));
    }
    assert_eq!(counts(root.path()), [2, 0, 0]);
    for entry in store.objects().unwrap() {
        assert!(entry.unwrap().size <= 64 << 20);
    }
    for blob in &stored {
        store.verify(blob).unwrap();
    }
    // The full one is not open any more.
    assert_eq!(close_packs(&store), 1);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 2);
}

#[test]
fn what_is_not_small_has_a_pack_of_its_own() {
    let (root, store) = new_store();
    let shared = store_contents(&store, &[&bytes(LARGE - 2, 1), b"x"]);
    let own = store_contents(&store, &[&bytes(LARGE - 2, 2), b"xy"]);
    assert_eq!(counts(root.path()), [2, 0, 0]);
    let mut bounds: Vec<_> = own.iter().map(extent).collect();
    bounds.sort_unstable();
    assert_eq!(bounds[0].0, 0);
    assert!(!store.close_pack(own[0].location.object()));
    assert!(store.close_pack(shared[0].location.object()));
    for blob in shared.iter().chain(&own) {
        store.verify(blob).unwrap();
    }
}

#[test]
fn nobody_adds_to_a_pack_of_an_earlier_process() {
    let (root, store) = new_store();
    let before = store_contents(&store, &[b"before"])[0];
    // It was killed in the middle of a write.
    let [path] = packs(root.path()).try_into().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"half of a cont", 100).unwrap();
    std::mem::forget(store);
    let length = fs::metadata(&path).unwrap().len();

    let store = BlobStore::open(root.path(), "test").unwrap();
    let after = store_contents(&store, &[b"after"])[0];
    assert_ne!(before.location.object(), after.location.object());
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    store.verify(&before).unwrap();
    store.verify(&after).unwrap();
    // Known by one row it stays, without one it goes; the new one is open.
    let known = before.location.object();
    let removed = store
        .remove_orphans(|id| Ok(id == known), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!(removed.objects, 0);
    let removed = store
        .remove_orphans(|_| Ok(false), soon(), Duration::ZERO)
        .unwrap();
    assert_eq!((removed.objects, removed.bytes), (1, length));
    store.verify(&after).unwrap();
}

#[test]
fn what_was_added_lately_makes_a_pack_young() {
    let (_root, store) = new_store();
    store_contents(&store, &[b"first"]);
    let age = || store.objects().unwrap().next().unwrap().unwrap().written;
    let before = age();
    // The clock of a file system ticks a hundred times a second.
    thread::sleep(Duration::from_millis(50));
    let second = store_contents(&store, &[b"second"])[0];
    let after = age();
    assert!(after > before);
    // As seen by a process that cannot know the claims of this one.
    close_packs(&store);
    let removed = store
        .remove_orphans(|_| Ok(false), after, Duration::from_nanos(1))
        .unwrap();
    assert_eq!(removed.objects, 0, "its commit may be under way");
    store.verify(&second).unwrap();
}

#[test]
fn a_pack_that_somebody_removed_takes_nothing() {
    let (root, store) = new_store();
    store_contents(&store, &[b"first"]);
    for path in packs(root.path()) {
        fs::remove_file(path).unwrap();
    }
    let mut staging = stage(&store);
    staging.add(b"second").unwrap();
    assert!(matches!(staging.publish(), Err(BlobError::Io(_))));
    let third = publish(&store, &[b"third"]);
    store.verify(&third.blobs()[0]).unwrap();
}

#[test]
fn a_pack_that_cannot_be_created_leaves_nothing() {
    let (root, store) = new_store();
    fs::remove_dir(root.path().join("packs")).unwrap();
    let mut staging = stage(&store);
    staging.add(b"small").unwrap();
    staging.add(&bytes(LARGE, 1)).unwrap();
    assert!(matches!(staging.publish(), Err(BlobError::Io(_))));
    fs::create_dir(root.path().join("packs")).unwrap();
    assert_eq!(counts(root.path()), [0, 0, 0]);
    let next = store_contents(&store, &[b"next"])[0];
    store.verify(&next).unwrap();
}
