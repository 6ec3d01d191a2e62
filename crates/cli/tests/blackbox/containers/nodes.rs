//! Two nodes, of which one has an engine.

use super::{fetch, home_on, image, start};
use crate::support::{Postgres, Server, text};
use estrade_testkit::{Docker, eventually_or, free_port};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

/// How many releases are made: either node could take each of them.
const RELEASES: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_with_the_engine_builds_and_runs_what_is_deployed_on_another() {
    let (database, keys) = (Postgres::create().await, tempfile::TempDir::new().unwrap());
    let key = keys.path().join("master.key");
    let home = |socket: &Path| {
        home_on(socket)
            .with("ESTRADE_DATABASE_URL", &*database.url)
            .with("ESTRADE_MASTER_KEY_FILE", key.to_str().unwrap())
    };
    let socket = Docker::socket();
    let (with_engine, edge) = (home(&socket), free_port());
    let (without, other_edge) = (home(&keys.path().join("no.sock")), free_port());
    let with_docker = start(&with_engine, edge);
    let mut other = start(&without, other_edge);
    other.token.clone_from(&with_docker.token);
    eventually_or(
        || format!("both know who has the engine\n{}", other.log()),
        || async { engines(&other).await == 1 && engines(&with_docker).await == 1 },
    )
    .await;

    let new = json!({"name": "shop", "platform": "docker", "planID": "nano"});
    let made = other.platform(Method::POST, "/v1/projects", new).await;
    made.assert(200);
    for version in 0..RELEASES {
        let path = "/v2/projects/shop/releases";
        let made = other.platform(Method::POST, path, image(version)).await;
        let release = text(&made.assert(201).json()["releaseID"]);
        let path = format!("/v1/releases/{release}?wait=READY&timeout=50");
        let read = other.platform(Method::GET, &path, Value::Null).await;
        let read = read.assert(200).json();
        assert_eq!(
            read["release"]["state"],
            "READY",
            "{read:#}\n{}",
            with_docker.log()
        );
        let served = fetch(&with_docker, edge, "shop").await;
        assert_eq!((served.0, served.1.trim()), (200, &*version.to_string()));
    }
    // It has nothing that it could send the request to.
    assert_eq!(fetch(&other, other_edge, "shop").await.0, 503);

    let name = "SELECT name FROM installation";
    let name = database.column(name).await.remove(0);
    let deleted = other.platform(Method::DELETE, "/v1/projects/shop", Value::Null);
    deleted.await.assert(200);
    let docker = Docker::new(&socket, name);
    super::check_nothing_left(&with_docker, &docker, super::SETTLE_TIMEOUT).await;
    other.stop();
    with_docker.stop();
    database.drop().await;
}

/// How many nodes that are alive have an engine, by what one of them says.
async fn engines(server: &Server) -> usize {
    let list = server.platform(Method::GET, "/v1/admin/nodes", Value::Null);
    let list = list.await.assert(200).json();
    let nodes = list["nodes"].as_array().unwrap().iter();
    let alive = nodes.filter(|node| node["state"] == "alive");
    alive.filter(|node| node["hasEngine"] == true).count()
}
