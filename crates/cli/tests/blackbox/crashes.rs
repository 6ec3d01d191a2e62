//! `kill -9` in the middle of work: what was acknowledged is there, what was half-done is gone.

use crate::support::{Home, PATIENCE, Server, names_in, random, text};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CLIENTS: usize = 8;
const PROJECTS: usize = 4;

/// What clients were told had happened.
#[derive(Default)]
struct Acknowledged {
    keys: Mutex<Vec<(String, String)>>,
    releases: Mutex<Vec<(String, String)>>,
    counter: AtomicU64,
}

/// Creates keys and releases until the server is gone.
async fn work(server: Arc<Client>, acknowledged: Arc<Acknowledged>, client: usize) {
    loop {
        let number = acknowledged.counter.fetch_add(1, Ordering::Relaxed);
        if !number.is_multiple_of(3) {
            let body = json!({"name": format!("key-{number}"), "workspaces": ["main"]});
            let Some(made) = server.post(&server.ai, "/v1/keys", &body, 201).await else {
                return;
            };
            let key = (text(&made["_id"]), text(&made["key"]));
            acknowledged.keys.lock().unwrap().push(key);
            continue;
        }
        // Every fourth is too large for memory and for a pack.
        let size = if number.is_multiple_of(4) {
            1_200_000
        } else {
            300
        };
        let content = format!("{number} {}", "x".repeat(size));
        let body = json!({"files": [
            {"path": "index.html", "data": content},
            {"path": "a/b.txt", "data": format!("b {number}")},
        ]});
        let path = format!("/v2/projects/site-{}/releases", client % PROJECTS);
        let Some(made) = server.post(&server.platform, &path, &body, 201).await else {
            return;
        };
        let release = (text(&made["releaseID"]), content);
        acknowledged.releases.lock().unwrap().push(release);
    }
}

/// What the clients need of a server that may die.
struct Client {
    http: reqwest::Client,
    platform: String,
    ai: String,
    token: String,
}

impl Client {
    fn of(server: &Server) -> Arc<Self> {
        Arc::new(Self {
            http: server.client.clone(),
            platform: server.platform.clone(),
            ai: server.ai.clone(),
            token: server.token.clone(),
        })
    }

    /// Nothing when the server did not answer to the end.
    async fn post(&self, base: &str, path: &str, body: &Value, status: u16) -> Option<Value> {
        let request = self.http.post(format!("{base}{path}")).json(body);
        let response = request.bearer_auth(&self.token).send().await.ok()?;
        let got = response.status().as_u16();
        let body = response.text().await.ok()?;
        assert_eq!(got, status, "{path}: {body}");
        serde_json::from_str(&body).ok()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let rounds = if full { 100 } else { 10 };
    let home = Home::new()
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
        .with("ESTRADE_LIMITS_KEYS", "0");
    let acknowledged = Arc::new(Acknowledged::default());
    let mut server = Server::start(&home);
    for project in 0..PROJECTS {
        server.create_project(&format!("site-{project}")).await;
    }
    for _ in 0..rounds {
        let client = Client::of(&server);
        let known = acknowledged.releases.lock().unwrap().len();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(work(Arc::clone(&client), Arc::clone(&acknowledged), number));
        }
        // Somewhere in the middle of the work, however slow the machine is.
        while acknowledged.releases.lock().unwrap().len() == known {
            assert!(clients.try_join_next().is_none(), "{}", server.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(random() % 700)).await;
        server.kill();
        clients.join_all().await;

        server = Server::start(&home);
        for directory in ["tmp", "blobs/tmp"] {
            let left = names_in(&home.data().join(directory));
            assert!(left.is_empty(), "{directory}: {left:?}");
        }
        check_keys(&server, &acknowledged).await;
        let releases = acknowledged.releases.lock().unwrap()[known..].to_vec();
        check_releases(&server, &releases).await;
        check_all_have_ended(&server).await;
        check_no_orphans(&home).await;
    }
    let (keys, releases) = (&acknowledged.keys, &acknowledged.releases);
    let counts = (keys.lock().unwrap().len(), releases.lock().unwrap().len());
    eprintln!("{rounds} kills; keys and releases acknowledged and found: {counts:?}");
    assert!(counts.0 > 0 && counts.1 >= rounds, "{counts:?}");
    server.stop();
}

async fn check_keys(server: &Server, acknowledged: &Acknowledged) {
    let list = server.ai(Method::GET, "/v1/keys", Value::Null).await;
    let list = list.assert(200).json();
    let there: BTreeSet<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|key| text(&key["_id"]))
        .collect();
    let keys = acknowledged.keys.lock().unwrap().clone();
    for (id, _) in &keys {
        assert!(there.contains(id), "key {id} was acknowledged and is lost");
    }
    if let Some((id, key)) = keys.last() {
        assert_eq!(server.authorize(key).await, 200, "{id}");
    }
}

async fn check_releases(server: &Server, releases: &[(String, String)]) {
    for (id, content) in releases {
        let path = format!("/v1/releases/{id}?wait=READY&timeout=15");
        let release = server.platform(Method::GET, &path, Value::Null).await;
        let release = release.assert(200).json();
        assert_eq!(release["release"]["state"], "READY", "{release}");
        let url = format!("{}/v2/releases/{id}/source", server.platform);
        let source = server.client.get(url).bearer_auth(&server.token);
        let source = source.send().await.unwrap();
        assert_eq!(source.status().as_u16(), 200, "{id}");
        let archive = source.bytes().await.unwrap();
        assert_eq!(&unpack(&archive, "index.html"), content, "{id}");
    }
}

/// One file of a downloaded release.
fn unpack(archive: &[u8], path: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(archive).unwrap();
    let tar = Command::new("tar")
        .args(["-xzOf"])
        .arg(file.path())
        .arg(path)
        .output();
    let tar = tar.unwrap();
    assert!(
        tar.status.success(),
        "{}",
        String::from_utf8_lossy(&tar.stderr)
    );
    String::from_utf8(tar.stdout).unwrap()
}

/// Also what was carried out although nobody heard of it.
async fn check_all_have_ended(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    for project in 0..PROJECTS {
        loop {
            let path = format!("/v1/projects/site-{project}/releases");
            let list = server.platform(Method::GET, &path, Value::Null).await;
            let list = list.assert(200).json();
            let releases = list["releases"].as_array().unwrap();
            if releases.iter().all(|release| release["state"] == "READY") {
                break;
            }
            assert!(Instant::now() < deadline, "releases are stuck: {list}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Soon after a start, exactly those packs and files lie on disk that the database names.
async fn check_no_orphans(home: &Home) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let blobs = home.data().join("blobs");
        let packs = names_in(&blobs.join("packs"))
            .into_iter()
            .map(|name| format!("pack:{}", name.trim_end_matches(".pack")));
        let files = names_in(&blobs.join("files"))
            .into_iter()
            .map(|name| format!("file:{name}"));
        let on_disk: BTreeSet<_> = packs.chain(files).collect();
        let database = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
        let mut statement = database
            .prepare("SELECT DISTINCT place FROM blobs")
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        let known: BTreeSet<String> = rows.map(Result::unwrap).collect();
        if on_disk == known {
            return;
        }
        let lost: Vec<_> = known.difference(&on_disk).collect();
        assert!(lost.is_empty(), "contents are lost: {lost:?}");
        assert!(
            Instant::now() < deadline,
            "orphans: {:?}",
            on_disk.difference(&known)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
