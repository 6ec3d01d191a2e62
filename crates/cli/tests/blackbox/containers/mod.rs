//! `kill -9` of the server or of the engine in the middle of work: what shall run is what runs, soon after.

mod engine_kills;
mod images;
mod kills;
mod logs;
mod nodes;
mod own_engine;
mod restore;
mod shell;

use crate::support::{Home, Server, random, serve_args, text};
use estrade_testkit::Docker;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it may take until everything is as it should be.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);

/// A home whose server uses this engine.
fn home_on(socket: &Path) -> Home {
    Home::new()
        .with(
            "ESTRADE_DOCKER_HOST",
            format!("unix://{}", socket.display()),
        )
        .with("ESTRADE_DOCKER_FREE_DISK_GB", "0")
        .with("ESTRADE_DOCKER_FIREWALL", "false")
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
}

/// Starts the server of a home; clients come on this port.
fn start(home: &Home, edge: u16) -> Server {
    let edge = format!("127.0.0.1:{edge}");
    let mut args = serve_args();
    args[6] = &edge;
    Server::start_by(home, home.command(args))
}

/// What the installation of a home has on an engine.
fn docker_of(home: &Home, socket: &Path) -> Docker {
    let database = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
    let sql = "SELECT name FROM installation";
    let name: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
    Docker::new(socket, name)
}

/// A release of a server that says its version; light, because there are many of them.
fn image(version: u64) -> Value {
    let script = format!(
        "mkdir /tmp/www && echo {version} >/tmp/www/index.html && exec busybox httpd -f -p 8000 -h /tmp/www"
    );
    json!({
        "type": "docker", "image": Docker::BASE, "port": 8000, "message": version.to_string(),
        "args": ["sh", "-c", script],
    })
}

/// Carries out requests until the server is gone.
struct Driver {
    http: reqwest::Client,
    platform: String,
    token: String,
}

impl Driver {
    fn of(server: &Server) -> Self {
        Self {
            http: server.client.clone(),
            platform: server.platform.clone(),
            token: server.token.clone(),
        }
    }

    /// Nothing when the server did not respond to the end.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.platform));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.bearer_auth(&self.token).send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        assert!(status < 500, "{path}: {status} {text}");
        Some((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    async fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Changes a project in every way there is, until the server is gone.
    async fn change(self, project: String) {
        while self.change_once(&project).await.is_some() {
            tokio::time::sleep(Duration::from_millis(random() % 400)).await;
        }
    }

    async fn change_once(&self, project: &str) -> Option<()> {
        let path = format!("/v1/projects/{project}");
        let new = json!({"name": project, "platform": "docker", "planID": "nano"});
        match random() % 8 {
            0..=2 => {
                let releases = format!("/v2/projects/{project}/releases");
                let (_, made) = self.post(&releases, &image(random())).await?;
                // Mostly it comes to its end before something else begins.
                if let (Some(release), true) =
                    (made["releaseID"].as_str(), !random().is_multiple_of(4))
                {
                    let path = format!("/v1/releases/{release}?wait=READY&timeout=5");
                    self.send(Method::GET, &path, None).await?;
                }
            }
            3 | 4 => {
                let scale = json!({"scale": random() % 3});
                self.post(&format!("{path}/actions/scale"), &scale).await?;
            }
            5 => {
                let restart = format!("{path}/actions/restart");
                self.send(Method::POST, &restart, None).await?;
            }
            6 => {
                let envs = json!([{"key": "WORD", "value": random().to_string()}]);
                let body = json!({"project": project, "variables": envs});
                self.post("/v1/projects/update-envs", &body).await?;
            }
            _ => {
                self.send(Method::DELETE, &path, None).await?;
            }
        }
        // It may have been deleted, just now or before.
        self.post("/v1/projects", &new).await.map(|_| ())
    }
}

/// Waits until exactly those instances run that shall, and clients get the release that they shall get.
async fn check_converged(server: &Server, edge: u16, docker: &Docker) {
    let began = Instant::now();
    loop {
        let difference = difference(server, edge, docker).await;
        let Some(difference) = difference else { return };
        assert!(
            began.elapsed() < SETTLE_TIMEOUT,
            "it does not settle: {difference}\n{}\n{}",
            happened(server).await,
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// How the projects are, and what happened to them lately.
async fn happened(server: &Server) -> String {
    let mut told = String::new();
    let get = |path: String| async move {
        let response = server.platform(Method::GET, &path, Value::Null).await;
        response.assert(200).json()
    };
    let list = get("/v1/projects".into()).await;
    for project in list["projects"].as_array().unwrap() {
        let name = text(&project["project_id"]);
        let events = get(format!("/v1/projects/{name}/events")).await;
        let events = events["data"].as_array().unwrap().iter().take(30);
        let events: Vec<_> = events
            .map(|it| format!("{} {}", it["action"], it["status"]))
            .collect();
        let (status, reason) = (&project["status"], &project["failReason"]);
        let events = events.join("\n  ");
        let _ = writeln!(told, "{name} {status} {reason}\n  {events}");
    }
    told
}

/// What is not as it shall be.
async fn difference(server: &Server, edge: u16, docker: &Docker) -> Option<String> {
    let get = |path: String| async move {
        let response = server.platform(Method::GET, &path, Value::Null).await;
        response.assert(200).json()
    };
    let list = get("/v1/projects".into()).await;
    let (mut wanted, mut ids, mut live) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let projects = list["projects"].as_array().unwrap().iter();
    for project in projects.filter(|project| project["type"] != "static") {
        let (id, name) = (text(&project["_id"]), text(&project["project_id"]));
        let releases = get(format!("/v1/projects/{name}/releases")).await;
        let all = releases["releases"].as_array().unwrap();
        if let Some(open) = all.iter().find(|release| release["finishedAt"].is_null()) {
            return Some(format!("a release is on its way: {open}"));
        }
        let scale = project["scale"].as_u64().unwrap();
        if let Some(current) = releases["currentRelease"].as_str() {
            wanted.extend((1..=scale).map(|number| format!("{id} {current} {number}")));
            live.push((name, scale, version_of(all, current)));
        }
        ids.insert(id);
    }
    let runs = docker.instances();
    if !runs.iter().eq(wanted.iter()) {
        return Some(format!("wanted {wanted:#?}, there are {runs:#?}"));
    }
    let image_of = |image: &&String| ids.iter().any(|id| image.contains(id.as_str()));
    let images = docker.images();
    if let Some(orphan) = images.iter().find(|image| !image_of(image)) {
        return Some(format!("an image of nobody: {orphan}"));
    }
    for (name, scale, version) in live {
        let (status, page) = fetch(server, edge, &name).await;
        let expected = if scale == 0 { 503 } else { 200 };
        if status != expected || scale > 0 && page.trim() != version {
            return Some(format!(
                "{name} responds {status} {page}, not {expected} {version}"
            ));
        }
    }
    None
}

/// The version of a release: its own, or that of the one before it whose image it took over.
fn version_of(releases: &[Value], current: &str) -> String {
    let from_current = releases
        .iter()
        .skip_while(|release| release["_id"] != current);
    let deployed =
        from_current.filter(|release| release["type"] == "DEPLOY" && release["state"] == "READY");
    let version = deployed.map(|release| text(&release["message"])).next();
    version.unwrap_or_default()
}

async fn fetch(server: &Server, edge: u16, project: &str) -> (u16, String) {
    let request = server.client.get(format!("http://127.0.0.1:{edge}/"));
    let host = format!("{project}.localhost");
    match request.header("host", host).send().await {
        Ok(response) => (
            response.status().as_u16(),
            response.text().await.unwrap_or_default(),
        ),
        Err(error) => (0, error.to_string()),
    }
}

/// Deletes every project, and waits until nothing is left of any.
async fn delete_all(server: &Server, docker: &Docker) {
    let list = server
        .platform(Method::GET, "/v1/projects", Value::Null)
        .await;
    for project in list.json()["projects"].as_array().unwrap() {
        let path = format!("/v1/projects/{}", text(&project["_id"]));
        let deleted = server.platform(Method::DELETE, &path, Value::Null).await;
        deleted.assert(200);
    }
    check_nothing_left(server, docker, SETTLE_TIMEOUT).await;
}

/// Waits until the engine has nothing more of an installation.
async fn check_nothing_left(server: &Server, docker: &Docker, within: Duration) {
    let began = Instant::now();
    loop {
        let left = docker.left();
        if left.is_empty() {
            return;
        }
        let over = began.elapsed() >= within;
        if over && docker.has_lost_count() {
            eprintln!("the engine has lost count, and keeps {left:?}");
            return;
        }
        assert!(
            !over,
            "left: {left:#?}\n{:#?}\n{}",
            docker.networks(),
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// How often something is repeated: all of it with `./test --full`, else a tenth.
fn repeats(all: usize) -> usize {
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    if full { all } else { all.div_ceil(10) }
}
