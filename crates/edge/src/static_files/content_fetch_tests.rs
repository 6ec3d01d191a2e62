//! Fetches from a storage whose objects are never local and arrive when the test says so.

use super::*;
use bytes::Bytes;
use estrade_blobs::storage::{Checksum, PackPart, Record};
use estrade_blobs::{LocalDirectory, ObjectEntry, ObjectStorage, UniqueId};
use std::io::{self, ErrorKind};
use std::sync::Condvar;
use std::sync::atomic::AtomicUsize;
use tempfile::{NamedTempFile, TempDir, TempPath};

/// A directory whose objects have to be fetched first, which waits for a gate.
#[derive(Debug)]
struct FarStorage {
    directory: LocalDirectory,
    open: Mutex<bool>,
    opened: Condvar,
    /// Objects in the order in which they were fetched.
    fetched: Mutex<Vec<ObjectId>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl FarStorage {
    fn open_gate(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl ObjectStorage for FarStorage {
    fn create_spool(&self) -> io::Result<NamedTempFile> {
        self.directory.create_spool()
    }

    fn seal_spool(&self, spool: NamedTempFile) -> io::Result<TempPath> {
        self.directory.seal_spool(spool)
    }

    fn remove_spools(&self) -> io::Result<u64> {
        self.directory.remove_spools()
    }

    fn put(&self, objects: Vec<(ObjectId, TempPath)>) -> io::Result<()> {
        self.directory.put(objects)
    }

    fn max_pack_bytes(&self) -> u64 {
        self.directory.max_pack_bytes()
    }

    fn append_part(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        self.directory.append_part(bytes, reserved)
    }

    fn discard_part(&self, part: PackPart) -> io::Result<()> {
        self.directory.discard_part(part)
    }

    fn close_pack(&self, id: ObjectId) -> bool {
        self.directory.close_pack(id)
    }

    fn is_open_pack(&self, id: ObjectId) -> bool {
        self.directory.is_open_pack(id)
    }

    fn read_range(&self, id: ObjectId, offset: u64, length: usize) -> io::Result<Bytes> {
        self.directory.read_range(id, offset, length)
    }

    fn open_local(&self, _: ObjectId) -> io::Result<Option<File>> {
        Ok(None)
    }

    fn open(&self, id: ObjectId) -> io::Result<File> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        self.fetched.lock().unwrap().push(id);
        let gate = self.open.lock().unwrap();
        drop(self.opened.wait_while(gate, |open| !*open).unwrap());
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        // Nothing was ever put.
        Err(ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<ObjectEntry>> + '_>> {
        self.directory.list()
    }

    fn checksum(&self, id: ObjectId) -> io::Result<Option<Checksum>> {
        self.directory.checksum(id)
    }

    fn delete(&self, id: ObjectId) -> io::Result<()> {
        self.directory.delete(id)
    }

    fn read_record(&self, record: Record) -> io::Result<Option<Vec<u8>>> {
        self.directory.read_record(record)
    }

    fn create_record(&self, record: Record, content: &[u8]) -> io::Result<bool> {
        self.directory.create_record(record, content)
    }

    fn replace_record(&self, record: Record, content: &[u8]) -> io::Result<()> {
        self.directory.replace_record(record, content)
    }
}

struct Fixture {
    storage: Arc<FarStorage>,
    fetches: Fetches,
    _directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let storage = Arc::new(FarStorage {
            directory: LocalDirectory::open(directory.path()).unwrap(),
            open: Mutex::default(),
            opened: Condvar::new(),
            fetched: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        });
        let far: Arc<dyn ObjectStorage> = Arc::<FarStorage>::clone(&storage);
        let store = BlobStore::with_storage(far, "test").unwrap();
        Self {
            storage,
            fetches: Fetches::new(store),
            _directory: directory,
        }
    }

    fn spawn(
        &self,
        tasks: &mut tokio::task::JoinSet<Result<Arc<File>, ContentError>>,
        owner: u8,
        place: ObjectId,
    ) {
        let fetches = self.fetches.clone();
        tasks.spawn(async move { fetches.fetch(owner_id(owner), place).await });
    }

    async fn until_fetched(&self, count: usize) -> Vec<ObjectId> {
        loop {
            let fetched = self.storage.fetched.lock().unwrap().clone();
            if fetched.len() >= count {
                return fetched;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn owner_id(number: u8) -> OwnerId {
    format!("{number:024x}").parse().unwrap()
}

fn object() -> ObjectId {
    ObjectId::File(UniqueId::new().unwrap())
}

#[tokio::test]
async fn requests_for_the_same_object_wait_for_one_fetch() {
    let fixture = Fixture::new();
    let (place, mut tasks) = (object(), tokio::task::JoinSet::new());
    for number in 0..100 {
        fixture.spawn(&mut tasks, number % 2, place);
    }
    fixture.until_fetched(1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    fixture.storage.open_gate();
    for outcome in tasks.join_all().await {
        assert!(matches!(outcome, Err(ContentError::Missing)), "{outcome:?}");
    }
    assert_eq!(*fixture.storage.fetched.lock().unwrap(), [place]);
}

#[tokio::test]
async fn an_owner_with_many_cold_files_does_not_delay_another() {
    let fixture = Fixture::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        fixture.spawn(&mut tasks, 1, object());
    }
    fixture.until_fetched(MAX_OWNER_FETCHES).await;
    let other = object();
    fixture.spawn(&mut tasks, 2, other);
    let fetched = fixture.until_fetched(MAX_OWNER_FETCHES + 1).await;
    assert_eq!(fetched.last(), Some(&other));
    assert_eq!(fetched.len(), MAX_OWNER_FETCHES + 1);
    fixture.storage.open_gate();
    assert_eq!(tasks.join_all().await.len(), 101);
    let most = fixture.storage.most_at_once.load(Ordering::SeqCst);
    assert_eq!(most, MAX_OWNER_FETCHES + 1);
}

#[tokio::test]
async fn an_object_that_two_owners_share_is_not_behind_all_that_one_of_them_waits_for() {
    let fixture = Fixture::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        fixture.spawn(&mut tasks, 1, object());
    }
    fixture.until_fetched(MAX_OWNER_FETCHES).await;
    let shared = object();
    fixture.spawn(&mut tasks, 1, shared);
    tokio::time::sleep(Duration::from_millis(20)).await;
    fixture.spawn(&mut tasks, 2, shared);
    let fetched = fixture.until_fetched(MAX_OWNER_FETCHES + 1).await;
    assert_eq!(fetched.last(), Some(&shared));
    fixture.storage.open_gate();
    tasks.join_all().await;
}

#[tokio::test]
async fn more_requests_of_an_owner_than_may_wait_are_turned_away_at_once() {
    let fixture = Fixture::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..MAX_OWNER_WAITING {
        fixture.spawn(&mut tasks, 1, object());
    }
    fixture.until_fetched(MAX_OWNER_FETCHES).await;
    while fixture.fetches.0.waiting.try_acquire(owner_id(1)).is_ok() {
        tokio::task::yield_now().await;
    }
    let refused = fixture.fetches.fetch(owner_id(1), object()).await;
    assert!(matches!(refused, Err(ContentError::Busy)), "{refused:?}");
    fixture.storage.open_gate();
    tasks.join_all().await;
    assert!(fixture.fetches.0.running.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_request_does_not_wait_for_ever_and_the_fetch_goes_on() {
    let fixture = Fixture::new();
    let place = object();
    let fetch = fixture.fetches.fetch(owner_id(1), place);
    let waited = timeout(Duration::from_millis(50), fetch).await;
    assert!(waited.is_err());
    let running = &fixture.fetches.0.running;
    assert!(running.lock().unwrap().contains_key(&place));
    fixture.storage.open_gate();
    while !running.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
