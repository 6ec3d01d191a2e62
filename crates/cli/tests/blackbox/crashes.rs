//! `kill -9` in the middle of work: what was acknowledged is there, what was half-done is gone.

use crate::support::{Home, Server, TIMEOUT, names_in, random, text};
use estrade_blobs::Digest;
use estrade_testkit::eventually_or;
use reqwest::Method;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::ready;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Starts within which nothing at all is left over.
const MAX_STARTS: usize = 30;
const CLIENTS: usize = 8;
const PROJECTS: usize = 4;
/// A project that is deleted and made again all the time, so that there is something to clean up.
const RECREATED_PROJECT: &str = "fleeting";

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

/// Deploys to a project and deletes it, until the server is gone.
async fn come_and_go(server: Arc<Client>) {
    let project = json!({"name": RECREATED_PROJECT, "platform": "static", "planID": "micro"});
    for number in random().. {
        // It may be there from the last round, or not.
        let path = "/v1/projects";
        if server.send(Method::POST, path, &project).await.is_none() {
            return;
        }
        for round in 0..3 {
            let page = format!("{number} {round} ").repeat(200);
            let body = json!({"files": [
                {"path": "index.html", "data": page},
                {"path": "same.html", "data": "the same in all of them ".repeat(50)},
            ]});
            let path = format!("/v2/projects/{RECREATED_PROJECT}/releases");
            if server.send(Method::POST, &path, &body).await.is_none() {
                return;
            }
        }
        let path = format!("/v1/projects/{RECREATED_PROJECT}");
        if server
            .send(Method::DELETE, &path, &Value::Null)
            .await
            .is_none()
        {
            return;
        }
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

    /// The status; nothing when the server did not respond to the end.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Option<u16> {
        let request = self
            .http
            .request(method, format!("{}{path}", self.platform));
        let request = request.bearer_auth(&self.token).json(body);
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        assert!(status < 500, "{path}: {status} {text}");
        Some(status)
    }

    /// Nothing when the server did not respond to the end.
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
    let rounds = if full { 200 } else { 20 };
    let home = Home::new()
        .with("ESTRADE_LIMITS_RELEASE_HISTORY", "5")
        .with("ESTRADE_EDGE_SKEW_SECONDS", "0")
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
        .with("ESTRADE_LIMITS_KEYS", "0");
    let acknowledged = Arc::new(Acknowledged::default());
    let mut server = Server::start(&home);
    for project in 0..PROJECTS {
        server.create_project(&format!("site-{project}")).await;
    }
    for round in 0..rounds {
        let client = Client::of(&server);
        let known = acknowledged.releases.lock().unwrap().len();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(work(Arc::clone(&client), Arc::clone(&acknowledged), number));
        }
        clients.spawn(come_and_go(Arc::clone(&client)));
        // Somewhere in the middle of the work, however slow the machine is.
        while acknowledged.releases.lock().unwrap().len() == known {
            assert!(clients.try_join_next().is_none(), "{}", server.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Now and then late enough to meet a clean-up.
        let most = if round % 10 == 9 { 5000 } else { 700 };
        tokio::time::sleep(Duration::from_millis(random() % most)).await;
        server.kill();
        clients.join_all().await;

        let half_done = ["tmp", "blobs/tmp"].map(|directory| {
            let directory = home.data().join(directory);
            (names_in(&directory), directory)
        });
        let orphans = orphans(&home);
        make_old(&home, &orphans);
        server = Server::start(&home);
        // The new server may have begun files of its own by now.
        for (before, directory) in half_done {
            let mut left = names_in(&directory);
            left.retain(|name| before.contains(name));
            assert!(left.is_empty(), "{}: {left:?}", directory.display());
        }
        check_keys(&server, &acknowledged).await;
        let releases = acknowledged.releases.lock().unwrap()[known..].to_vec();
        check_releases(&server, &releases).await;
        check_all_have_ended(&server).await;
        check_are_removed(&home, &server, &orphans).await;
        check_live_releases(&home);
    }
    server = check_no_orphans(&home, server).await;
    check_live_releases(&home);
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
        // Those that are older than the history goes back may have been cleaned up.
        if source.status().as_u16() == 410 && release["release"]["sourceAvailable"] == false {
            assert!(is_old(server, id).await, "{id} is gone too early");
            continue;
        }
        assert_eq!(source.status().as_u16(), 200, "{id}");
        let archive = source.bytes().await.unwrap();
        assert_eq!(&unpack(&archive, "index.html"), content, "{id}");
    }
}

/// Whether a release is not among the newest of its project.
async fn is_old(server: &Server, id: &str) -> bool {
    for project in 0..PROJECTS {
        let path = format!("/v1/projects/site-{project}/releases");
        let list = server.platform(Method::GET, &path, Value::Null).await;
        let list = list.assert(200).json();
        let newest = list["releases"].as_array().unwrap().iter().take(5);
        if newest
            .map(|release| text(&release["_id"]))
            .any(|newer| newer == id)
        {
            return false;
        }
    }
    true
}

/// What is live is there to the last byte, and so is every compressed variant of it.
fn check_live_releases(home: &Home) {
    let database = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
    let mut live = database
        .prepare(
            "SELECT p.name, a.manifest FROM projects p JOIN releases r ON r.id = p.current_release
             LEFT JOIN artifacts a ON a.id = r.artifact_id",
        )
        .unwrap();
    let mut places = database
        .prepare(
            "SELECT digest, size, place, place_offset FROM blobs WHERE digest = ?1
             UNION SELECT b.digest, b.size, b.place, b.place_offset
             FROM variants v JOIN blobs b ON b.digest = v.variant WHERE v.digest = ?1",
        )
        .unwrap();
    let rows = live.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    for row in rows.unwrap() {
        let (name, manifest): (String, Vec<u8>) = row.unwrap();
        for (content, _) in estrade_store::manifest::contents(&manifest).unwrap() {
            let stored = places.query_map([content.as_bytes()], |row| {
                let digest: [u8; 32] = row.get(0)?;
                let (size, place, offset): (u32, String, u32) =
                    (row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((Digest::from(digest), size, place, offset))
            });
            let stored: Vec<_> = stored.unwrap().map(Result::unwrap).collect();
            assert!(
                stored.iter().any(|it| it.0 == content),
                "{name} lacks {content}"
            );
            for (digest, size, place, offset) in stored {
                let file = match place.split_once(':').unwrap() {
                    ("pack", id) => format!("blobs/packs/{id}.pack"),
                    (_, id) => format!("blobs/files/{id}"),
                };
                let bytes = home.file(&file);
                let (offset, size) = (offset as usize, size as usize);
                assert_eq!(Digest::of(&bytes[offset..][..size]), digest, "{name}");
            }
        }
    }
}

/// One file of a downloaded release.
pub(crate) fn unpack(archive: &[u8], path: &str) -> String {
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
    for project in 0..PROJECTS {
        let path = format!("/v1/projects/site-{project}/releases");
        let found = RefCell::new(Value::Null);
        eventually_or(
            || format!("all releases are ready: {}", found.borrow()),
            || async {
                let list = server.platform(Method::GET, &path, Value::Null).await;
                let list = list.assert(200).json();
                let mut releases = list["releases"].as_array().unwrap().iter();
                let ended = releases.all(|release| release["state"] == "READY");
                found.replace(list);
                ended
            },
        )
        .await;
    }
}

/// Soon after a start, nothing is left of what had been an orphan for a day before it.
async fn check_are_removed(home: &Home, server: &Server, orphans: &BTreeSet<String>) {
    let left = || {
        let mut left = places_on_disk(home);
        left.retain(|place| orphans.contains(place));
        left
    };
    eventually_or(
        || format!("orphans are removed: {:?}\n{}", left(), server.log()),
        || ready(left().is_empty()),
    )
    .await;
}

/// After some starts, exactly those packs and files lie on disk that the database names.
///
/// What is found to be without rows is kept for a day, which passes here while no server runs: one more kill. And each clean-up may find another pack that has become sparse, since small releases
/// share them and go one by one; but there are only so many.
async fn check_no_orphans(home: &Home, mut server: Server) -> Server {
    for _ in 0..MAX_STARTS {
        let deadline = Instant::now() + TIMEOUT / 8;
        while Instant::now() < deadline {
            let known = known_places(home);
            // The server goes on while we look.
            if places_on_disk(home) == known && known_places(home) == known {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server.kill();
        make_old(home, &orphans(home));
        server = Server::start(home);
    }
    panic!("orphans are left: {:?}\n{}", orphans(home), server.log());
}

/// What lies on disk and nothing knows, while no server runs; nothing may be known that does not lie there.
fn orphans(home: &Home) -> BTreeSet<String> {
    let (known, on_disk) = (known_places(home), places_on_disk(home));
    let lost: Vec<_> = known.difference(&on_disk).collect();
    assert!(lost.is_empty(), "contents are lost: {lost:?}");
    on_disk.difference(&known).cloned().collect()
}

/// As if orphans had been found two days ago. No server must run.
#[expect(
    clippy::disallowed_methods,
    reason = "ages are compared with those that the file system gave"
)]
fn make_old(home: &Home, orphans: &BTreeSet<String>) {
    let then = SystemTime::now() - Duration::from_hours(48);
    let millis = then.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let line = |place: &String| format!("{place} {millis}\n");
    let blobs = home.data().join("blobs");
    std::fs::write(
        blobs.join("orphans"),
        orphans.iter().map(line).collect::<String>(),
    )
    .unwrap();
    for place in orphans {
        let file = match place.split_once(':').unwrap() {
            ("pack", id) => format!("packs/{id}.pack"),
            (_, id) => format!("files/{id}"),
        };
        let file = std::fs::File::options().write(true).open(blobs.join(file));
        file.unwrap().set_modified(then).unwrap();
    }
}

fn places_on_disk(home: &Home) -> BTreeSet<String> {
    let blobs = home.data().join("blobs");
    let packs = names_in(&blobs.join("packs")).into_iter();
    let packs = packs.map(|name| format!("pack:{}", name.trim_end_matches(".pack")));
    let files = names_in(&blobs.join("files")).into_iter();
    packs
        .chain(files.map(|name| format!("file:{name}")))
        .collect()
}

fn known_places(home: &Home) -> BTreeSet<String> {
    let database = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
    let mut statement = database
        .prepare("SELECT DISTINCT place FROM blobs")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}
