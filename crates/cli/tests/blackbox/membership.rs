//! What several servers on one PostgreSQL know of each other, while some are killed, stopped and held.

use crate::support::{Home, Postgres, Server, text};
use estrade_testkit::eventually_or;
use reqwest::Method;
use serde_json::Value;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Within this time the others know that a node is down: ten seconds, and five for a machine that is busy.
const DETECTION: Duration = Duration::from_secs(15);
/// Within this time they know what the change feed tells them.
const FEED_DELAY: Duration = Duration::from_secs(2);

/// Homes that share a database and a master key.
struct Cluster {
    database: Postgres,
    key: tempfile::TempDir,
}

impl Cluster {
    async fn create() -> Self {
        Self {
            database: Postgres::create().await,
            key: tempfile::TempDir::new().unwrap(),
        }
    }

    fn start_node(&self, token: &str) -> Member {
        let key = self.key.path().join("master.key");
        let home = Home::new()
            .with("ESTRADE_DATABASE_URL", &*self.database.url)
            .with("ESTRADE_MASTER_KEY_FILE", key.to_str().unwrap());
        let mut server = Server::start(&home);
        if server.token.is_empty() {
            token.clone_into(&mut server.token);
        }
        Member {
            _home: home,
            server,
        }
    }
}

/// A node and its directory.
struct Member {
    _home: Home,
    server: Server,
}

impl Member {
    async fn list(&self) -> Vec<Value> {
        let path = "/v1/admin/nodes";
        let list = self.server.platform(Method::GET, path, Value::Null).await;
        list.assert(200).json()["nodes"].as_array().unwrap().clone()
    }

    /// Its own entry.
    async fn entry(&self) -> Value {
        let mut list = self.list().await;
        list.retain(|node| node["isThisNode"] == true);
        assert_eq!(list.len(), 1, "{list:?}");
        list.remove(0)
    }

    async fn id(&self) -> String {
        text(&self.entry().await["_id"])
    }

    async fn alive(&self) -> String {
        let metrics = self.server.platform(Method::GET, "/metrics", Value::Null);
        let metrics = metrics.await.assert(200).text.clone();
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix("estrade_nodes_alive "));
        line.unwrap().to_owned()
    }

    /// Waits until it says exactly this of the nodes, ids and states; how long that took.
    async fn sees(&self, expected: &[(&str, &str)]) -> Duration {
        let (began, found) = (Instant::now(), RefCell::new(Vec::new()));
        eventually_or(
            || format!("{expected:?}: {:?}\n{}", found.borrow(), self.server.log()),
            || async {
                let list = self.list().await;
                let state = |node: &Value| (text(&node["_id"]), text(&node["state"]));
                let states: Vec<_> = list.iter().map(state).collect();
                let is_so = states.len() == expected.len()
                    && expected.iter().all(|(id, state)| {
                        states.contains(&((*id).to_owned(), (*state).to_owned()))
                    });
                found.replace(states);
                is_so
            },
        )
        .await;
        began.elapsed()
    }
}

#[tokio::test]
async fn nodes_know_who_is_alive() {
    let cluster = Cluster::create().await;
    let a = cluster.start_node("");
    let token = a.server.token.clone();
    let (b, c) = (cluster.start_node(&token), cluster.start_node(&token));
    let ids = (a.id().await, b.id().await, c.id().await);
    let (first, second, third) = (&*ids.0, &*ids.1, &*ids.2);
    let all = [(first, "alive"), (second, "alive"), (third, "alive")];
    for node in [&a, &b, &c] {
        node.sees(&all).await;
        assert_eq!(node.alive().await, "3");
        let entry = node.entry().await;
        assert_eq!(entry["version"], env!("CARGO_PKG_VERSION"));
        assert_ne!(entry["hostname"], "");
        let address = node.server.platform.strip_prefix("http://").unwrap();
        assert_eq!(entry["addresses"]["platform"], address);
        let address = node.server.ai.strip_prefix("http://").unwrap();
        assert_eq!(entry["addresses"]["ai"], address);
    }

    c.server.kill();
    let down = [(first, "alive"), (second, "alive"), (third, "down")];
    let took = a.sees(&down).await + b.sees(&down).await;
    eprintln!("a node that was killed was down after {took:?}");
    assert!(took < DETECTION, "{took:?}");
    assert_eq!((&*a.alive().await, &*b.alive().await), ("2", "2"));

    b.server.signal("STOP");
    let held = [(first, "alive"), (second, "down"), (third, "down")];
    let took = a.sees(&held).await;
    eprintln!("a node that was held was down after {took:?}");
    assert!(took < DETECTION, "{took:?}");
    assert_eq!(a.alive().await, "1");
    b.server.signal("CONT");
    let took = a.sees(&down).await;
    eprintln!("it was alive again after {took:?}");
    assert!(took < FEED_DELAY, "{took:?}");
    b.sees(&down).await;
    assert_eq!((&*a.alive().await, &*b.alive().await), ("2", "2"));

    // A server that starts again is another node.
    let again = cluster.start_node(&token);
    let fourth = again.id().await;
    let four = [down[0], down[1], down[2], (&*fourth, "alive")];
    assert!(a.sees(&four).await < FEED_DELAY);
    assert_eq!(a.alive().await, "3");
    again.sees(&four).await;

    b.server.stop();
    let left = [down[0], down[2], four[3]];
    let took = a.sees(&left).await;
    eprintln!("a node that was stopped was gone {took:?} after it had ended");
    assert!(took < FEED_DELAY, "{took:?}");
    assert_eq!(a.alive().await, "2");
    again.server.stop();
    a.server.stop();
    cluster.database.drop().await;
}
