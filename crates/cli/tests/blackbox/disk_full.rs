//! A full disk: requests fail in shape, nothing is half-written, and it goes on when there is room.

use crate::support::{ApiResponse, Home, Server, names_in, serve_args};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk of this size, seen only by the server: it is gone when the server is.
const DISK: &str = "size=6m";

/// Whether this machine lets us mount a disk in a namespace of its own.
fn can_mount(home: &Home) -> Result<(), String> {
    let output = in_namespace(home, &["true"]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A command that sees a small disk at the data directory.
fn in_namespace(home: &Home, args: &[&str]) -> Command {
    let script = format!(
        "mount -t tmpfs -o {DISK},mode=700 tmpfs '{}' && exec \"$@\"",
        home.data().display()
    );
    let unshare = ["--mount", "--map-root-user", "sh", "-c", &script, "sh"];
    home.prepare(Command::new("unshare"), unshare.iter().chain(args))
}

/// Fills the disk to the last byte.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [65536, 4096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

fn assert_platform_shape(response: &ApiResponse) {
    let body = response.json();
    assert_eq!(
        (&body["statusCode"], &body["data"]["code"]),
        (&json!(503), &json!("unavailable")),
        "{response:?}"
    );
    assert!(body["message"].is_string() && body["error"].is_string());
}

async fn key_names(server: &Server) -> BTreeSet<String> {
    let list = server.ai(Method::GET, "/v1/keys", Value::Null).await;
    let keys = list.assert(200).json();
    let names = keys.as_array().unwrap().iter();
    names
        .map(|key| key["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Makes keys until one is refused for lack of space; the names of both kinds.
async fn create_keys_until_full(server: &Server, stored: &mut BTreeSet<String>) -> Vec<String> {
    let mut refused = Vec::new();
    for number in 0..20_000 {
        let name = format!("key-{number}");
        let body = json!({"name": name, "workspaces": ["main"]});
        let response = server.ai(Method::POST, "/v1/keys", body).await;
        if response.status.as_u16() == 201 {
            stored.insert(name);
            continue;
        }
        response.assert(503);
        assert_eq!(
            (response.error_code.as_deref(), response.text.as_str()),
            (Some("unavailable"), "")
        );
        refused.push(name);
        if refused.len() == 5 {
            return refused;
        }
    }
    panic!("the disk never filled up");
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let home = Home::new()
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
        .with("ESTRADE_DATA_DIR", "estrade-data");
    fs::create_dir(home.data()).unwrap();
    if let Err(reason) = can_mount(&home) {
        eprintln!("skipped: no disk can be mounted for this test: {reason}");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_estrade");
    let args = [&[binary][..], &serve_args()].concat();
    let mut server = Server::start_by(&home, in_namespace(&home, &args));
    let disk = PathBuf::from(format!(
        "/proc/{}/root{}",
        server.pid(),
        home.data().display()
    ));
    server.token = fs::read_to_string(disk.join("admin.token"))
        .unwrap()
        .trim_end()
        .to_owned();
    server.create_project("site").await;
    let mut stored = BTreeSet::from(["before".to_owned()]);
    let (_, key) = server.create_key("before").await;

    fill(&disk.join("filler"));
    let refused = create_keys_until_full(&server, &mut stored).await;
    eprintln!(
        "{} keys fitted into what was left of the log",
        stored.len() - 1
    );
    let body = json!({"name": "other", "platform": "static", "planID": "micro"});
    let project = server.platform(Method::POST, "/v1/projects", body).await;
    assert_platform_shape(project.assert(503));
    let packs = names_in(&disk.join("blobs/packs"));
    for size in [1000, 3_000_000] {
        let data = "x".repeat(size);
        let body = json!({"files": [{"path": "index.html", "data": data}]});
        let path = "/v2/projects/site/releases";
        let release = server.platform(Method::POST, path, body).await;
        assert_platform_shape(release.assert(503));
    }
    assert_eq!(names_in(&disk.join("blobs/packs")), packs);
    assert_eq!(names_in(&disk.join("blobs/tmp")), [""; 0]);
    server.assert_ready(false).await;
    // Reading goes on, and so does everything that needs no disk.
    assert_eq!(key_names(&server).await, stored);
    assert_eq!(server.authorize(&key).await, 200);

    fs::remove_file(disk.join("filler")).unwrap();
    server.assert_ready(true).await;
    for name in refused {
        let body = json!({"name": name, "workspaces": ["main"]});
        server.ai(Method::POST, "/v1/keys", body).await.assert(201);
        stored.insert(name);
    }
    assert_eq!(key_names(&server).await, stored);
    server.create_project("other").await;
    let body = json!({"files": [{"path": "index.html", "data": "x"}]});
    let path = "/v2/projects/site/releases";
    server.platform(Method::POST, path, body).await.assert(201);
    let check: String = rusqlite::Connection::open(disk.join("estrade.db"))
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    server.stop();
}
