//! `kill -9` of the engine: an engine of our own, because others use theirs.

use super::own_engine::OwnEngine;
use super::{
    Driver, check_converged, check_nothing_left, delete_all, docker_of, fetch, home_on, image,
    repeats, start,
};
use crate::support::{random, text};
use estrade_testkit::free_port;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

/// Kills of the engine in a full run.
const KILLS: usize = 5;
const PROJECTS: usize = 2;
/// Less than the time after which an engine is looked for that nothing is wanted of.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_shall_run_runs_after_a_kill_of_the_engine() {
    let mut engine = OwnEngine::start().await;
    engine.import_base();
    let socket = engine.socket();
    // Two engines know nothing of each other's networks.
    let home = home_on(&socket).with("ESTRADE_DOCKER_SUBNETS", "10.214.0.0/16");
    let edge = free_port();
    let server = start(&home, edge);
    let docker = docker_of(&home, &socket);
    server.create_project("site").await;
    let page = json!({"files": [{"path": "index.html", "data": "a page"}]});
    let path = "/v2/projects/site/releases";
    let made = server.platform(Method::POST, path, page).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{release}?wait=READY&timeout=20");
    let ready = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(ready.json()["release"]["state"], "READY");
    for round in 0..repeats(KILLS) {
        let mut work = JoinSet::new();
        for project in 0..PROJECTS {
            let driver = Driver::of(&server);
            work.spawn(driver.change(format!("app-{project}")));
        }
        let moment = 2000 + random() % 4000;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        engine.kill();
        // What needs no engine goes on as if nothing had happened.
        assert_eq!(
            fetch(&server, edge, "site").await,
            (200, "a page".to_owned())
        );
        tokio::time::sleep(Duration::from_millis(random() % 3000)).await;
        work.shutdown().await;
        engine.start_again().await;
        check_converged(&server, edge, &docker).await;
        eprintln!("kill {round} of the engine after {moment} ms: settled");
    }
    delete_all(&server, &docker).await;
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_while_the_engine_was_away_goes_once_it_is_back() {
    let mut engine = OwnEngine::start().await;
    engine.import_base();
    let socket = engine.socket();
    let home = home_on(&socket).with("ESTRADE_DOCKER_SUBNETS", "10.215.0.0/16");
    let server = start(&home, free_port());
    let docker = docker_of(&home, &socket);
    let app = json!({"name": "app", "platform": "docker", "planID": "nano"});
    let made = server.platform(Method::POST, "/v1/projects", app).await;
    made.assert(200);
    let path = "/v2/projects/app/releases";
    let made = server.platform(Method::POST, path, image(1)).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{release}?wait=READY&timeout=30");
    let ready = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(ready.json()["release"]["state"], "READY");

    engine.kill();
    let path = "/v1/projects/app";
    let deleted = server.platform(Method::DELETE, path, Value::Null).await;
    deleted.assert(200);
    // Long enough for the server to notice both: an engine that nothing is wanted of is missed silently.
    tokio::time::sleep(Duration::from_secs(3)).await;
    engine.start_again().await;
    check_nothing_left(&server, &docker, REMOVAL_TIMEOUT).await;
    server.stop();
}
