//! `estrade images` with an engine, and builds on images of a mirror.

use super::{SETTLE_TIMEOUT, docker_of, home_on};
use crate::support::{Server, random, text};
use estrade_testkit::Docker;
use reqwest::Method;
use serde_json::{Value, json};

/// Names of images under a registry that nobody runs. They are removed at the end.
struct LocalMirror {
    docker: Docker,
    prefix: String,
    names: Vec<String>,
}

impl LocalMirror {
    fn new() -> Self {
        Self {
            // An installation that has nothing.
            docker: Docker::new(Docker::socket(), "none"),
            // Nothing listens on that port.
            prefix: format!("127.0.0.1:1/m{}", random()),
            names: Vec::new(),
        }
    }

    /// Gives the tests' image this name.
    fn add(&mut self, image: &str) {
        let (repository, tag) = image.split_once(':').unwrap();
        let repository = format!("{}/{repository}", self.prefix);
        let path = format!("/images/{}/tag?repo={repository}&tag={tag}", Docker::BASE);
        assert_eq!(self.docker.request("POST", &path).0, 201);
        self.names.push(format!("{repository}:{tag}"));
    }
}

impl Drop for LocalMirror {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = self.docker.request("DELETE", &format!("/images/{name}"));
        }
    }
}

#[test]
fn what_is_present_is_not_fetched_and_what_is_not_is_named() {
    let mut mirror = LocalMirror::new();
    mirror.add("golang:1.25");
    let home = home_on(&Docker::socket()).with("ESTRADE_DOCKER_MIRROR", &mirror.prefix);
    let (go, run) = (
        format!("{}/golang:1.25", mirror.prefix),
        format!("{}/debian:trixie-slim", mirror.prefix),
    );
    let listed = home.run(["images", "list", "go"]);
    let states: Vec<Vec<&str>> = listed
        .assert(0)
        .stdout
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(states, [[go.as_str(), "present"], [run.as_str(), "absent"]]);

    let pulled = home.run(["images", "pull", "go"]);
    assert_eq!(pulled.assert(1).stdout, format!("present  {go}\n"));
    pulled.assert_says(&format!("error: {run}: "));
    pulled.assert_says("docker.mirror");

    mirror.add("debian:trixie-slim");
    let pulled = home.run(["images", "pull", "go"]);
    let all = format!("present  {go}\npresent  {run}\n");
    assert_eq!(pulled.assert(0).stdout, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_take_their_base_images_from_the_mirror() {
    let mut mirror = LocalMirror::new();
    mirror.add("node:22-slim");
    let home = home_on(&Docker::socket()).with("ESTRADE_DOCKER_MIRROR", &mirror.prefix);
    let server = Server::start(&home);
    let docker = docker_of(&home, &Docker::socket());

    let package = json!({"scripts": {"start": "node server.js"}}).to_string();
    let body = json!({"files": [{"path": "package.json", "data": package}, {"path": "server.js", "data": "0"}]});
    let (release, log) = deploy(&server, "node", &body).await;
    let name = format!("{}/node:22-slim", mirror.prefix);
    assert!(log.contains(&format!("{name} is sha256:")), "{log}");

    assert_ne!(release["failReason"], "image_unavailable", "{release:#}");

    // One that the mirror does not have is named, with what to do.
    let body = json!({"files": [{"path": "requirements.txt", "data": "six"}, {"path": "main.py", "data": "0"}]});
    let (release, log) = deploy(&server, "python", &body).await;
    assert_eq!(release["failReason"], "image_unavailable", "{release:#}");
    let message = text(&release["failMessage"]);
    let begin = format!(
        "the base image {}/python:3.13-slim is not here",
        mirror.prefix
    );
    assert!(message.starts_with(&begin), "{message}");
    assert!(message.contains("estrade images pull"), "{message}");
    assert!(!log.contains("docker.io"), "{log}");
    drop(docker);
}

/// Deploys to a new project of this platform, and waits for the end: the release and its build log.
async fn deploy(server: &Server, platform: &str, body: &Value) -> (Value, String) {
    let name = format!("{platform}-app");
    let project = json!({"name": name, "platform": platform, "planID": "nano"});
    let made = server.platform(Method::POST, "/v1/projects", project).await;
    made.assert(200);
    let path = format!("/v2/projects/{name}/releases");
    let made = server.platform(Method::POST, &path, body.clone()).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    let wait = SETTLE_TIMEOUT.as_secs();
    let path = format!("/v1/releases/{release}?wait=READY&timeout={wait}");
    let ended = server.platform(Method::GET, &path, Value::Null).await;
    let path = format!("/v2/releases/{release}/build-logs");
    let log = server.platform(Method::GET, &path, Value::Null).await;
    let lines = log.assert(200).json()["buildOutput"].clone();
    let lines = lines.as_array().cloned().unwrap_or_default();
    let lines: String = lines.iter().map(|line| text(&line["line"])).collect();
    (ended.json()["release"].clone(), lines)
}
