//! A node that the network separates from the database, without a word to either.

use super::installation::{Database, Durability, Installation, Place};
use super::namespaces::Namespaces;
use super::{SLACK, duration};
use crate::bucket::cluster::Node;
use crate::bucket::forwarder::{Bucket, Forwarder};
use crate::support::{Postgres, Server, text, time_until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PROJECT: &str = "lonely";
/// The node that is separated.
const LONELY: usize = 2;
/// A request that needs the database is refused within this time.
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(15);

/// The status of `/readyz` of the platform listener.
async fn readiness(server: &Server) -> u16 {
    let asked = server.ask(&server.platform, "", Method::GET, "/readyz", Value::Null);
    asked.await.unwrap().status.as_u16()
}

/// The status of a call with this key.
async fn call(server: &Server, key: &str) -> u16 {
    let message = json!({"role": "user", "content": "hi"});
    let body = json!({"model": "estrade/echo", "messages": [message]});
    let asked = server.ask(&server.ai, key, Method::POST, "/v1/chat/completions", body);
    asked.await.unwrap().status.as_u16()
}

/// An installation whose last node reaches its database through a router.
struct Separable {
    namespaces: Namespaces,
    database: Postgres,
    installation: Installation,
    _forwarders: [Forwarder; 2],
}

impl Separable {
    async fn start() -> Result<Self, String> {
        let namespaces = Namespaces::create()?;
        let database = Postgres::create().await;
        let (start, name) = database.url.rsplit_once('/').unwrap();
        let (user, host) = start.rsplit_once('@').unwrap();
        let line = Forwarder::bind(&namespaces.far_address(), host).await;
        let endpoint = Bucket::of_test().endpoint;
        let bucket = Forwarder::bind(&namespaces.near_address(), &endpoint).await;
        let lonely = Place {
            database: format!("{user}@{}/{name}", line.address()),
            namespace: Some((namespaces.node().into(), namespaces.node_address())),
            bucket: Some(bucket.url()),
        };
        let here = || Place::here(&database.url);
        let places = [here(), here(), lonely];
        let installation = Installation::start_at(places, Durability::Relaxed).await;
        Ok(Self {
            namespaces,
            database,
            installation,
            _forwarders: [line, bucket],
        })
    }
}

/// Calls and visits that need nothing but what a node knows: how many of each, and how long the slowest pair took.
async fn known_goes_on(node: &Node, key: &str, until: Instant) -> (usize, Duration) {
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let began = Instant::now();
        assert_eq!(call(node.server(), key).await, 200);
        assert_eq!(node.visit(PROJECT, "/").await, (200, "before".into()));
        slowest = slowest.max(began.elapsed());
        calls += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (calls, slowest)
}

async fn delete_key(node: &Server, name: &str) {
    let list = node.ai(Method::GET, "/v1/keys", Value::Null).await.json();
    let mut keys = list.as_array().unwrap().iter();
    let key = keys.find(|key| key["name"] == name).unwrap();
    let path = format!("/v1/keys/{}", text(&key["_id"]));
    node.ai(Method::DELETE, &path, Value::Null)
        .await
        .assert(204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_database_does_what_it_can_and_recovers() {
    let separable = match Separable::start().await {
        Ok(separable) => separable,
        Err(why) => {
            eprintln!("skipped: this machine lets nobody make network namespaces: {why}");
            return;
        }
    };
    let (installation, database) = (&separable.installation, &separable.database);
    let (a, c) = (&installation.nodes[0], &installation.nodes[LONELY]);
    let [known, revoked, unknown] = ["known", "revoked", "unknown"];
    let known = installation.create_key(known, json!({})).await;
    let revoked = installation.create_key(revoked, json!({})).await;
    let unknown = installation.create_key(unknown, json!({})).await;
    for key in [&known, &revoked] {
        assert_eq!(call(c.server(), key).await, 200);
    }
    a.server().create_project(PROJECT).await;
    let page = |text: &str| json!([{"path": "index.html", "data": text}]);
    a.deploy_site(PROJECT, page("before")).await;
    c.await_content(PROJECT, "/", "before").await;
    assert_eq!(readiness(c.server()).await, 200);

    let load = installation.put_under_load_at(&[0, 1]).await;
    separable.namespaces.cut();
    let cut = Instant::now();
    time_until(503, || readiness(c.server())).await;
    let unready = cut.elapsed();
    eprintln!("it said that it is not ready {unready:?} after it was cut off");
    assert!(unready < Duration::from_secs(5), "{unready:?}");
    let refused = async {
        let status = call(c.server(), &unknown).await;
        (status, cut.elapsed())
    };
    let deployed = async {
        let status = c.deploy(PROJECT, page("never")).await.status;
        (status.as_u16(), cut.elapsed())
    };
    let others = async {
        a.deploy_site(PROJECT, page("after")).await;
        delete_key(a.server(), "revoked").await;
        assert_eq!(call(a.server(), &revoked).await, 401);
    };
    let goes_on = known_goes_on(c, &known, cut + duration(14, 60));
    let (unknown_key, deploy, (), (calls, slowest)) =
        tokio::join!(refused, deployed, others, goes_on);
    eprintln!(
        "cut off, it answered {calls} calls and as many visits; the slowest pair took {slowest:?}"
    );
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    for (what, (status, took)) in [("an unknown key", unknown_key), ("a deploy", deploy)] {
        eprintln!("{what} got {status} after {took:?}");
        assert!(
            status == 503 && took < MAX_REFUSAL_TIME,
            "{what}: {status} {took:?}"
        );
    }
    // What it had open there is no obstacle for the others.
    for node in [0, 1] {
        assert_eq!(load.observed.failures(node, cut), [""; 0]);
    }
    assert_eq!(call(c.server(), &revoked).await, 200, "it cannot know");

    separable.namespaces.mend();
    let mended = Instant::now();
    let ended = time_until(401, || call(c.server(), &revoked)).await;
    let ready = time_until(200, || readiness(c.server())).await;
    c.await_content(PROJECT, "/", "after").await;
    assert_eq!(call(c.server(), &unknown).await, 200);
    c.deploy_site(PROJECT, page("from it")).await;
    eprintln!(
        "the revoked key was refused {ended:?} after the network was back; ready after {ready:?} more, and all done after {:?}",
        mended.elapsed()
    );
    assert!(mended.elapsed() < SLACK, "{:?}", mended.elapsed());
    let observed = load.stop().await;
    installation.check_calls(&observed, LONELY, database).await;
    let twice = "SELECT release_id FROM events WHERE release_id IS NOT NULL
                 GROUP BY release_id, action, status HAVING COUNT(*) > 1";
    assert_eq!(Database::column(database, twice).await, [""; 0]);
    separable.installation.stop();
    separable.database.drop().await;
}
