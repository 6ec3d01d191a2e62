//! A database that is damaged, or does not take writes: noticed, and said.

use crate::support::{Home, Server, serve_args};
use estrade_testkit::eventually_or;
use reqwest::Method;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Overwrites the first page of a table that no start needs.
fn damage(home: &Home) {
    let file = home.data().join("estrade.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'acme_challenges'";
    let page: u64 = database
        .query_row(sql, [], |row| row.get::<_, u32>(0))
        .unwrap()
        .into();
    drop(database);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0xff; 4096], (page - 1) * 4096).unwrap();
}

#[tokio::test]
async fn a_damaged_database_is_refused_after_a_crash_and_named_when_it_is_used() {
    let home = Home::new();
    Server::start(&home).stop();
    assert!(!home.data().join("running").exists());
    let server = Server::start(&home);
    assert!(home.data().join("running").exists());
    server.kill();
    damage(&home);
    let before = home.file("estrade.db");
    let began = Instant::now();
    let refused = home.fail_to_serve();
    refused
        .assert(2)
        .assert_says("is damaged")
        .assert_says("restore a backup")
        .assert_says("--accept-damaged-database");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(home.file("estrade.db"), before);

    let mut accept = home.command(serve_args());
    accept.arg("--accept-damaged-database");
    let server = Server::start_by(&home, accept);
    let ready = || async {
        let ready = server.platform(Method::GET, "/readyz", Value::Null).await;
        ready.assert(200).json()
    };
    eventually_or(
        || format!("the damage is found\n{}", server.log()),
        || async { ready().await["database"] != "up" },
    )
    .await;
    assert_eq!(
        ready().await,
        json!({"status": "ok", "database": "damaged"})
    );
    let metrics = server.platform(Method::GET, "/metrics", Value::Null).await;
    assert!(metrics.text.contains("estrade_database_damaged 1"));
    assert!(server.stop().contains("THE DATABASE IS DAMAGED"));
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let home = Home::new();
    Server::start(&home).stop();
    let good = home.file("estrade.db");
    let file = home.data().join("estrade.db");
    fs::write(&file, [b'x'; 8192]).unwrap();
    let refused = home.fail_to_serve();
    refused
        .assert(2)
        .assert_says("is damaged")
        .assert_says("restore a backup");
    fs::write(&file, good).unwrap();
    Server::start(&home).stop();
}

#[tokio::test]
async fn a_good_database_is_used_after_a_crash() {
    let home = Home::new();
    for _ in 0..2 {
        Server::start(&home).kill();
    }
    let server = Server::start(&home);
    let ready = server.platform(Method::GET, "/readyz", Value::Null).await;
    assert_eq!(ready.assert(200).json()["database"], "up");
    assert!(server.stop().contains("its database is sound"));
    assert!(!Server::start(&home).stop().contains("in good order"));
}

#[tokio::test]
async fn a_server_is_not_ready_while_its_database_is_locked() {
    let home = Home::new();
    let server = Server::start(&home);
    server.assert_ready(true).await;
    let locked = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    server.assert_ready(false).await;
    locked.execute_batch("ROLLBACK").unwrap();
    server.assert_ready(true).await;
    server.stop();
}
