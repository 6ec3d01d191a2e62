//! The blob store over a storage like a bucket: objects are put whole, nothing is appended, and who wants an open
//! file gets one from a cache.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use estrade_blobs::storage::{Checksum, PackPart, Record};
use estrade_blobs::{
    BlobError, BlobStore, Digest, DigestSet, ObjectEntry, ObjectId, ObjectStorage, UniqueId,
};
use futures_util::TryStreamExt;
use tempfile::{NamedTempFile, TempDir, TempPath};

use crate::{LARGE, bytes, publish, read_all, soon, stage, store_contents};

const MAX_PACK_BYTES: u64 = 8 << 20;

#[derive(Debug)]
struct Bucket {
    objects: Mutex<HashMap<ObjectId, (Bytes, SystemTime)>>,
    records: Mutex<HashMap<Record, Vec<u8>>>,
    /// Of the node.
    disk: TempDir,
    puts: AtomicU64,
    refuses: AtomicBool,
}

impl Bucket {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            objects: Mutex::default(),
            records: Mutex::default(),
            disk: TempDir::new().unwrap(),
            puts: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
        })
    }

    fn cached(&self, id: ObjectId) -> PathBuf {
        self.disk
            .path()
            .join(id.to_string().replace(':', "-cached-"))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "ages are compared with real times"
    )]
    fn put_one(&self, id: ObjectId, content: Vec<u8>) -> io::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::Error::other("503 Slow Down"));
        }
        self.puts.fetch_add(1, Ordering::Relaxed);
        let object = (content.into(), SystemTime::now());
        assert!(self.objects.lock().unwrap().insert(id, object).is_none());
        Ok(())
    }

    fn get(&self, id: ObjectId) -> io::Result<Bytes> {
        let objects = self.objects.lock().unwrap();
        let object = objects.get(&id).ok_or(ErrorKind::NotFound)?;
        Ok(object.0.clone())
    }

    fn spools(&self) -> usize {
        let entries = fs::read_dir(self.disk.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| !name.to_string_lossy().contains("cached"))
            .count()
    }
}

impl ObjectStorage for Bucket {
    fn create_spool(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::new_in(self.disk.path())
    }

    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath> {
        Ok(spool.into_temp_path())
    }

    fn remove_spools(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        for (id, spool) in objects {
            self.put_one(id, fs::read(&spool)?)?;
        }
        Ok(())
    }

    fn max_pack_bytes(&self) -> u64 {
        MAX_PACK_BYTES
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        let pack = UniqueId::new()?;
        reserved(ObjectId::Pack(pack));
        self.put_one(ObjectId::Pack(pack), bytes.to_vec())?;
        Ok(PackPart {
            pack,
            offset: 0,
            siblings: Arc::new(AtomicU64::new(1)),
        })
    }

    fn discard_part(&self, part: PackPart) -> io::Result<()> {
        self.delete(part.object())
    }

    fn close_pack(&self, _: ObjectId) -> bool {
        false
    }

    fn is_open_pack(&self, _: ObjectId) -> bool {
        false
    }

    fn read_range(&self, id: ObjectId, offset: u64, length: usize) -> io::Result<Bytes> {
        let object = self.get(id)?;
        let start = usize::try_from(offset).unwrap();
        if start + length > object.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(object.slice(start..start + length))
    }

    fn open_local(&self, id: ObjectId) -> io::Result<Option<File>> {
        match File::open(self.cached(id)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, id: ObjectId) -> io::Result<File> {
        if let Some(file) = self.open_local(id)? {
            return Ok(file);
        }
        fs::write(self.cached(id), self.get(id)?)?;
        File::open(self.cached(id))
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        let objects = self.objects.lock().unwrap();
        let entry = |(id, object): (&ObjectId, &(Bytes, SystemTime))| ObjectEntry {
            id: *id,
            size: object.0.len() as u64,
            written: object.1,
        };
        let entries: Vec<_> = objects.iter().map(entry).map(Ok).collect();
        Ok(Box::new(entries.into_iter()))
    }

    fn checksum(&self, id: ObjectId) -> io::Result<Option<Checksum>> {
        let objects = self.objects.lock().unwrap();
        Ok(objects.get(&id).map(|(content, _)| Checksum {
            length: content.len() as u64,
            hash: Some(Digest::of(content)),
        }))
    }

    fn delete(&self, id: ObjectId) -> io::Result<()> {
        self.objects.lock().unwrap().remove(&id);
        Ok(())
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        Ok(self.records.lock().unwrap().get(&record).cloned())
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        let mut records = self.records.lock().unwrap();
        let is_new = !records.contains_key(&record);
        records.entry(record).or_insert_with(|| content.to_vec());
        Ok(is_new)
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        self.records
            .lock()
            .unwrap()
            .insert(record, content.to_vec());
        Ok(())
    }
}

fn new_bucket() -> (Arc<Bucket>, BlobStore) {
    let bucket = Bucket::new();
    let store = BlobStore::with_storage(Arc::clone(&bucket) as Arc<_>, "test").unwrap();
    (bucket, store)
}

#[tokio::test]
async fn contents_of_every_size_read_back() {
    let (bucket, store) = new_bucket();
    let contents = [0, 1, 70_000, LARGE - 1, LARGE, 3 * LARGE].map(|n| bytes(n, 0));
    let blobs = store_contents(&store, &contents.each_ref().map(Vec::as_slice));
    for (blob, content) in blobs.iter().zip(&contents) {
        let is_small = content.len() < LARGE;
        assert!(!is_small || store.read(blob).unwrap() == content);
        let id = blob.location.object();
        assert_eq!(
            store.open_local(id).unwrap().is_some(),
            bucket.cached(id).exists()
        );
        assert!(read_all(&store, blob) == *content);
        assert!(store.open_local(id).unwrap().is_some(), "it was fetched");
        store.verify(blob).unwrap();
        let pieces = store.stream(blob).await.unwrap();
        let pieces: Vec<_> = pieces.try_collect().await.unwrap();
        assert!(pieces.concat() == *content);
    }
    assert_eq!(bucket.spools(), 0);
}

#[test]
fn many_small_contents_are_few_packs() {
    let (bucket, store) = new_bucket();
    let mut staging = stage(&store);
    let contents: Vec<_> = (0..40_u8).map(|seed| bytes(LARGE / 2, seed)).collect();
    for content in &contents {
        staging.add(content).unwrap();
    }
    staging.add(&bytes(2 * LARGE, 1)).unwrap();
    let published = staging.publish().unwrap();
    // 20 MiB in packs of 8, and one large file.
    assert_eq!(bucket.puts.load(Ordering::Relaxed), 3 + 1);
    for entry in store.objects().unwrap() {
        assert!(entry.unwrap().size <= MAX_PACK_BYTES);
    }
    for (blob, content) in published.blobs().iter().zip(&contents) {
        assert!(store.read(blob).unwrap() == content);
    }
    published.discard();
    assert_eq!(store.objects().unwrap().count(), 0);
}

#[test]
fn what_is_refused_leaves_nothing() {
    let (bucket, store) = new_bucket();
    for large in [false, true] {
        let mut staging = stage(&store);
        staging.add(b"small").unwrap();
        if large {
            staging.add(&bytes(LARGE, 1)).unwrap();
        }
        bucket.refuses.store(true, Ordering::Relaxed);
        assert!(matches!(staging.publish(), Err(BlobError::Io(_))));
        bucket.refuses.store(false, Ordering::Relaxed);
        assert_eq!(store.objects().unwrap().count(), 0);
        assert_eq!(bucket.spools(), 0);
    }
}

#[test]
fn a_bucket_has_one_owner_and_its_orphans_go() {
    let (bucket, store) = new_bucket();
    let other = BlobStore::with_storage(Arc::clone(&bucket) as Arc<_>, "other");
    assert!(matches!(other, Err(BlobError::OtherInstallation { .. })));
    let kept = store_contents(&store, &[b"kept"])[0];
    let on_the_way = publish(&store, &[b"on the way", &bytes(LARGE, 2)]);
    let look = || {
        let is_known = |id| Ok(id == kept.location.object());
        let removed = store.remove_orphans(is_known, soon(), Duration::ZERO);
        removed.unwrap().objects
    };
    assert_eq!(look(), 0);
    on_the_way.keep();
    assert_eq!(look(), 2);
    store.verify(&kept).unwrap();
}

#[test]
fn what_is_known_is_not_put() {
    let (bucket, store) = new_bucket();
    let mut staging = store.stage(u64::MAX, |all| {
        Ok(all.iter().copied().collect::<DigestSet>())
    });
    staging.add(b"small").unwrap();
    staging.add(&bytes(LARGE, 1)).unwrap();
    assert!(staging.publish().unwrap().blobs().is_empty());
    assert_eq!(bucket.puts.load(Ordering::Relaxed), 0);
}
