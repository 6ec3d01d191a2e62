//! Two nodes that deploy and delete while a third collects garbage: no release loses a content, and what nobody needs
//! goes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use estrade_blobs::{Digest, DigestSet, ObjectId, StoredBlob};

use crate::LARGE;
use crate::support::{Bucket, Node, bytes, raw_client};

/// Longer than any staging here takes to commit.
const GRACE: Duration = Duration::from_secs(4);
const RUN: Duration = Duration::from_secs(15);

/// What the database is in the product: rows of contents, and releases that name them.
#[derive(Default)]
struct Database {
    rows: HashMap<Digest, StoredBlob>,
    releases: VecDeque<Vec<Digest>>,
}

impl Database {
    fn knows(&self, id: ObjectId) -> bool {
        self.rows.values().any(|row| row.location.object() == id)
    }

    /// Inserts the rows that are new, if those that the release counts on are still there.
    fn commit(&mut self, release: &[Digest], new: &[StoredBlob]) -> bool {
        let is_new = |digest: &Digest| new.iter().any(|blob| blob.digest == *digest);
        if !release
            .iter()
            .all(|it| is_new(it) || self.rows.contains_key(it))
        {
            return false;
        }
        for blob in new {
            self.rows.entry(blob.digest).or_insert(*blob);
        }
        self.releases.push_back(release.to_vec());
        true
    }

    /// Deletes the oldest release and the rows that only it needed.
    fn delete_oldest(&mut self) {
        let Some(deleted) = self.releases.pop_front() else {
            return;
        };
        let needed: HashSet<_> = self.releases.iter().flatten().copied().collect();
        for digest in deleted.iter().filter(|it| !needed.contains(it)) {
            self.rows.remove(digest);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the server gave"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Deploys sites that share contents with others of both nodes; returns how many were committed.
fn deploy(node: &Node, database: &Mutex<Database>, has_ended: &AtomicBool, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut committed = 0;
    while !has_ended.load(Ordering::Relaxed) {
        let find_known = |asked: &[Digest]| {
            let database = database.lock().unwrap();
            let known = asked.iter().filter(|it| database.rows.contains_key(it));
            Ok(known.copied().collect::<DigestSet>())
        };
        let mut staging = node.store().stage(u64::MAX, find_known);
        let mut release = Vec::new();
        for _ in 0..random.usize(1..5) {
            let content = bytes(random.usize(1..5000), random.u64(0..30));
            release.push(staging.add(&content).unwrap());
        }
        if random.bool() {
            release.push(staging.add(&bytes(LARGE, random.u64(0..6))).unwrap());
        }
        let published = staging.publish().unwrap();
        thread::sleep(Duration::from_millis(random.u64(0..300)));
        let mut database = database.lock().unwrap();
        if random.u8(0..5) > 0 && database.commit(&release, published.blobs()) {
            published.keep();
            committed += 1;
        } else {
            drop(database);
            published.discard();
        }
    }
    committed
}

#[test]
fn a_collector_takes_nothing_from_nodes_that_deploy() {
    let bucket = Bucket::new();
    let (first, second, collector) = (bucket.node(), bucket.node(), bucket.node());
    let database = Mutex::new(Database::default());
    let has_ended = AtomicBool::new(false);
    let mut removed = 0;
    let collect = |min_age| {
        let is_known = |id| Ok(database.lock().unwrap().knows(id));
        let store = collector.store();
        store
            .remove_orphans(is_known, now(), min_age)
            .unwrap()
            .objects
    };
    let committed = thread::scope(|scope| {
        let nodes = [(&first, 1), (&second, 2)].map(|(node, seed)| {
            let (database, has_ended) = (&database, &has_ended);
            scope.spawn(move || deploy(node, database, has_ended, seed))
        });
        let began = Instant::now();
        while began.elapsed() < RUN {
            removed += collect(GRACE);
            let mut database = database.lock().unwrap();
            while database.releases.len() > 5 {
                database.delete_oldest();
            }
            drop(database);
            thread::sleep(Duration::from_millis(50));
        }
        has_ended.store(true, Ordering::Relaxed);
        nodes.map(|it| it.join().unwrap()).iter().sum::<u64>()
    });
    assert!(committed > 20, "{committed} releases");
    assert!(removed > 0, "nothing was collected meanwhile");
    let reader = bucket.node();
    for row in database.lock().unwrap().rows.values() {
        reader.store().verify(row).unwrap();
    }
    // At last nothing stays that has no row.
    collect(Duration::ZERO);
    let objects = collector.store().objects().unwrap();
    for entry in objects {
        assert!(database.lock().unwrap().knows(entry.unwrap().id));
    }
    for row in database.lock().unwrap().rows.values() {
        assert!(first.store().verify(row).is_ok() && second.store().verify(row).is_ok());
    }
}

#[test]
fn a_collector_leaves_a_bucket_alone_that_is_not_its_own() {
    let bucket = Bucket::new();
    let node = bucket.node();
    node.add(&[b"kept"]);
    let write_owner = async {
        use object_store::ObjectStoreExt;
        let key = object_store::path::Path::from(format!("{}/installation", bucket.prefix));
        raw_client().put(&key, "other".into()).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(write_owner);
    let later = now() + Duration::from_hours(48);
    let refused = node
        .store()
        .remove_orphans(|_| Ok(false), later, Duration::ZERO);
    assert!(refused.is_err());
    assert_eq!(node.store().objects().unwrap().count(), 1);
}
