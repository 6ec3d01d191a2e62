//! Moving contents from one directory to another, step by step.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use estrade_blobs::{
    BlobError, BlobStore, CopyOutcome, Migration, MigrationError, StorageAddress, StoredBlob,
};
use tempfile::TempDir;

use crate::{LARGE, bytes, new_store, read_all, store_contents};

/// The name of a place.
fn name(root: &Path) -> String {
    format!("file://{}", root.display())
}

fn open_as(from: &Path, to: &Path, installation: &str) -> Result<Migration, MigrationError> {
    let at = |root: &Path| StorageAddress::Directory(root.to_owned());
    Migration::open((at(from), &name(from)), (at(to), &name(to)), installation)
}

fn open(from: &Path, to: &Path) -> Migration {
    open_as(from, to, "test").unwrap()
}

fn copy(migration: &Migration, rows: &[StoredBlob]) -> CopyOutcome {
    let object = rows[0].location.object();
    migration.copy_object(object, rows, false).unwrap()
}

fn overwrite(root: &Path, blob: &StoredBlob, with: &[u8]) {
    let object = blob.location.object().to_string();
    let (folder, id) = object.split_once(':').unwrap();
    let path = match folder {
        "pack" => root.join(format!("packs/{id}.pack")),
        _ => root.join(format!("files/{id}")),
    };
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(with, blob.location.offset()).unwrap();
}

#[test]
fn what_was_copied_is_opened_after_the_switch_and_not_before() {
    let (from, source) = new_store();
    let to = TempDir::new().unwrap();
    let contents = [b"small".to_vec(), bytes(LARGE + 7, 1)];
    let blobs: Vec<_> = contents
        .iter()
        .flat_map(|content| store_contents(&source, &[content]))
        .collect();
    let migration = open(from.path(), to.path());
    for blob in &blobs {
        let copied = copy(&migration, &[*blob]);
        assert!(matches!(copied, CopyOutcome::Copied(_)), "{copied:?}");
        assert_eq!(copy(&migration, &[*blob]), CopyOutcome::Present);
    }
    // The one that is being filled is nobody's yet, and the other one goes on.
    let early = BlobStore::open(to.path(), "test");
    assert!(matches!(early, Err(BlobError::Filling { .. })), "{early:?}");
    store_contents(&source, &[b"more"]);
    BlobStore::open(from.path(), "test").unwrap();

    migration.close_source().unwrap();
    for root in [from.path(), to.path()] {
        assert!(BlobStore::open(root, "test").is_err(), "{root:?}");
    }
    assert!(open(from.path(), to.path()).is_source_closed());
    let elsewhere = TempDir::new().unwrap();
    let refused = open_as(from.path(), elsewhere.path(), "test");
    assert!(matches!(refused, Err(MigrationError::MovedSource { .. })));
    migration.reopen_source().unwrap();
    BlobStore::open(from.path(), "test").unwrap();

    migration.close_source().unwrap();
    migration.open_target().unwrap();
    let old = BlobStore::open(from.path(), "test");
    assert!(matches!(old, Err(BlobError::Moved { to: place }) if place == name(to.path())));
    let target = BlobStore::open(to.path(), "test").unwrap();
    for (blob, content) in blobs.iter().zip(contents) {
        assert_eq!(read_all(&target, blob), content);
        target.verify(blob).unwrap();
    }
}

/// Bytes of a shared pack are written out of order, and others come later.
#[test]
fn a_pack_that_has_grown_or_was_filled_is_copied_again() {
    let (from, source) = new_store();
    let to = TempDir::new().unwrap();
    let first = store_contents(&source, &[b"first"]);
    let gap = store_contents(&source, &[b"a gap"]);
    let third = store_contents(&source, &[b"third"]);
    assert_eq!(first[0].location.object(), third[0].location.object());
    // Reserved before the third, and written after it.
    overwrite(from.path(), &gap[0], b"\0\0\0\0\0");
    let migration = open(from.path(), to.path());
    let rows = [first[0], third[0]];
    assert_eq!(copy(&migration, &rows), CopyOutcome::Copied(15));
    assert_eq!(copy(&migration, &rows), CopyOutcome::Present);
    overwrite(from.path(), &gap[0], b"a gap");
    let rows = [first[0], gap[0], third[0]];
    assert_eq!(copy(&migration, &rows), CopyOutcome::Copied(15));
    assert_eq!(copy(&migration, &rows), CopyOutcome::Present);
    let last = store_contents(&source, &[b"last"]);
    assert_eq!(copy(&migration, &rows), CopyOutcome::Present);
    let rows = [first[0], gap[0], third[0], last[0]];
    assert_eq!(copy(&migration, &rows), CopyOutcome::Copied(19));
    migration.open_target().unwrap();
    let target = BlobStore::open(to.path(), "test").unwrap();
    for (blob, content) in rows.iter().zip(["first", "a gap", "third", "last"]) {
        assert_eq!(read_all(&target, blob), content.as_bytes());
    }
}

#[test]
fn what_is_damaged_is_named_and_takes_no_good_copy_away() {
    let (from, source) = new_store();
    let to = TempDir::new().unwrap();
    let small = store_contents(&source, &[b"good", b"bad!"]);
    let large = store_contents(&source, &[&bytes(LARGE, 1), &bytes(LARGE, 2)]);
    let migration = open(from.path(), to.path());
    assert!(matches!(
        copy(&migration, &large[..1]),
        CopyOutcome::Copied(_)
    ));
    overwrite(from.path(), &small[1], b"x");
    for blob in &large {
        overwrite(from.path(), blob, b"xyz");
    }
    let damaged = |contents: &[StoredBlob], copied| CopyOutcome::Damaged {
        contents: contents.iter().map(|blob| blob.digest).collect(),
        copied,
    };
    // The copy is better than what it was made of.
    assert_eq!(copy(&migration, &large[..1]), CopyOutcome::Present);
    for _ in 0..2 {
        assert_eq!(copy(&migration, &large[1..]), damaged(&large[1..], 0));
        assert_eq!(copy(&migration, &small), damaged(&small[1..], 0));
    }
    assert_eq!(fs::read_dir(to.path().join("packs")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(to.path().join("tmp")).unwrap().count(), 0);
    // For the sake of the rest.
    let object = small[0].location.object();
    for copied in [8, 0] {
        let accepted = migration.copy_object(object, &small, true).unwrap();
        assert_eq!(accepted, damaged(&small[1..], copied));
    }
    let missing = store_contents(&source, &[&bytes(LARGE, 3)]);
    source.remove_object(missing[0].location.object()).unwrap();
    assert_eq!(copy(&migration, &missing), damaged(&missing, 0));
    migration.open_target().unwrap();
    let target = BlobStore::open(to.path(), "test").unwrap();
    assert_eq!(read_all(&target, &small[0]), b"good");
    target.verify(&large[0]).unwrap();
}

#[test]
fn places_of_others_and_places_in_use_are_refused() {
    let (from, _source) = new_store();
    let (used, _) = new_store();
    let foreign = TempDir::new().unwrap();
    BlobStore::open(foreign.path(), "other").unwrap();
    let empty = TempDir::new().unwrap();
    let of = |from: &Path, to: &Path| open_as(from, to, "test").map(drop);
    let (from, used, foreign) = (from.path(), used.path(), foreign.path());
    let refused = of(from, from);
    assert!(matches!(refused, Err(MigrationError::SamePlace)));
    let refused = of(from, &from.join("../").join(from.file_name().unwrap()));
    assert!(matches!(refused, Err(MigrationError::TargetInUse(_))));
    let refused = of(from, used);
    assert!(matches!(refused, Err(MigrationError::TargetInUse(_))));
    let refused = of(from, foreign);
    assert!(matches!(
        refused,
        Err(MigrationError::ForeignStorage { .. })
    ));
    let refused = of(foreign, empty.path());
    assert!(matches!(
        refused,
        Err(MigrationError::ForeignStorage { .. })
    ));
    let refused = of(&empty.path().join("nothing"), used);
    assert!(matches!(refused, Err(MigrationError::NoSource(_))));
    // What is not complete is no source.
    of(from, empty.path()).unwrap();
    let refused = of(empty.path(), used);
    assert!(matches!(
        refused,
        Err(MigrationError::IncompleteSource { .. })
    ));
    BlobStore::open(from, "test").unwrap();
    BlobStore::open(used, "test").unwrap();
}
