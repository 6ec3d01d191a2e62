//! Rate limits of an installation: three servers on one PostgreSQL admit what one would.

use crate::support::{Home, Postgres, Server, text};
use estrade_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Homes that share a database and a master key.
struct Cluster {
    database: Postgres,
    key: tempfile::TempDir,
    nodes: Vec<(Home, Arc<Server>)>,
}

impl Cluster {
    async fn start(count: usize) -> Self {
        let mut cluster = Self {
            database: Postgres::create().await,
            key: tempfile::TempDir::new().unwrap(),
            nodes: Vec::new(),
        };
        for _ in 0..count {
            cluster.add_node();
        }
        cluster
    }

    fn add_node(&mut self) {
        let key = self.key.path().join("master.key");
        let home = Home::new()
            .with("ESTRADE_DATABASE_URL", &*self.database.url)
            .with("ESTRADE_MASTER_KEY_FILE", key.to_str().unwrap());
        let mut server = Server::start(&home);
        if let Some((_, first)) = self.nodes.first() {
            server.token.clone_from(&first.token);
        }
        self.nodes.push((home, Arc::new(server)));
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.nodes
            .iter()
            .map(|(_, server)| Arc::clone(server))
            .collect()
    }

    async fn create_key(&self, name: &str, limits: Value) -> String {
        let mut body = json!({"name": name, "workspaces": ["main"]});
        for (name, value) in limits.as_object().unwrap() {
            body[name] = value.clone();
        }
        let made = self.nodes[0].1.ai(Method::POST, "/v1/keys", body).await;
        text(&made.assert(201).json()["key"])
    }

    async fn stop(self) {
        for (_, server) in self.nodes {
            Arc::into_inner(server).unwrap().stop();
        }
        self.database.drop().await;
    }
}

async fn call(server: &Server, key: &str) -> reqwest::Response {
    let message = json!({"role": "user", "content": "hi"});
    let body = json!({"model": "estrade/echo", "messages": [message]});
    let url = format!("{}/v1/chat/completions", server.ai);
    let request = server.client.post(url).bearer_auth(key).json(&body);
    request.send().await.unwrap()
}

/// Calls from several callers through all of these servers for so long: the moments of those that were admitted.
async fn hammer(servers: &[Arc<Server>], key: &str, span: Duration) -> Vec<Duration> {
    let (start, admitted) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let mut callers = JoinSet::new();
    for server in servers.iter().cycle().take(servers.len() * 2) {
        let (server, key) = (Arc::clone(server), key.to_owned());
        let admitted = Arc::clone(&admitted);
        callers.spawn(async move {
            while start.elapsed() < span {
                let began = start.elapsed();
                match call(&server, &key).await.status().as_u16() {
                    // When it was sent, so that a slow response makes the time seem longer, not shorter.
                    200 => admitted.lock().unwrap().push(began),
                    429 => {}
                    other => panic!("{other}"),
                }
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let mut admitted = std::mem::take(&mut *admitted.lock().unwrap());
    admitted.sort();
    admitted
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

#[tokio::test]
async fn three_nodes_admit_what_one_would() {
    let cluster = Cluster::start(3).await;
    let servers = cluster.servers();
    for rpm in [20, 60, 240] {
        let key = cluster
            .create_key(&format!("rpm-{rpm}"), json!({"rpm": rpm}))
            .await;
        let span = Duration::from_secs(4);
        let admitted = hammer(&servers, &key, span).await;
        let allowed = |span: Duration| f64::from(rpm) * (1.0 + span.as_secs_f64() / 60.0);
        for (count, at) in admitted.iter().enumerate() {
            let count = count + 1;
            // The clock of the test is not that of the database: half a second to be fair.
            let most = 1.1 * allowed(*at + Duration::from_millis(500));
            assert!(
                number(count) <= most,
                "{count} calls of {rpm} within {at:?}"
            );
        }
        let count = admitted.len();
        eprintln!("{rpm} rpm over three nodes: {count} admitted in {span:?}");
        assert!(number(count) >= 0.95 * allowed(span) - 1.0, "{count}");
        // The headers tell of all nodes.
        let refused = call(&servers[0], &key).await;
        assert_eq!(refused.status(), 429);
        let headers = refused.headers();
        assert_eq!(headers["x-ratelimit-remaining-requests"], "0");
        assert!(headers.contains_key("retry-after"));
    }
    drop(servers);
    cluster.stop().await;
}

#[tokio::test]
async fn tokens_and_limits_of_workspaces_are_shared_as_well() {
    let cluster = Cluster::start(2).await;
    let servers = cluster.servers();
    let [one, other] = &servers[..] else { panic!() };
    // `estrade/echo` counts a prompt and its repetition.
    let key = cluster.create_key("tokens", json!({"tpm": 100})).await;
    let mut used = 0;
    while call(one, &key).await.status() == 200 {
        used += 1;
        assert!(used < 1_000);
    }
    eventually("the other node refuses as well", || async {
        call(other, &key).await.status() == 429
    })
    .await;
    let key = cluster
        .create_key("of-workspace", json!({"rpm": 1000}))
        .await;
    let list = one.ai(Method::GET, "/v1/workspaces", Value::Null).await;
    let id = text(&list.assert(200).json()["workspaces"][0]["_id"]);
    let limits = json!({"rpm": 5});
    one.ai(Method::PUT, &format!("/v1/workspaces/{id}"), limits)
        .await
        .assert(200);
    eventually("the limit is in force on both", || async {
        call(one, &key).await.status() == 429 && call(other, &key).await.status() == 429
    })
    .await;
    drop(servers);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_joins_gets_no_limit_of_its_own() {
    let mut cluster = Cluster::start(1).await;
    let key = cluster.create_key("alone", json!({"rpm": 40})).await;
    let alone = cluster.servers();
    let mut admitted = 0;
    let began = Instant::now();
    // Exactly, while there is one node.
    while call(&alone[0], &key).await.status() == 200 {
        admitted += 1;
    }
    let due = 40.0 + began.elapsed().as_secs_f64() * 40.0 / 60.0;
    assert!(
        (40.0..=due + 1.0).contains(&f64::from(admitted)),
        "{admitted}"
    );
    drop(alone);
    cluster.add_node();
    // The first node hears of the second one, and tells what it has used.
    let servers = cluster.servers();
    let more = hammer(&servers, &key, Duration::from_secs(2)).await.len();
    let elapsed = began.elapsed().as_secs_f64();
    let total = f64::from(admitted) + number(more);
    let most = 1.1 * 40.0 * (1.0 + elapsed / 60.0) + 1.0;
    assert!(total <= most, "{total} in {elapsed} s");
    drop(servers);
    cluster.stop().await;
}
