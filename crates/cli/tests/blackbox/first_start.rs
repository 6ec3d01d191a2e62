//! What the first start makes, and what later ones leave alone.

use crate::support::{ADMIN, Home, Postgres, Ran, Server, names_in, random, serve_args, text};
use estrade_testkit::eventually_or;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::future::ready;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn mode(home: &Home, name: &str) -> u32 {
    fs::metadata(home.data().join(name))
        .unwrap()
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_first_start_makes_what_is_needed_and_a_second_changes_none_of_it() {
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    fs::write(home.data().join("notes.txt"), "mine").unwrap();
    fs::create_dir(home.data().join("photos")).unwrap();

    Server::start(&home).stop();
    let made = ["master.key", "admin.token", "estrade.db"];
    for name in made {
        assert_eq!(mode(&home, name), 0o600, "{name}");
    }
    assert_eq!(home.file("master.key").len(), 32);
    assert_eq!(home.admin_token().split('.').count(), 3);
    let before = made.map(|name| home.file(name));
    let tokens = home.run(["token", "list", "--account", ADMIN]);

    Server::start(&home).stop();
    assert!(
        before == made.map(|name| home.file(name)),
        "a second start changed something"
    );
    let again = home.run(["token", "list", "--account", ADMIN]);
    assert_eq!(again.assert(0).stdout, tokens.assert(0).stdout);
    assert_eq!(home.file("notes.txt"), b"mine");
    assert!(home.data().join("photos").is_dir());
}

#[tokio::test]
async fn the_first_token_works_and_only_the_first_start_makes_one() {
    let home = Home::new();
    let server = Server::start(&home);
    assert_eq!(server.me(&home.admin_token()).await, 200);
    server.stop();
    fs::remove_file(home.data().join("admin.token")).unwrap();
    let server = Server::start(&home);
    assert!(!home.data().join("admin.token").exists());
    assert_eq!(server.me(&home.create_token(ADMIN)).await, 200);
    server.stop();
}

#[test]
fn without_its_master_key_a_database_is_not_opened() {
    let home = Home::new();
    Server::start(&home).stop();
    let path = home.data().join("master.key");
    let right = home.file("master.key");

    fs::remove_file(&path).unwrap();
    let missing = home.fail_to_serve();
    missing.assert(2).assert_says("master.key is missing");
    assert!(!path.exists(), "a new key would lock the data out for good");
    home.run(["account", "list"])
        .assert(2)
        .assert_says("master.key is missing");

    fs::write(&path, [7; 32]).unwrap();
    let wrong = home.fail_to_serve();
    wrong.assert(2).assert_says("does not open this database");
    assert_eq!(wrong.stdout, "");

    fs::write(&path, [7; 31]).unwrap();
    home.fail_to_serve()
        .assert(2)
        .assert_says("exactly 32 bytes");

    fs::write(&path, right).unwrap();
    Server::start(&home).stop();
}

#[tokio::test]
async fn the_master_key_may_live_elsewhere() {
    let home = Home::new().with("ESTRADE_MASTER_KEY_FILE", "elsewhere.key");
    let server = Server::start(&home);
    assert_eq!(server.me(&home.admin_token()).await, 200);
    server.stop();
    assert!(!home.data().join("master.key").exists());
    let elsewhere = home.path().join("elsewhere.key");
    let metadata = fs::metadata(&elsewhere).unwrap();
    assert_eq!(
        (metadata.len(), metadata.permissions().mode() & 0o777),
        (32, 0o600)
    );

    let given = Home::new().with("ESTRADE_MASTER_KEY_FILE", "given.key");
    fs::write(given.path().join("given.key"), [9; 32]).unwrap();
    Server::start(&given).stop();
    assert_eq!(fs::read(given.path().join("given.key")).unwrap(), [9; 32]);

    let nowhere = Home::new().with("ESTRADE_MASTER_KEY_FILE", "no/such/place.key");
    nowhere
        .fail_to_serve()
        .assert(2)
        .assert_says("no/such/place.key");
}

#[tokio::test]
async fn a_first_start_that_is_killed_is_made_good_by_the_next() {
    for _ in 0..10 {
        let home = Home::new();
        let mut first = home.command(serve_args());
        let mut first = first
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random() % 60));
        first.kill().unwrap();
        first.wait().unwrap();
        let server = Server::start(&home);
        assert_eq!(server.me(&home.admin_token()).await, 200);
        server.stop();
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() {
    let home = Home::new();
    let first = Server::start(&home);
    let second = home.fail_to_serve();
    second
        .assert(2)
        .assert_says("another Estrade server is using");
    assert_eq!(second.stdout, "");
    assert_eq!(first.me(&first.token).await, 200);
    first.stop();
    // The lock ends with the process, whatever way that ends.
    Server::start(&home).kill();
    Server::start(&home).stop();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (position, name) in [(2, "platform"), (4, "ai"), (6, "edge")] {
        let mut args: [&str; 7] = serve_args();
        args[position] = &address;
        let ran = home.run(args);
        ran.assert(1)
            .assert_says(&format!("cannot listen on {address} ({name})"));
        assert_eq!(ran.stdout, "");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{ran:?}");
    }
    drop(taken);
    Server::start(&home).stop();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    fs::write(home.data(), "a file").unwrap();
    home.fail_to_serve().assert(2).assert_says("estrade-data");
}

#[test]
fn a_bucket_without_its_keys_is_refused_before_anything_is_made() {
    let bucket = "s3://bucket/prefix";
    let home = Home::new()
        .with("ESTRADE_BLOBS_URL", bucket)
        .with("ESTRADE_BLOBS_SECRET_ACCESS_KEY", "hunter2")
        .with("ESTRADE_BLOBS_REGION", "eu-central-1");
    let ran = home.fail_to_serve();
    ran.assert(2).assert_says("set both");
    assert!(!ran.stderr.contains("hunter2"));
    assert!(!home.data().join("master.key").exists());
    let home = Home::new().with("ESTRADE_BLOBS_URL", "s3://key:hunter2@bucket/prefix");
    let ran = home.fail_to_serve();
    ran.assert(2).assert_says("blobs.access_key_id");
    assert!(!ran.stderr.contains("hunter2"));
    assert!(!home.data().exists());
}

#[test]
fn files_can_lie_in_another_directory() {
    let home = Home::new();
    let files = home.path().join("elsewhere");
    let url = format!("file://{}", files.display());
    let home = home.with("ESTRADE_BLOBS_URL", url);
    Server::start(&home).stop();
    assert!(files.join("installation").exists());
    assert!(!home.data().join("blobs").exists());
    Server::start(&home).stop();
}

#[test]
fn an_unresponsive_database_is_named_without_its_password() {
    let home = Home::new().with(
        "ESTRADE_DATABASE_URL",
        "postgres://estrade:hunter2@127.0.0.1:1/estrade",
    );
    let ran = home.fail_to_serve();
    assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
    assert!(ran.stderr.contains("database"), "{ran:?}");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

/// Everything in a directory but what a running server changes there, by path.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else if !path.ends_with("server.lock") {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// A site that is deployed and can be visited.
async fn deploy_site(server: &Server) {
    server.create_project("site").await;
    let body = json!({"files": [{"path": "index.html", "data": "hello"}]});
    let path = "/v2/projects/site/releases";
    let release = server.platform(Method::POST, path, body).await;
    let id = text(&release.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{id}?wait=READY&timeout=15");
    let release = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(release.assert(200).json()["release"]["state"], "READY");
}

/// What the site's source is made of, which needs its contents.
async fn source_status(server: &Server) -> u16 {
    let path = "/v1/projects/site/releases";
    let releases = server.platform(Method::GET, path, Value::Null).await;
    let id = text(&releases.assert(200).json()["releases"][0]["_id"]);
    let url = format!("{}/v2/releases/{id}/source", server.platform);
    let source = server.client.get(url).bearer_auth(&server.token).send();
    source.await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_lost_database_is_not_taken_for_a_first_start() {
    let home = Home::new();
    let server = Server::start(&home);
    deploy_site(&server).await;
    // Without a clean stop part of the database is in its log.
    server.kill();
    let (database, aside) = (home.data().join("estrade.db"), home.path().join("aside.db"));
    fs::rename(&database, &aside).unwrap();
    let before = tree(&home.data());
    assert!(before.keys().any(|path| path.ends_with("estrade.db-wal")));
    for what in ["missing", "empty"] {
        if what == "empty" {
            fs::write(&database, "").unwrap();
        }
        let refused = home.fail_to_serve();
        refused
            .assert(2)
            .assert_says("missing or empty")
            .assert_says("--new-installation")
            .assert_says("master.key, admin.token, blobs, estrade.db-wal");
        assert_eq!(refused.stdout, "");
        home.run(["account", "list"]).assert(2);
        fs::remove_file(&database).unwrap_or_default();
        assert_eq!(tree(&home.data()), before, "{what}");
    }
    // Schema, but nothing in it: as after a restore that failed.
    let log = home.data().join("estrade.db-wal");
    fs::rename(&log, home.path().join("aside.db-wal")).unwrap();
    let empty = rusqlite::Connection::open(&database).unwrap();
    empty.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(empty);
    home.fail_to_serve().assert(2).assert_says("estrade.db");
    for name in ["estrade.db", "estrade.db-wal", "estrade.db-shm"] {
        fs::remove_file(home.data().join(name)).unwrap_or_default();
    }
    fs::rename(&aside, &database).unwrap();
    fs::rename(home.path().join("aside.db-wal"), log).unwrap();

    let server = Server::start(&home);
    assert_eq!(source_status(&server).await, 200);
    server.stop();
}

#[tokio::test]
async fn a_new_installation_keeps_what_another_one_left() {
    let home = Home::new();
    let server = Server::start(&home);
    deploy_site(&server).await;
    let token = server.token.clone();
    server.stop();
    let serve_new = || {
        let mut command = home.command(serve_args());
        command.arg("--new-installation");
        command
    };
    // Only where there is no database.
    let refused = Ran::of(&serve_new().output().unwrap());
    refused.assert(2).assert_says("has an installation already");

    let database = home.data().join("estrade.db");
    let aside = home.path().join("aside.db");
    fs::rename(&database, &aside).unwrap();
    let blobs = tree(&home.data().join("blobs"));
    let server = Server::start_by(&home, serve_new());
    assert_eq!(server.me(&token).await, 401);
    assert_eq!(server.me(&home.admin_token()).await, 200);
    // A pack without a row, which a clean-up notes. The first one may have come before it; the next one follows the
    // end of a project.
    let pack = "packs/000000000000000000000000.pack";
    fs::write(home.data().join("blobs").join(pack), "").unwrap();
    server.create_project("site").await;
    let deleted = server.platform(Method::DELETE, "/v1/projects/site", Value::Null);
    deleted.await.assert(200);
    let noted = home.data().join("blobs/orphans");
    eventually_or(
        || format!("there was a clean-up\n{}", server.log()),
        || ready(noted.exists()),
    )
    .await;
    server.stop();

    let kept = names_in(&home.data())
        .into_iter()
        .find(|name| name.starts_with("replaced-"));
    let kept = home.data().join(kept.unwrap());
    for (path, bytes) in &blobs {
        let path = path.strip_prefix(home.data()).unwrap();
        assert_eq!(&fs::read(kept.join(path)).unwrap(), bytes);
    }
    // Back to the first one.
    fs::rename(aside, &database).unwrap();
    let refused = home.fail_to_serve();
    refused.assert(2).assert_says("master.key");
    for name in ["blobs", "master.key", "admin.token"] {
        let current = home.data().join(name);
        fs::rename(&current, home.path().join(name)).unwrap();
        fs::rename(kept.join(name), current).unwrap();
    }
    let server = Server::start(&home);
    assert_eq!(server.me(&token).await, 200);
    assert_eq!(source_status(&server).await, 200);
    server.stop();
}

#[tokio::test]
async fn the_files_of_another_installation_are_refused() {
    let key = tempfile::NamedTempFile::new().unwrap();
    fs::write(key.path(), [7; 32]).unwrap();
    let home = || Home::new().with("ESTRADE_MASTER_KEY_FILE", key.path().to_str().unwrap());
    let (one, other) = (home(), home());
    let server = Server::start(&one);
    deploy_site(&server).await;
    server.stop();
    Server::start(&other).stop();
    let (own, foreign) = (other.data().join("blobs"), one.data().join("blobs"));
    fs::remove_dir_all(&own).unwrap();
    fs::rename(&foreign, &own).unwrap();
    let before = tree(&own);
    let refused = other.fail_to_serve();
    refused
        .assert(2)
        .assert_says("files of another installation");
    assert_eq!(tree(&own), before);
    // An installation of an earlier version has no such file, and takes what it has for its own.
    fs::rename(&own, &foreign).unwrap();
    fs::remove_file(foreign.join("installation")).unwrap();
    let server = Server::start(&one);
    assert_eq!(source_status(&server).await, 200);
    server.stop();
    assert!(foreign.join("installation").exists());
}

#[tokio::test]
async fn an_empty_postgresql_database_is_not_taken_for_a_first_start() {
    let (right, wrong) = (Postgres::create().await, Postgres::create().await);
    let key = tempfile::NamedTempFile::new().unwrap();
    fs::write(key.path(), [7; 32]).unwrap();
    let home = Home::new().with("ESTRADE_MASTER_KEY_FILE", key.path().to_str().unwrap());
    let on = |home: &Home, url: &str| {
        let mut command = home.command(serve_args());
        command.env("ESTRADE_DATABASE_URL", url);
        command
    };
    let server = Server::start_by(&home, on(&home, &right.url));
    deploy_site(&server).await;
    server.stop();
    let before = tree(&home.data());
    let refused = Ran::of(&on(&home, &wrong.url).output().unwrap());
    refused.assert(2).assert_says("named by database_url");
    assert_eq!(tree(&home.data()), before);
    // A further node is new, and its database is not.
    let further = Home::new().with("ESTRADE_MASTER_KEY_FILE", key.path().to_str().unwrap());
    Server::start_by(&further, on(&further, &right.url)).stop();
    assert!(!further.data().join("admin.token").exists());
    let refused = Ran::of(&on(&further, &wrong.url).output().unwrap());
    refused.assert(2).assert_says("(blobs)");
    let server = Server::start_by(&home, on(&home, &right.url));
    assert_eq!(source_status(&server).await, 200);
    server.stop();
    right.drop().await;
    wrong.drop().await;
}

#[tokio::test]
async fn a_first_start_goes_on_wherever_it_was_killed() {
    let whole = Home::new();
    Server::start(&whole).stop();
    assert!(!whole.data().join("first-start").exists());
    // In the order in which they are made.
    let steps = ["first-start", "master.key", "admin.token", "estrade.db"];
    for killed_after in 0..=steps.len() {
        let home = Home::new();
        fs::create_dir(home.data()).unwrap();
        // Before any of them there is a database without rows, of which SQLite may have written nothing yet.
        fs::write(home.data().join("estrade.db"), "").unwrap();
        for name in &steps[..killed_after] {
            let to = home.data().join(name);
            if *name == "first-start" {
                fs::write(to, "").unwrap();
            } else {
                fs::copy(whole.data().join(name), to).unwrap();
            }
        }
        let server = Server::start(&home);
        assert_eq!(server.me(&home.admin_token()).await, 200, "{killed_after}");
        server.stop();
        assert!(!home.data().join("first-start").exists());
        fs::remove_file(home.data().join("estrade.db")).unwrap();
        home.fail_to_serve()
            .assert(2)
            .assert_says("missing or empty");
    }
}
