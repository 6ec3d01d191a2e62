//! Collecting, refusing, publishing and giving up.

use std::fs;
use std::io::{self, Write};
use std::sync::Barrier;

use estrade_blobs::{BlobError, Digest, DigestSet, LookupError, MIN_LARGE_BYTES, StoredBlob};

use crate::{LARGE, NO_LIMIT, bytes, counts, new_store, publish, stage, store_contents};

#[test]
fn each_distinct_content_is_asked_about_and_written_once() {
    let (root, store) = new_store();
    let large = bytes(LARGE, 4);
    let known = Digest::of(b"known");
    let mut questions = Vec::new();
    let mut staging = store.stage(NO_LIMIT, |digests| {
        questions.push(digests.to_vec());
        Ok([known].into_iter().collect())
    });
    for _ in 0..3 {
        staging.add(b"new").unwrap();
        staging.add(b"known").unwrap();
        staging.add(&large).unwrap();
        let mut writer = staging.writer();
        writer.write_all(&large).unwrap();
        writer.finish().unwrap();
    }
    let published = staging.publish().unwrap();

    let new = [Digest::of(b"new"), Digest::of(&large)];
    assert_eq!(questions, [[new[0], known, new[1]]]);
    let digests: Vec<_> = published.blobs().iter().map(|blob| blob.digest).collect();
    assert_eq!(digests, new);
    published.keep();
    assert_eq!(counts(root.path()), [1, 1, 0]);
}

#[test]
fn a_staging_in_which_all_is_known_writes_nothing() {
    let (root, store) = new_store();
    let mut staging = store.stage(NO_LIMIT, |digests| Ok(digests.iter().copied().collect()));
    staging.add(b"small").unwrap();
    staging.add(&bytes(LARGE, 5)).unwrap();
    let published = staging.publish().unwrap();
    assert!(published.blobs().is_empty());
    published.keep();
    assert_eq!(counts(root.path()), [0, 0, 0]);
}

#[test]
fn many_small_contents_are_asked_about_together_and_do_not_pile_up_in_memory() {
    let (root, store) = new_store();
    let mut questions = Vec::new();
    let mut staging = store.stage(NO_LIMIT, |digests| {
        questions.push(digests.len());
        Ok(DigestSet::default())
    });
    for number in 0..300_u32 {
        staging.add(&number.to_be_bytes()).unwrap();
    }
    for seed in 0..4 {
        staging.add(&bytes(LARGE / 2, seed)).unwrap();
    }
    let published = staging.publish().unwrap();
    assert_eq!(published.blobs().len(), 304);
    published.keep();
    assert_eq!(questions, [128, 128, 44 + 2, 2]);
    assert_eq!(counts(root.path()), [1, 0, 0]);
}

#[test]
fn a_failed_lookup_leaves_nothing() {
    let (root, store) = new_store();
    let away = |_: &[Digest]| Err(LookupError::from("database away"));
    let mut staging = store.stage(NO_LIMIT, away);
    staging.add(b"small").unwrap();
    assert!(matches!(staging.publish(), Err(BlobError::Lookup(_))));
    let mut staging = store.stage(NO_LIMIT, away);
    let refused = staging.add(&bytes(LARGE, 1));
    assert!(matches!(refused, Err(BlobError::Lookup(_))));
    drop(staging);
    assert_eq!(counts(root.path()), [0, 0, 0]);
}

#[test]
fn a_dropped_staging_leaves_nothing() {
    let (root, store) = new_store();
    let mut staging = stage(&store);
    staging.add(b"small").unwrap();
    staging.add(&bytes(LARGE, 6)).unwrap();
    // The small one waits in memory.
    assert_eq!(counts(root.path()), [0, 0, 1]);
    drop(staging);
    assert_eq!(counts(root.path()), [0, 0, 0]);
}

#[test]
fn more_than_allowed_is_refused_and_leaves_nothing() {
    let (root, store) = new_store();
    let mut staging = store.stage(10, |_| Ok(DigestSet::default()));
    staging.add(b"12345").unwrap();
    // The same bytes again are written once and counted twice.
    staging.add(b"12345").unwrap();
    assert!(matches!(
        staging.add(b"1"),
        Err(BlobError::TooLarge { max: 10 })
    ));
    staging.add(b"").unwrap();
    drop(staging);
    assert_eq!(counts(root.path()), [0, 0, 0]);
}

#[test]
fn an_endless_stream_is_cut_off_at_the_limit() {
    let (root, store) = new_store();
    let limit = 2 * MIN_LARGE_BYTES;
    let mut staging = store.stage(limit, |_| Ok(DigestSet::default()));
    let error = io::copy(&mut io::repeat(7), &mut staging.writer()).unwrap_err();
    assert!(matches!(
        BlobError::from(error),
        BlobError::TooLarge { max } if max == limit
    ));
    assert_eq!(counts(root.path()), [0, 0, 0]);
    // What was refused does not count.
    staging.add(&bytes(2 * LARGE, 0)).unwrap();
}

#[test]
fn a_failed_publication_leaves_nothing() {
    let (root, store) = new_store();
    let kept = store_contents(&store, &[b"kept"]);
    // A part of a shared pack, and a pack of its own.
    for contents in [1, 3] {
        let mut staging = stage(&store);
        for seed in 0..contents {
            staging.add(&bytes(LARGE / 2, seed)).unwrap();
        }
        staging.add(&bytes(LARGE, 5)).unwrap();
        // The pack can be published, the large file cannot.
        fs::remove_dir(root.path().join("files")).unwrap();
        assert!(matches!(staging.publish(), Err(BlobError::Io(_))));
        fs::create_dir(root.path().join("files")).unwrap();
        assert_eq!(counts(root.path()), [1, 0, 0]);
        let pack = store.objects().unwrap().next().unwrap().unwrap();
        assert_eq!((pack.id, pack.size), (kept[0].location.object(), 4));
    }
}

#[test]
fn discarding_removes_only_what_it_wrote() {
    let (root, store) = new_store();
    let (small, large) = (b"shared".as_slice(), bytes(LARGE, 7));
    let first = publish(&store, &[small, &large]);
    let second = publish(&store, &[small, &large]);
    let kept = second.blobs().to_vec();
    second.keep();
    first.discard();

    assert_eq!(counts(root.path()), [1, 1, 0]);
    for blob in &kept {
        store.verify(blob).unwrap();
    }
}

#[test]
fn discarding_all_leaves_nothing() {
    let (root, store) = new_store();
    let published = publish(&store, &[b"a", b"b", &bytes(LARGE, 8)]);
    let blob = published.blobs()[0];
    published.discard();
    assert_eq!(counts(root.path()), [0, 0, 0]);
    assert!(matches!(store.read(&blob), Err(BlobError::Missing)));
    let next = publish(&store, &[b"next"]);
    store.verify(&next.blobs()[0]).unwrap();
}

#[test]
fn concurrent_stagings_do_not_disturb_each_other() {
    let (root, store) = new_store();
    let shared = bytes(LARGE, 6);
    let start = Barrier::new(8);
    let kept: Vec<Vec<StoredBlob>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u8)
            .map(|seed| {
                let (store, shared, start) = (&store, &shared, &start);
                scope.spawn(move || {
                    start.wait();
                    let own: Vec<_> = (0..200).map(|n| bytes(n * 10, seed)).collect();
                    let mut contents: Vec<&[u8]> = own.iter().map(Vec::as_slice).collect();
                    contents.push(shared);
                    let published = publish(store, &contents);
                    let blobs = published.blobs().to_vec();
                    // Half of them fail to commit.
                    if seed % 2 == 0 {
                        published.keep();
                        blobs
                    } else {
                        published.discard();
                        Vec::new()
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });

    // What is small shares a pack.
    assert_eq!(counts(root.path()), [1, 4, 0]);
    let kept = kept.concat();
    assert_eq!(kept.len(), 4 * 201);
    for blob in &kept {
        store.verify(blob).unwrap();
    }
}
