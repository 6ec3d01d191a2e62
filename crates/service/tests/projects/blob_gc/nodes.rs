//! Nodes that share a database and a bucket of a real S3 server: two deploy while a third collects.

use super::{HISTORY, assert_no_orphans, clean, contents, page};
use crate::acting::{RunningWorker, count, create, finished, owner, try_deploy};
use crate::support::Installation;
use estrade_blobs::{S3Credentials, S3Settings};
use estrade_model::ReleaseId;
use estrade_model::release::ReleaseState;
use estrade_service::bootstrap::BlobsAt;
use estrade_service::gc::blobs::{BlobCollector, CollectedBlobs};
use estrade_service::platform::projects;
use estrade_service::{Core, Scope, Settings};
use estrade_store::installation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::RwLock;
use tokio::task::JoinSet;

/// A prefix of its own in the bucket that `./test` makes, as a node with this cache uses it.
fn bucket(prefix: &str, cache: &TempDir) -> S3Settings {
    let variable = |name: &str| {
        let value = std::env::var(name);
        assert!(value.is_ok(), "{name} is not set: run ./test");
        value.unwrap()
    };
    S3Settings {
        bucket: variable("ESTRADE_TEST_S3_BUCKET"),
        prefix: prefix.to_owned(),
        endpoint: Some(variable("ESTRADE_TEST_S3_ENDPOINT").parse().unwrap()),
        region: "us-east-1".into(),
        path_style: true,
        credentials: S3Credentials::Keys {
            access_key_id: variable("ESTRADE_TEST_S3_KEY"),
            secret_access_key: variable("ESTRADE_TEST_S3_SECRET").into(),
            session_token: None,
        },
        cache_dir: cache.path().to_owned(),
        cache_bytes: 256 << 20,
    }
}

/// A further node; it has nothing cached.
async fn node(at: &Installation, caches: &mut Vec<TempDir>) -> Arc<Core> {
    let cache = TempDir::new().unwrap();
    let installation = installation::name_installation(&at.core.db, String::new()).await;
    let prefix = format!("service-{}", installation.unwrap());
    let blobs = BlobsAt::Bucket(Box::new(bucket(&prefix, &cache)));
    caches.push(cache);
    let settings = Settings {
        release_history: HISTORY,
        skew: Duration::from_mins(10),
        min_orphan_age: Duration::from_hours(1),
        ..Settings::default()
    };
    at.another_core_at(blobs, settings).await
}

/// A node that deploys, and one that looks whether what was deployed is there.
#[derive(Clone)]
struct Deployer {
    core: Arc<Core>,
    other: Arc<Core>,
    ada: Scope,
    /// Hours go by when nobody holds it.
    time: Arc<RwLock<()>>,
    stop: Arc<AtomicBool>,
}

impl Deployer {
    /// Deploys and deletes until told to stop.
    async fn run(self, name: String, seed: u64) {
        let mut random = seed;
        let mut next = move || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        while !self.stop.load(Ordering::Relaxed) {
            create(&self.core, &self.ada, &name).await;
            for _ in 0..6 {
                // Few pages, so that what one node finds stored another one has just forgotten.
                let files: Vec<_> = (0..3)
                    .map(|at| (format!("{at}.html"), page(next() % 8)))
                    .collect();
                self.deploy(&name, &files).await;
            }
            projects::delete_project(&self.core, &self.ada, &name, None)
                .await
                .unwrap();
        }
    }

    async fn deploy(&self, name: &str, files: &[(String, Vec<u8>)]) -> ReleaseId {
        let _stands_still = self.time.read().await;
        let id = loop {
            match try_deploy(&self.core, &self.ada, name, files.to_vec()).await {
                Ok(id) => break id,
                // The third node has deleted the row of a content that this one had found: the client repeats.
                Err(error) => assert_eq!(error.code(), "unavailable", "{error:?}"),
            }
        };
        let release = finished(&self.core, &self.ada, id).await;
        assert_eq!(release.state, ReleaseState::Ready);
        assert!(contents(&self.other, id).await.is_some());
        id
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_in_use_goes_while_two_nodes_deploy_and_a_third_collects() {
    let at = Installation::on_postgres().await;
    let mut caches = Vec::new();
    let [a, b, third] = [
        node(&at, &mut caches).await,
        node(&at, &mut caches).await,
        node(&at, &mut caches).await,
    ];
    let ada = owner(&at, "ada").await;
    let workers = [RunningWorker::start(&a), RunningWorker::start(&b)];
    let mut collector = BlobCollector::new(Arc::clone(&third));
    let (time, stop) = (Arc::new(RwLock::new(())), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (number, (core, other)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        let deployer = Deployer {
            core: Arc::clone(core),
            other: Arc::clone(other),
            ada: ada.clone(),
            time: Arc::clone(&time),
            stop: Arc::clone(&stop),
        };
        tasks.spawn(deployer.run(format!("shop-{number}"), number as u64));
    }
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let min_rounds = if full { 200 } else { 25 };
    let mut total = CollectedBlobs::default();
    for round in 0..10 * min_rounds {
        if round >= min_rounds && total.contents > 0 && total.files > 0 {
            break;
        }
        let alone = time.write().await;
        third.clock.advance(Duration::from_mins(5));
        drop(alone);
        let removed = collector.collect().await.unwrap();
        total.contents += removed.contents;
        total.files += removed.files;
        total.packs += removed.packs;
    }
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert!(total.contents > 0 && total.files > 0, "{total:?}");

    // What is in use now is in the bucket, also for a node that has nothing cached.
    create(&a, &ada, "last").await;
    let last = Deployer {
        core: Arc::clone(&a),
        other: node(&at, &mut caches).await,
        ada: ada.clone(),
        time,
        stop,
    };
    let files = [("index.html".to_owned(), page(1))];
    let id = last.deploy("last", &files).await;
    third.clock.advance(Duration::from_hours(3));
    clean(&third, &mut collector).await;
    let fresh = node(&at, &mut caches).await;
    assert!(contents(&fresh, id).await.is_some());

    projects::delete_project(&a, &ada, "last", None)
        .await
        .unwrap();
    third.clock.advance(Duration::from_hours(2));
    clean(&third, &mut collector).await;
    assert_eq!(count(&third, "SELECT COUNT(*) FROM blobs").await, 0);
    assert_no_orphans(&third, &mut collector).await;
    for worker in workers {
        worker.stop().await;
    }
    at.remove().await;
}
