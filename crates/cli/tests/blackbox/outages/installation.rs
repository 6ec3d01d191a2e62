//! Three nodes that share a database, a master key and a bucket, and what is checked of them in the end.

use super::load::{Load, Observed};
use super::{LEDGER_LEASE, SLACK};
use crate::bucket::cluster::Node;
use crate::bucket::forwarder::Bucket;
use crate::crashes::unpack;
use crate::inference::{MODEL, nanos};
use crate::support::{ApiResponse, Home, random, text};
use estrade_mock_upstream::{MockUpstream, json as upstream_json};
use estrade_testkit::eventually_or;
use reqwest::Method;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const NODES: usize = 3;
/// Of each there is one for every node.
pub(super) const PROJECTS: usize = NODES;

/// How calls are recorded.
#[derive(Clone, Copy)]
pub(super) enum Durability {
    Relaxed,
    Strict,
}

pub(super) struct Installation {
    pub(super) nodes: Vec<Node>,
    workspace: String,
    _upstream: MockUpstream,
    _key: TempDir,
}

/// Asks the database of an installation; the first column.
pub(super) trait Database {
    async fn column(&self, sql: &str) -> Vec<String>;

    async fn number(&self, sql: &str) -> i64 {
        self.column(sql).await[0].parse().unwrap()
    }
}

impl Database for crate::support::Postgres {
    async fn column(&self, sql: &str) -> Vec<String> {
        self.column(sql).await
    }
}

/// A node of an installation that is being made.
pub(super) struct Place {
    pub(super) database: String,
    /// The namespace and the address, of one that is not in that of the test.
    pub(super) namespace: Option<(String, String)>,
    /// Where it finds the bucket; else where it is.
    pub(super) bucket: Option<String>,
}

impl Place {
    pub(super) fn here(database: &str) -> Self {
        Self {
            database: database.into(),
            namespace: None,
            bucket: None,
        }
    }
}

impl Installation {
    /// Three nodes on this database.
    pub(super) async fn start(database: &str, durability: Durability) -> Self {
        Self::start_at([(); NODES].map(|()| Place::here(database)), durability).await
    }

    pub(super) async fn start_at(places: [Place; NODES], durability: Durability) -> Self {
        let upstream =
            MockUpstream::new(|_| upstream_json(200, &crate::inference::chat_response(1))).await;
        let (bucket, key) = (Bucket::of_test(), TempDir::new().unwrap());
        let config = config(&upstream, durability);
        let mut nodes = Vec::new();
        for place in places {
            let endpoint = place.bucket.as_ref().unwrap_or(&bucket.endpoint);
            let home = home(&bucket, endpoint, &place.database, &key, &config);
            let mut node = Node::new(home);
            if let Some((namespace, address)) = &place.namespace {
                node = node.within(namespace, address);
            }
            let token = nodes.first().map(Node::token);
            node.start(token.as_deref());
            nodes.push(node);
        }
        let first = nodes[0].server();
        for project in 0..PROJECTS {
            first.create_project(&project_name(project)).await;
        }
        first.create_key("first").await;
        let all = first.ai(Method::GET, "/v1/workspaces", Value::Null).await;
        let workspace = text(&all.json()["workspaces"][0]["_id"]);
        Self {
            nodes,
            workspace,
            _upstream: upstream,
            _key: key,
        }
    }

    /// A key with these limits.
    pub(super) async fn create_key(&self, name: &str, limits: Value) -> String {
        let mut body = json!({"name": name, "workspaces": ["main"]});
        for (field, value) in limits.as_object().unwrap() {
            body[field] = value.clone();
        }
        let made = self.nodes[0].server().ai(Method::POST, "/v1/keys", body);
        text(&made.await.assert(201).json()["key"])
    }

    /// Deploys and calls through every node.
    pub(super) async fn put_under_load(&self) -> Load {
        self.put_under_load_at(&[0, 1, 2]).await
    }

    /// The same through some nodes.
    pub(super) async fn put_under_load_at(&self, nodes: &[usize]) -> Load {
        let free = self.create_key("free", json!({})).await;
        let budget = json!({"budget": {"amount": "1000", "period": "total"}});
        let counted = self.create_key("counted", budget).await;
        let load = Load::start(&self.nodes, nodes, &free, &counted);
        load.await_successes(nodes).await;
        load
    }

    pub(super) async fn get(&self, node: usize, path: &str) -> ApiResponse {
        let server = self.nodes[node].server();
        server.platform(Method::GET, path, Value::Null).await
    }

    pub(super) fn signal(&self, nodes: &[usize], name: &str) {
        for node in nodes {
            self.nodes[*node].server().signal(name);
        }
    }

    /// Stops a node while it works on a release, which it returns; the others are stopped as well.
    pub(super) async fn stop_within_release(
        &self,
        node: usize,
        others: &[usize],
        database: &impl Database,
    ) -> String {
        for _ in 0..50 {
            let files: Vec<_> = (0..4).map(large_file).collect();
            self.signal(others, "STOP");
            let project = project_name(node);
            let made = self.nodes[node].deploy(&project, json!(files)).await;
            let release = text(&made.assert(201).json()["releaseID"]);
            let held = format!(
                "SELECT COUNT(*) FROM releases
                 WHERE id = '{release}' AND lease_owner IS NOT NULL AND finished_at IS NULL"
            );
            let asked = Instant::now();
            // Those before it in the queue of its project go first.
            while database.number(&held).await == 0 && asked.elapsed() < Duration::from_secs(1) {}
            self.signal(&[node], "STOP");
            // It may have been committing its last step.
            tokio::time::sleep(Duration::from_millis(100)).await;
            if database.number(&held).await == 1 {
                return release;
            }
            self.signal(&[node], "CONT");
            self.signal(others, "CONT");
        }
        panic!("every release was finished too soon");
    }

    /// Waits until a release is ready, as one node says.
    pub(super) async fn await_ready(&self, node: usize, release: &str) {
        let path = format!("/v1/releases/{release}?wait=READY&timeout=15");
        let state = RefCell::new(Value::Null);
        eventually_or(
            || {
                format!(
                    "{release}: {}\n{}",
                    state.borrow(),
                    self.nodes[node].server().log()
                )
            },
            || async {
                let read = self.get(node, &path).await;
                if read.status != 200 {
                    state.replace(json!(read.text));
                    return false;
                }
                state.replace(read.json()["release"]["state"].clone());
                *state.borrow() == "READY"
            },
        )
        .await;
    }

    /// Checks, when the load has ended, that nothing acknowledged was lost and nothing was done twice.
    pub(super) async fn check(&self, observed: &Observed, database: &impl Database) {
        let alive: Vec<_> = (0..NODES)
            .filter(|node| self.nodes[*node].is_running())
            .collect();
        self.check_releases(observed, &alive).await;
        let twice =
            "SELECT release_id || ' ' || action || ' ' || status || ' ' || COUNT(*) FROM events
                     WHERE release_id IS NOT NULL
                     GROUP BY release_id, action, status HAVING COUNT(*) > 1";
        let twice = database.column(twice).await;
        assert!(twice.is_empty(), "steps that ran twice: {twice:?}");
        self.check_calls(observed, alive[0], database).await;
    }

    /// Each release is ready, with its files, and the newest of each project is served by every node.
    async fn check_releases(&self, observed: &Observed, alive: &[usize]) {
        let releases = observed.releases();
        assert!(!releases.is_empty());
        for (number, deployed) in releases.iter().enumerate() {
            let node = alive[number % alive.len()];
            self.await_ready(node, &deployed.release).await;
            let server = self.nodes[node].server();
            let url = format!(
                "{}/v2/releases/{}/source",
                server.platform, deployed.release
            );
            let source = server
                .client
                .get(url)
                .bearer_auth(&server.token)
                .send()
                .await;
            let source = source.unwrap();
            assert_eq!(source.status(), 200, "{}", deployed.release);
            let archive = source.bytes().await.unwrap();
            assert_eq!(unpack(&archive, "index.html"), deployed.page);
        }
        for project in 0..PROJECTS {
            let name = project_name(project);
            let of_project = releases.iter().filter(|it| it.project == project);
            // Releases that nobody was told of may have come after it.
            let known: HashSet<_> = of_project.map(|it| it.page.clone()).collect();
            let pages = RefCell::new(BTreeSet::new());
            eventually_or(
                || {
                    format!(
                        "all nodes serve the same page of {name}: {:?}",
                        pages.borrow()
                    )
                },
                || async {
                    let mut found = BTreeSet::new();
                    for node in alive {
                        let (status, page) = self.nodes[*node].visit(&name, "/").await;
                        assert_eq!(status, 200, "{page}");
                        found.insert(page);
                    }
                    let same = found.len() == 1;
                    pages.replace(found);
                    same
                },
            )
            .await;
            if !pages.borrow().iter().any(|page| known.contains(page)) {
                eprintln!("{name} serves a release whose response was lost");
            }
        }
    }

    /// Each call that was answered is recorded once, and the budget was charged with exactly what is recorded.
    pub(super) async fn check_calls(
        &self,
        observed: &Observed,
        node: usize,
        database: &impl Database,
    ) {
        let began = Instant::now();
        let out = "SELECT COUNT(*) FROM budget_slices";
        while database.number(out).await > 0 {
            let limit = LEDGER_LEASE + SLACK;
            assert!(
                began.elapsed() < limit,
                "parts of the budget are still leased"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let waited = began.elapsed();
        let rows = self.rows(node).await;
        let ids: HashSet<_> = rows.iter().map(|row| text(&row["_id"])).collect();
        assert_eq!(ids.len(), rows.len(), "calls were recorded twice");
        let answered = observed.calls();
        for call in &answered {
            assert!(
                ids.contains(&call.id),
                "{} was answered and is not recorded",
                call.id
            );
        }
        let cost: i64 = rows.iter().map(|row| nanos(&row["cost"])).sum();
        let spent = "SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT) FROM budgets";
        assert_eq!(
            database.number(spent).await,
            cost,
            "the budget and the calls differ"
        );
        assert_eq!(self.activity(node).await, (rows.len() as u64, cost));
        let unheard = rows.len() - answered.len();
        eprintln!(
            "{} calls answered, all recorded; {unheard} recorded whose answer was lost or was an error; budgets and \
             sums agree; the last lease was back after {waited:?}",
            answered.len()
        );
    }

    /// Everything in the log of calls.
    async fn rows(&self, node: usize) -> Vec<Value> {
        let mut all = Vec::new();
        for page in 1.. {
            let path = format!(
                "/v1/workspaces/{}/logs?count=100&page={page}",
                self.workspace
            );
            let server = self.nodes[node].server();
            let response = server.ai(Method::GET, &path, Value::Null).await;
            let response = response.assert(200).json();
            let rows = response["logs"].as_array().unwrap();
            if rows.is_empty() {
                break;
            }
            all.extend(rows.iter().cloned());
        }
        all
    }

    /// Calls and billionths, as the sums have them.
    async fn activity(&self, node: usize) -> (u64, i64) {
        let path = format!("/v1/workspaces/{}/activity", self.workspace);
        let server = self.nodes[node].server();
        let response = server.ai(Method::GET, &path, Value::Null).await;
        let response = response.assert(200).json();
        let steps = response.as_array().unwrap().iter();
        steps
            .flat_map(|step| step["data"].as_array().unwrap())
            .fold((0, 0), |(calls, cost), model| {
                let count = model["request_count"].as_u64().unwrap();
                (calls + count, cost + nanos(&model["total_cost"]))
            })
    }

    pub(super) fn stop(mut self) {
        for node in &mut self.nodes {
            if node.is_running() {
                node.stop();
            }
        }
    }
}

pub(super) fn project_name(number: usize) -> String {
    format!("site-{number}")
}

/// A file that is new and takes a moment to compress.
fn large_file(number: usize) -> Value {
    let mut data = String::with_capacity(1 << 20);
    while data.len() < 1 << 20 {
        write!(data, "{:x} ", random()).unwrap();
    }
    let path = if number == 0 {
        "index.html".into()
    } else {
        format!("{number}.txt")
    };
    json!({"path": path, "data": data})
}

fn home(bucket: &Bucket, endpoint: &str, database: &str, key: &TempDir, config: &str) -> Home {
    let home = Home::in_memory();
    let file = home.path().join("estrade.toml");
    std::fs::write(&file, config).unwrap();
    let key = key.path().join("master.key");
    bucket
        .configure(home, endpoint)
        .with("ESTRADE_CONFIG", file.to_str().unwrap())
        .with("ESTRADE_DATABASE_URL", database)
        .with("ESTRADE_MASTER_KEY_FILE", key.to_str().unwrap())
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
        .with("ESTRADE_LIMITS_RELEASE_HISTORY", "1000")
        .with("UPSTREAM_KEY", "sk-upstream")
}

/// One model that costs 0.001 a call, besides the built-in one that costs nothing.
fn config(upstream: &MockUpstream, durability: Durability) -> String {
    let durability = match durability {
        Durability::Relaxed => "relaxed",
        Durability::Strict => "strict",
    };
    format!(
        r#"
        usage = {{ durability = "{durability}" }}
        [[ai.providers]]
        name = "acme"
        base_url = "http://{}/v1"
        api_key_env = "UPSTREAM_KEY"
        [[ai.providers.models]]
        id = "{MODEL}"
        price = {{ prompt = "0", completion = "1000" }}
        "#,
        upstream.address
    )
}
