//! An installation of its own on the engine that tests share, and the steps that many tests take.

use crate::sources;
use estrade_runtime::EngineHost;
use estrade_service::platform::containers::ContainerSettings;
pub(crate) use estrade_testkit::eventually;
use estrade_testkit::{Backend, Docker, EdgeClient, Page, Setup, TestApp, User};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long anything may take that should take a moment; builds included.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(50);

/// A running app, somebody who uses it, and a look at the engine past it.
pub(crate) struct ContainerFixture {
    pub(crate) ada: User,
    pub(crate) app: TestApp,
    // After the app: what it still does would make anew what is removed.
    pub(crate) docker: Docker,
}

/// The reply of a sample application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppReply {
    pub(crate) version: String,
    /// The variable `WORD`; `-` when it is not set.
    pub(crate) word: String,
    /// Which instance says it.
    pub(crate) host: String,
}

impl ContainerFixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A fixture whose setup is changed first.
    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let setup = Setup::with(|setup| {
            prepare(&mut setup.settings.containers);
            change(setup);
        });
        let app = TestApp::start_with(Backend::Sqlite, setup).await;
        let installation = app.core().runtime.installation().to_string();
        Self {
            docker: Docker::new(Docker::socket(), installation),
            ada: app.new_account("ada").await,
            app,
        }
    }

    /// Ends the app, which must have been well, and removes what it had on the engine.
    pub(crate) async fn end(self) {
        self.app.finish().await;
        drop(self.docker);
    }

    /// Makes a project of the smallest plan; returns its id.
    pub(crate) async fn create(&self, name: &str, platform: &str) -> String {
        create(&self.ada, name, platform).await
    }

    /// Makes a project of the one server, and waits until it runs; returns its release.
    pub(crate) async fn serve(&self, name: &str) -> String {
        self.create(name, "docker").await;
        self.deploy(name, &sources::server("one")).await
    }

    /// Deploys and waits until visitors get it; returns the release.
    pub(crate) async fn deploy(&self, project: &str, body: &Value) -> String {
        deploy(&self.ada, project, body).await
    }

    /// Asks for a release; returns its id.
    pub(crate) async fn release(&self, project: &str, body: &Value) -> String {
        let path = format!("/v2/projects/{project}/releases");
        let made = self.ada.post(&path, body).await.assert(201);
        made.field("/releaseID")
    }

    /// Uploads an archive; returns the id of the source.
    pub(crate) async fn upload(&self, project: &str, archive: &[u8]) -> String {
        let head = "--x-y-z\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.tar.gz\"\r\n\
                    content-type: application/gzip\r\n\r\n";
        let body = [head.as_bytes(), archive, b"\r\n--x-y-z--\r\n"].concat();
        let path = format!("/v2/projects/{project}/sources");
        let call = self.ada.call(Method::POST, &path).bytes(body);
        let call = call.header("content-type", "multipart/form-data; boundary=x-y-z");
        call.await.assert(200).field("/sourceID")
    }

    /// Posts to a project; 200 or 201.
    pub(crate) async fn act(&self, project: &str, action: &str, body: &Value) {
        let path = format!("/v1/projects/{project}/{action}");
        self.ada.post(&path, body).await.assert(200);
    }

    pub(crate) async fn scale(&self, project: &str, scale: u32) {
        let body = json!({ "scale": scale });
        self.act(project, "actions/scale", &body).await;
    }

    /// Deletes a project.
    pub(crate) async fn delete(&self, project: &str) {
        let path = format!("/v1/projects/{project}");
        self.ada.delete(&path).await.assert(200);
    }

    /// A project as it is read.
    pub(crate) async fn project(&self, name: &str) -> Value {
        let path = format!("/v1/projects/{name}");
        self.ada.get(&path).await.assert(200).json()["project"].clone()
    }

    /// The releases of a project, newest first.
    pub(crate) async fn releases(&self, project: &str) -> Vec<Value> {
        let path = format!("/v1/projects/{project}/releases");
        let list = self.ada.get(&path).await.assert(200).json();
        list["releases"].as_array().unwrap().clone()
    }

    /// The build log of a release.
    pub(crate) async fn build_log(&self, release: &str) -> String {
        let path = format!("/v2/releases/{release}/build-logs");
        let log = self.ada.get(&path).await.assert(200).json();
        let lines = log["buildOutput"].as_array().unwrap();
        lines
            .iter()
            .map(|line| line["line"].as_str().unwrap())
            .collect()
    }

    /// Everything that a user is shown about how a project is: itself, its events, its releases.
    pub(crate) async fn shown(&self, project: &str) -> String {
        let (read, releases) = (self.project(project).await, self.releases(project).await);
        let events = format!("/v1/projects/{project}/events");
        let events = self.ada.get(&events).await.text();
        format!("{read}\n{events}\n{}", Value::Array(releases))
    }

    /// A connection to a project.
    pub(crate) async fn visitor(&self, project: &str) -> EdgeClient {
        EdgeClient::connect(self.app.edge(), &format!("{project}.localhost")).await
    }

    /// One page of a project, on a connection of its own.
    pub(crate) async fn page(&self, project: &str, path: &str) -> Page {
        self.visitor(project).await.get(path).await
    }

    /// The text of a page that must be there.
    pub(crate) async fn text(&self, project: &str, path: &str) -> String {
        let page = self.page(project, path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        page.text().to_owned()
    }

    /// What a sample application says.
    pub(crate) async fn reply(&self, project: &str) -> AppReply {
        AppReply::read(&self.text(project, "/").await)
    }

    /// Waits until exactly so many instances answer.
    pub(crate) async fn answered_by(&self, project: &str, count: usize) {
        eventually(
            &format!("{count} instances of {project} answer"),
            || async {
                let mut hosts = BTreeSet::new();
                for _ in 0..4 * count {
                    let page = self.page(project, "/").await;
                    if page.status != 200 {
                        return false;
                    }
                    hosts.insert(AppReply::read(page.text()).host);
                }
                hosts.len() == count
            },
        )
        .await;
    }

    /// Waits until nothing of this installation is left on the engine.
    pub(crate) async fn nothing_left(&self) {
        let began = Instant::now();
        loop {
            let left = self.docker.left();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "left behind: {left:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl AppReply {
    pub(crate) fn read(text: &str) -> Self {
        let words: Vec<_> = text.split(' ').collect();
        let [version, word, host] = words[..] else {
            panic!("not what a sample says: {text}");
        };
        let [version, word, host] = [version, word, host].map(str::to_owned);
        Self {
            version,
            word,
            host,
        }
    }
}

/// On the engine of the tests, and every platform on their base image.
fn prepare(settings: &mut ContainerSettings) {
    settings.host = EngineHost::Unix(Docker::socket());
    settings.free_disk = 0;
    // It is the machine's, so only tests that are about it touch it.
    settings.firewall = false;
    for platform in ["node", "python"] {
        settings.images.set(platform, Docker::BASE).unwrap();
    }
}

/// Makes a project of the smallest plan; returns its id.
pub(crate) async fn create(user: &User, name: &str, platform: &str) -> String {
    let new = json!({"name": name, "platform": platform, "planID": "nano"});
    let made = user.post("/v1/projects", &new).await.assert(200);
    made.field("/projectID")
}

/// Deploys and waits until visitors get it; returns the release.
pub(crate) async fn deploy(user: &User, project: &str, body: &Value) -> String {
    let path = format!("/v2/projects/{project}/releases");
    let release = user.post(&path, body).await.assert(201).field("/releaseID");
    let ended = ended(user, &release).await;
    assert_eq!(ended["state"], "READY", "{}", explain(user, &ended).await);
    release
}

/// Waits until a release has ended; returns it.
pub(crate) async fn ended(user: &User, release: &str) -> Value {
    let path = format!("/v1/releases/{release}?wait=READY&timeout=55");
    let release = user.get(&path).await.assert(200).json()["release"].clone();
    assert_ne!(release["finishedAt"], Value::Null, "{release}");
    release
}

/// A release and its build log, for a person who has to find out.
async fn explain(user: &User, release: &Value) -> String {
    let id = release["_id"].as_str().unwrap();
    let log = user.get(&format!("/v2/releases/{id}/build-logs")).await;
    format!("{release:#}\n{}", log.text())
}

/// How often something is repeated: all of it with `./test --full`, else a tenth.
pub(crate) fn repeats(all: usize) -> usize {
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    if full { all } else { all.div_ceil(10) }
}
