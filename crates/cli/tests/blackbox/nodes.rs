//! Several servers on one PostgreSQL.

use crate::support::{ADMIN, Home, Postgres, Server, text, time_until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const MAX_DELAY: Duration = Duration::from_secs(1);

/// Two homes that share a database and a master key.
struct Cluster {
    database: Postgres,
    _key: tempfile::TempDir,
    homes: [Home; 2],
}

impl Cluster {
    async fn create() -> Self {
        let database = Postgres::create().await;
        let key = tempfile::TempDir::new().unwrap();
        let path = key.path().join("master.key");
        let homes = [(); 2].map(|()| {
            Home::new()
                .with("ESTRADE_DATABASE_URL", &*database.url)
                .with("ESTRADE_MASTER_KEY_FILE", path.to_str().unwrap())
        });
        Self {
            database,
            _key: key,
            homes,
        }
    }

    fn start(&self) -> [Server; 2] {
        let first = Server::start(&self.homes[0]);
        let mut second = Server::start(&self.homes[1]);
        assert_eq!(second.token, "", "a further node writes no token");
        assert!(second.greeting.contains("estrade token create"));
        second.token.clone_from(&first.token);
        [first, second]
    }
}

/// The status of a call with this key.
async fn infer(server: &Server, key: &str) -> u16 {
    let message = json!({"role": "user", "content": "hi"});
    let body = json!({"model": "estrade/echo", "messages": [message]});
    let path = "/v1/chat/completions";
    let response = server.ask(&server.ai, key, Method::POST, path, body).await;
    response.unwrap().status.as_u16()
}

#[tokio::test]
async fn calls_with_a_key_that_one_node_ends_are_refused_by_the_other_within_a_second() {
    let cluster = Cluster::create().await;
    let [a, b] = cluster.start();
    let mut slowest = Duration::ZERO;
    for round in 0..5 {
        let ends = [
            ("disable", Method::PUT, "", json!({"enabled": false}), 403),
            (
                "limit",
                Method::PUT,
                "",
                json!({"models": ["another"]}),
                403,
            ),
            ("rotate", Method::POST, "/rotate", json!({}), 401),
            ("delete", Method::DELETE, "", Value::Null, 401),
        ];
        for (end, method, path, body, status) in ends {
            let (id, key) = a.create_key(&format!("{end}-{round}")).await;
            assert_eq!((infer(&b, &key).await, infer(&a, &key).await), (200, 200));
            let path = format!("/v1/keys/{id}{path}");
            assert!(a.ai(method, &path, body).await.status.is_success());
            assert_eq!(infer(&a, &key).await, status, "{end} on the same node");
            slowest = slowest.max(time_until(status, || infer(&b, &key)).await);
        }
    }
    eprintln!("a key ended on one node was refused by the other after {slowest:?} at most");
    assert!(slowest < MAX_DELAY, "{slowest:?}");
    a.stop();
    b.stop();
    cluster.database.drop().await;
}

#[tokio::test]
async fn what_one_node_ends_the_other_refuses_within_a_second() {
    let cluster = Cluster::create().await;
    let [a, b] = cluster.start();
    let mut slowest = Duration::ZERO;
    for round in 0..5 {
        // Disabled, rotated, deleted: each stops the key on the other node.
        for (end, status) in [("disable", 403), ("rotate", 401), ("delete", 401)] {
            let (id, key) = a.create_key(&format!("{end}-{round}")).await;
            assert_eq!(b.authorize(&key).await, 200);
            assert_eq!(b.authorize(&key).await, 200, "warm");
            let path = format!("/v1/keys/{id}");
            match end {
                "disable" => {
                    let body = json!({"enabled": false});
                    a.ai(Method::PUT, &path, body).await.assert(200);
                }
                "rotate" => {
                    let rotate = format!("{path}/rotate");
                    a.ai(Method::POST, &rotate, json!({})).await.assert(200);
                }
                _ => {
                    a.ai(Method::DELETE, &path, Value::Null).await.assert(204);
                }
            }
            assert_eq!(a.authorize(&key).await, status, "{end} on the same node");
            slowest = slowest.max(time_until(status, || b.authorize(&key)).await);
        }
    }
    eprintln!("a key ended on one node stopped on the other after {slowest:?} at most");
    assert!(slowest < MAX_DELAY, "{slowest:?}");

    let token = cluster.homes[1].create_token(ADMIN);
    assert_eq!((a.me(&token).await, b.me(&token).await), (200, 200));
    let tokens = a.platform(Method::GET, "/v1/tokens", Value::Null).await;
    let tokens = tokens.json();
    let id = tokens["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "command line")
        .map(|token| text(&token["_id"]))
        .unwrap();
    let path = format!("/v1/tokens/{id}");
    a.platform(Method::DELETE, &path, Value::Null)
        .await
        .assert(204);
    let took = time_until(401, || b.me(&token)).await;
    eprintln!("a token revoked on one node stopped on the other after {took:?}");
    assert!(took < MAX_DELAY, "{took:?}");
    a.stop();
    assert_eq!(b.me(&b.token).await, 200, "it goes on alone");
    b.stop();
    cluster.database.drop().await;
}

#[tokio::test]
async fn both_nodes_see_the_same_things() {
    let cluster = Cluster::create().await;
    let [a, b] = cluster.start();
    a.create_project("shared").await;
    let body = json!({"name": "shared", "platform": "static", "planID": "micro"});
    let taken = b.platform(Method::POST, "/v1/projects", body).await;
    assert_eq!(taken.assert(409).json()["data"]["code"], "project_exists");
    let read = b
        .platform(Method::GET, "/v1/projects/shared", Value::Null)
        .await;
    read.assert(200);
    let (_, key) = b.create_key("from-b").await;
    assert_eq!(a.authorize(&key).await, 200);
    a.stop();
    b.stop();
    cluster.database.drop().await;
}

#[tokio::test]
async fn a_node_with_another_master_key_is_refused() {
    let cluster = Cluster::create().await;
    Server::start(&cluster.homes[0]).stop();
    let stranger = Home::new().with("ESTRADE_DATABASE_URL", &*cluster.database.url);
    // Its own directory has no key, and the database is not new.
    stranger.fail_to_serve().assert(2).assert_says("master.key");
    std::fs::write(stranger.data().join("master.key"), [1; 32]).unwrap();
    let refused = stranger.fail_to_serve();
    refused.assert(2).assert_says("does not open this database");
    assert!(!stranger.data().join("admin.token").exists());
    cluster.database.drop().await;
}

#[test]
fn two_nodes_that_start_at_once_on_a_new_database_agree() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::create());
    let servers = std::thread::scope(|scope| {
        let starts = cluster
            .homes
            .each_ref()
            .map(|home| scope.spawn(|| Server::start(home)));
        starts.map(|start| start.join().unwrap())
    });
    let written: Vec<_> = servers
        .iter()
        .filter(|server| !server.token.is_empty())
        .collect();
    assert_eq!(written.len(), 1, "one of them makes the token");
    for server in &servers {
        assert_eq!(runtime.block_on(server.me(&written[0].token)), 200);
    }
    for server in servers {
        server.stop();
    }
    runtime.block_on(cluster.database.drop());
}
