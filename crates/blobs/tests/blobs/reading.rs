//! What was stored reads back, and what does not is told why.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use estrade_blobs::{BlobError, BlobLocation, BlobStore, Digest, MIN_LARGE_BYTES, StoredBlob};
use futures_util::TryStreamExt;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{LARGE, bytes, counts, new_store, read_all, stage, store_contents};

#[test]
fn the_limit_between_small_and_large_is_a_mebibyte() {
    assert_eq!(MIN_LARGE_BYTES, LARGE as u64);
}

#[test]
fn contents_of_every_size_read_back() {
    let (root, store) = new_store();
    let contents = [0, 1, 70_000, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE].map(|n| bytes(n, 0));
    let blobs = store_contents(&store, &contents.each_ref().map(Vec::as_slice));

    assert_eq!(blobs.len(), contents.len());
    for (blob, content) in blobs.iter().zip(&contents) {
        assert_eq!(blob.digest, Digest::of(content));
        assert_eq!(blob.size, content.len() as u64);
        assert!(read_all(&store, blob) == *content);
        store.verify(blob).unwrap();
        let is_file = matches!(blob.location, BlobLocation::File { .. });
        assert_eq!(is_file, content.len() >= LARGE);
        match store.read(blob) {
            Ok(read) => assert!(read == content),
            Err(error) => assert!(is_file && matches!(error, BlobError::TooLarge { .. })),
        }
    }
    assert_eq!(counts(root.path()), [1, 3, 0]);
}

#[test]
fn a_small_content_is_compared_with_its_hash_when_it_is_read() {
    let (root, store) = new_store();
    let blobs = store_contents(&store, &[b"first", b"second"]);
    let packs = fs::read_dir(root.path().join("packs")).unwrap();
    let path = packs.map(|entry| entry.unwrap().path()).next().unwrap();
    let pack = fs::File::options().write(true).open(path).unwrap();
    pack.write_all_at(b"x", blobs[0].location.offset()).unwrap();
    assert!(matches!(store.read(&blobs[0]), Err(BlobError::Damaged)));
    assert_eq!(store.read(&blobs[1]).unwrap(), b"second".as_slice());
}

#[test]
fn a_store_that_is_opened_again_has_its_contents() {
    let (root, store) = new_store();
    let blobs = store_contents(&store, &[b"kept", &bytes(LARGE, 1)]);
    drop(store);
    let store = BlobStore::open(root.path(), "test").unwrap();
    for blob in &blobs {
        let (place, offset) = blob.location.to_columns();
        let location = BlobLocation::from_columns(&place, offset).unwrap();
        store.verify(&StoredBlob { location, ..*blob }).unwrap();
    }
}

/// The layout of every version so far, with a pack that has grown to its full length.
#[test]
fn the_directory_of_an_earlier_version_has_its_contents() {
    let root = TempDir::new().unwrap();
    let [pack, file] = ["0123456789abcdef01234567", "89abcdef0123456789abcdef"];
    for directory in ["packs", "files", "tmp"] {
        fs::create_dir(root.path().join(directory)).unwrap();
    }
    fs::write(root.path().join("installation"), "test").unwrap();
    fs::write(root.path().join("orphans"), format!("pack:{pack} 1\n")).unwrap();
    let (first, last, large) = (b"first".as_slice(), b"last".as_slice(), bytes(LARGE, 1));
    let path = root.path().join(format!("packs/{pack}.pack"));
    let packed = fs::File::create(&path).unwrap();
    let end = (64 << 20) - last.len() as u64;
    packed.write_all_at(first, 0).unwrap();
    packed.write_all_at(last, end).unwrap();
    fs::write(root.path().join(format!("files/{file}")), &large).unwrap();

    let store = BlobStore::open(root.path(), "test").unwrap();
    let rows = [
        (format!("pack:{pack}"), 0, first),
        (format!("pack:{pack}"), end, last),
        (format!("file:{file}"), 0, large.as_slice()),
    ];
    for (place, offset, content) in rows {
        let location = BlobLocation::from_columns(&place, offset.cast_signed()).unwrap();
        let blob = StoredBlob {
            digest: Digest::of(content),
            size: content.len() as u64,
            location,
        };
        store.verify(&blob).unwrap();
        assert!(read_all(&store, &blob) == content);
    }
    // Nothing is added to what an earlier process began.
    store_contents(&store, &[b"new"]);
    assert_eq!(counts(root.path()), [2, 1, 0]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
}

#[tokio::test]
async fn a_stream_yields_the_content_in_pieces() {
    let (_root, store) = new_store();
    let contents = [bytes(0, 0), bytes(200_000, 1), bytes(2 * LARGE, 2)];
    let blobs = store_contents(&store, &contents.each_ref().map(Vec::as_slice));
    for (blob, content) in blobs.iter().zip(&contents) {
        let pieces: Vec<_> = store
            .stream(blob)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(pieces.iter().all(|piece| piece.len() <= 64 * 1024));
        assert!(pieces.concat() == *content);
    }
}

#[test]
fn a_writer_stores_the_same_as_add() {
    let (root, store) = new_store();
    let mut staging = stage(&store);
    let contents = [0, 5, LARGE - 1, LARGE, 2 * LARGE + 7].map(|n| bytes(n, 3));
    for content in &contents {
        let mut writer = staging.writer();
        for piece in content.chunks(10_000) {
            writer.write_all(piece).unwrap();
        }
        let finished = writer.finish().unwrap();
        assert_eq!(finished, (Digest::of(content), content.len() as u64));
        // Already there, whichever way it came.
        assert_eq!(staging.add(content).unwrap(), finished.0);
    }
    // Begun, large enough to be on disk, and forgotten.
    staging.writer().write_all(&bytes(LARGE, 9)).unwrap();

    let published = staging.publish().unwrap();
    assert_eq!(published.blobs().len(), contents.len());
    for (blob, content) in published.blobs().iter().zip(&contents) {
        assert!(read_all(&store, blob) == *content);
    }
    published.keep();
    assert_eq!(counts(root.path()), [1, 2, 0]);
}

#[test]
fn damage_and_loss_are_told_apart() {
    let (root, store) = new_store();
    let blobs = store_contents(&store, &[b"first", b"second"]);
    let pack = fs::read_dir(root.path().join("packs"))
        .unwrap()
        .next()
        .unwrap();
    let pack = pack.unwrap().path();

    fs::write(&pack, b"firstSECOND").unwrap();
    store.verify(&blobs[0]).unwrap();
    assert!(matches!(store.verify(&blobs[1]), Err(BlobError::Damaged)));

    fs::write(&pack, b"first").unwrap();
    assert!(matches!(store.read(&blobs[1]), Err(BlobError::Damaged)));
    assert!(matches!(
        store.open_reader(&blobs[1]).err(),
        Some(BlobError::Damaged)
    ));

    store.remove_object(blobs[0].location.object()).unwrap();
    store.remove_object(blobs[0].location.object()).unwrap();
    assert!(matches!(store.read(&blobs[0]), Err(BlobError::Missing)));
    assert!(matches!(store.verify(&blobs[0]), Err(BlobError::Missing)));
}

#[test]
fn only_the_owner_can_read() {
    let parent = TempDir::new().unwrap();
    let root = parent.path().join("blobs");
    let store = BlobStore::open(&root, "test").unwrap();
    store_contents(&store, &[b"secret", &bytes(LARGE, 0)]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    for directory in ["packs", "files", "tmp"].map(|name| root.join(name)) {
        assert_eq!(mode(&directory), 0o700);
        for file in fs::read_dir(directory).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
    }
}

fn any_content() -> impl Strategy<Value = Vec<u8>> {
    // Small alphabets make equal contents likely; sizes around the limit make both locations likely.
    prop_oneof![
        8 => proptest::collection::vec(0..3u8, 0..6),
        4 => proptest::collection::vec(any::<u8>(), 0..5_000),
        1 => (LARGE - 2..LARGE + 3, any::<u8>()).prop_map(|(length, seed)| bytes(length, seed)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_list_of_contents_reads_back(
        contents in proptest::collection::vec((any_content(), any::<bool>()), 0..20),
    ) {
        let (_root, store) = new_store();
        let mut staging = stage(&store);
        let mut digests = Vec::new();
        for (content, streamed) in &contents {
            digests.push(if *streamed {
                let mut writer = staging.writer();
                writer.write_all(content).unwrap();
                writer.finish().unwrap().0
            } else {
                staging.add(content).unwrap()
            });
        }
        let published = staging.publish().unwrap();
        let distinct: HashSet<_> = digests.iter().collect();
        prop_assert_eq!(distinct.len(), published.blobs().len());
        for ((content, _), digest) in contents.iter().zip(&digests) {
            let blob = published.blobs().iter().find(|blob| blob.digest == *digest).unwrap();
            prop_assert!(read_all(&store, blob) == *content);
        }
        published.keep();
    }
}
