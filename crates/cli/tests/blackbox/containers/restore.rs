//! A backup that is restored onto an engine that has nothing of it.

use super::{delete_all, docker_of, fetch, home_on, start};
use crate::support::text;
use estrade_testkit::{Docker, eventually_or, free_port};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_server_builds_again_what_its_engine_does_not_have() {
    let socket = Docker::socket();
    let (home, edge) = (home_on(&socket), free_port());
    let server = start(&home, edge);
    let docker = docker_of(&home, &socket);
    let new = json!({"name": "shop", "platform": "docker", "planID": "nano"});
    let made = server.platform(Method::POST, "/v1/projects", new).await;
    made.assert(200);
    let dockerfile = format!(
        "FROM {}\nRUN mkdir /www && echo built >/www/index.html\n\
         CMD [\"busybox\", \"httpd\", \"-f\", \"-p\", \"8000\", \"-h\", \"/www\"]\n",
        Docker::BASE
    );
    let files = json!([{"path": "Dockerfile", "data": dockerfile}]);
    let body = json!({"type": "docker", "port": 8000, "files": files});
    let path = "/v2/projects/shop/releases";
    let made = server.platform(Method::POST, path, body).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    eventually_or(
        || format!("{release} is served\n{}", server.log()),
        || async { fetch(&server, edge, "shop").await.0 == 200 },
    )
    .await;
    server.stop();
    docker.clean();

    // The files of a backup, in an empty directory.
    let restored = home_on(&socket);
    std::fs::create_dir_all(restored.data()).unwrap();
    for name in ["estrade.db", "blobs", "master.key", "admin.token"] {
        let copied = Command::new("cp")
            .arg("-a")
            .args([home.data().join(name), restored.data().join(name)])
            .status();
        assert!(copied.unwrap().success(), "{name}");
    }
    let server = start(&restored, edge);
    let began = Instant::now();
    eventually_or(
        || format!("it is served again\n{}", server.log()),
        || async { fetch(&server, edge, "shop").await.0 == 200 },
    )
    .await;
    let (_, page) = fetch(&server, edge, "shop").await;
    assert_eq!(page.trim(), "built");
    eprintln!("served again {:?} after the start", began.elapsed());
    let path = "/v1/projects/shop/releases";
    let releases = server.platform(Method::GET, path, Value::Null).await.json();
    let newest = &releases["releases"][0];
    assert_ne!(newest["_id"], release.as_str(), "{newest}");
    assert_eq!(newest["state"], "READY", "{newest}");
    delete_all(&server, &docker).await;
    server.stop();
}
