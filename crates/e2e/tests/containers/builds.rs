//! What builds and pulls must not do: reach services of the engine's machine, or use each other's layers.

use crate::isolation::image_with_trigger;
use crate::support::{ContainerFixture, create, ended};
use estrade_testkit::{Docker, User};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SECRET: &str = "the-secret-of-a-service-on-loopback";

/// A service that only this machine is to reach, and how often somebody came.
struct Service {
    address: SocketAddr,
    visits: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let visits = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&visits);
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                if stream.read(&mut request).is_err() {
                    continue;
                }
                let body = format!(r#"{{"errors":[{{"code":"DENIED","message":"{SECRET}"}}]}}"#);
                let head = format!(
                    "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n",
                    body.len()
                );
                let _ = stream.write_all(
                    format!(
                        "{head}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}"
                    )
                    .as_bytes(),
                );
            }
        });
        Self { address, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

fn dockerfile(text: &str) -> Value {
    json!({"type": "docker", "port": 8000, "files": [
        {"path": "Dockerfile", "data": text},
        {"path": "notes.txt", "data": "notes\n"},
    ]})
}

/// How a release ended, and its build log.
async fn outcome(user: &User, project: &str, body: &Value) -> (Value, String) {
    let path = format!("/v2/projects/{project}/releases");
    let release = user.post(&path, body).await.assert(201).field("/releaseID");
    let ended = ended(user, &release).await;
    let log = user
        .get(&format!("/v2/releases/{release}/build-logs"))
        .await;
    (ended, log.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dockerfile_downloads_nothing_from_the_machine_of_the_engine() {
    let fixture = ContainerFixture::new().await;
    let (service, base) = (Service::start(), Docker::BASE);
    fixture.serve("shop").await;
    fixture.create("spy", "docker").await;
    let at = format!("http://{}/secret", service.address);
    let evil = image_with_trigger(&fixture, &format!("ADD {at} /x"));
    for text in [
        format!("FROM {base}\nADD {at} /x\nRUN cat /x && false"),
        format!("FROM {base}\nadd --chown=1:1 {at} /x\nRUN cat /x && false"),
        format!("FROM {base}\nADD [\"{at}\", \"/x\"]\nRUN cat /x && false"),
        format!("FROM {base}\nARG URL={at}\nADD $URL /x\nRUN cat /x && false"),
        format!(
            "FROM {base}\nADD \\\n  ht\"\"tp://{}/ /x\nRUN cat /x && false",
            service.address
        ),
        format!(
            "# syntax={}/x:1\nFROM {base}\nADD {at} /x\nRUN false",
            service.address
        ),
        format!("FROM {evil}\nRUN cat /x && false"),
        format!("FROM {base} AS one\nRUN true\nFROM {evil}\nRUN cat /x && false"),
    ] {
        let (release, log) = outcome(&fixture.ada, "spy", &dockerfile(&text)).await;
        assert_eq!(release["state"], "FAILED", "{text}: {release:#}");
        assert_eq!(
            release["failReason"], "build_refused",
            "{text}: {release:#}"
        );
        let message = release["failMessage"].as_str().unwrap();
        assert!(
            message.contains("ADD ") && !message.contains(SECRET),
            "{message}"
        );
        assert!(
            !log.contains("Step 1") && !log.contains(SECRET),
            "{text}: {log}"
        );
    }
    assert_eq!(service.visits(), 0);
    fixture.docker.request("DELETE", &format!("/images/{evil}"));

    // Files of the sources are added as ever; the directive for another builder is none for this one.
    let text = format!(
        "# syntax={}/x:1\nFROM {base}\nADD notes.txt /x\nRUN cat /x && false",
        service.address
    );
    let (_, log) = outcome(&fixture.ada, "spy", &dockerfile(&text)).await;
    assert!(log.contains("notes\\n"), "{log}");
    assert_eq!(service.visits(), 0);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_do_not_come_from_services_of_the_engines_machine() {
    let (service, base) = (Service::start(), Docker::BASE);
    let port = service.address.port();
    let fixture = ContainerFixture::new().await;
    fixture.create("spy", "docker").await;
    for registry in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("spy.localhost:{port}"),
        "10.0.0.1".to_owned(),
        "169.254.169.254:80".to_owned(),
    ] {
        for body in [
            json!({"type": "docker", "image": format!("{registry}/x:1")}),
            dockerfile(&format!("FROM {registry}/x:1")),
            dockerfile(&format!(
                "FROM {base} AS a\nONBUILD COPY --from={registry}/x:1 /a /b\nFROM a"
            )),
            dockerfile(&format!("FROM {base}\nCOPY --from={registry}/x:1 /a /b")),
        ] {
            let (release, log) = outcome(&fixture.ada, "spy", &body).await;
            assert_eq!(
                release["failReason"], "image_refused",
                "{body}: {release:#}"
            );
            let message = release["failMessage"].as_str().unwrap();
            assert!(message.contains("docker.registries"), "{message}");
            assert!(!log.contains("Pulling"), "{log}");
        }
    }
    assert_eq!(service.visits(), 0);
    fixture.end().await;

    // One that is configured may be asked, and what it answers stays here.
    let fixture = ContainerFixture::with(|setup| {
        let name = format!("127.0.0.1:{port}").parse().unwrap();
        setup.settings.containers.registries = estrade_runtime::Registries::new(vec![name]);
    })
    .await;
    fixture.create("spy", "docker").await;
    let name = format!("127.0.0.1:{port}/x:1");
    for body in [
        json!({"type": "docker", "image": &name}),
        dockerfile(&format!("FROM {name}")),
        dockerfile(&format!("FROM {base}\nCOPY --from={name} /a /b")),
    ] {
        let before = service.visits();
        let (release, log) = outcome(&fixture.ada, "spy", &body).await;
        assert!(service.visits() > before, "{release:#}");
        assert_eq!(release["failReason"], "image_unavailable", "{release:#}");
        assert!(!release.to_string().contains(SECRET), "{release:#}");
        assert!(!log.contains(SECRET), "{log}");
    }
    fixture.end().await;
}

/// How many steps were taken from earlier builds.
fn cached(log: &str) -> usize {
    log.matches("Using cache").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_uses_layers_of_others() {
    let fixture = ContainerFixture::new().await;
    let bob = fixture.app.new_account("bob").await;
    fixture.create("mine", "docker").await;
    create(&bob, "theirs", "docker").await;
    let text = format!(
        "FROM {base} AS one\nRUN head -c 16 /dev/urandom | od -An -tx1\nRUN env | grep -i proxy || true\nFROM scratch\nCOPY notes.txt /n\nFROM one\nRUN false\n",
        base = Docker::BASE
    );
    let mut body = dockerfile(&text);
    let (_, log) = outcome(&fixture.ada, "mine", &body).await;
    assert_eq!(cached(&log), 0, "{log}");
    let (_, log) = outcome(&fixture.ada, "mine", &body).await;
    // The label and two steps of the first stage, the label and one of the second.
    assert_eq!(cached(&log), 5, "{log}");
    let (_, log) = outcome(&bob, "theirs", &body).await;
    assert_eq!(cached(&log), 0, "{log}");
    fixture.create("mine-second", "docker").await;
    let (_, log) = outcome(&fixture.ada, "mine-second", &body).await;
    assert_eq!(cached(&log), 0, "{log}");
    // What is the same for the engine, and may do anything to what a step downloads.
    body["build"] = json!({"args": {"http_proxy": "http://192.0.2.1:3128"}});
    let (_, log) = outcome(&fixture.ada, "mine", &body).await;
    assert_eq!(cached(&log), 0, "{log}");
    assert!(log.contains("192.0.2.1"), "{log}");

    // Sources of a platform are built with layers of their owner, too.
    create(&fixture.ada, "mine-too", "node").await;
    let carol = fixture.app.new_account("carol").await;
    create(&carol, "theirs-too", "node").await;
    let package = r#"{"scripts": {"start": "node x.js", "build": "node x.js && exit 1"}}"#;
    let sources = json!({"files": [
        {"path": "package.json", "data": package}, {"path": "x.js", "data": "console.log(Math.random())"},
    ]});
    outcome(&fixture.ada, "mine-too", &sources).await;
    let (_, log) = outcome(&fixture.ada, "mine-too", &sources).await;
    assert!(cached(&log) > 0, "{log}");
    let (_, log) = outcome(&carol, "theirs-too", &sources).await;
    assert_eq!(cached(&log), 0, "{log}");
    fixture.end().await;
}

/// A file of the engine that is not where it belongs, and is put back at the end.
struct Away(PathBuf);

impl Away {
    fn new(path: &Path) -> Self {
        std::fs::rename(path, path.with_extension("away")).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let _ = std::fs::rename(self.0.with_extension("away"), &self.0);
    }
}

/// The file in which the engine has the last layer of a build.
fn last_layer(fixture: &ContainerFixture, log: &str) -> PathBuf {
    let layer = log
        .lines()
        .flat_map(|line| line.split("---\\u003e ").chain(line.split("---> ")));
    let ids = layer.filter_map(|rest| rest.get(..12));
    let ids: Vec<_> = ids
        .filter(|id| id.bytes().all(|b| b.is_ascii_hexdigit()))
        .collect();
    let last = ids.last().unwrap_or_else(|| panic!("no layer in {log}"));
    let docker = &fixture.docker;
    let (_, image) = docker.request("GET", &format!("/images/{last}/json"));
    let id = image["Id"].as_str().unwrap().trim_start_matches("sha256:");
    let (_, info) = docker.request("GET", "/info");
    let root = Path::new(info["DockerRootDir"].as_str().unwrap());
    let driver = info["Driver"].as_str().unwrap();
    root.join(format!("image/{driver}/imagedb/content/sha256/{id}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_whose_cache_goes_away_is_repeated_without() {
    let fixture = ContainerFixture::new().await;
    fixture.create("mine", "docker").await;
    let text = format!(
        "FROM {}\nRUN echo made && date +%N\nRUN false\n",
        Docker::BASE
    );
    let body = dockerfile(&text);
    let (_, log) = outcome(&fixture.ada, "mine", &body).await;
    // As after somebody removed the layer between two looks of the engine.
    let away = Away::new(&last_layer(&fixture, &log));
    let (release, log) = outcome(&fixture.ada, "mine", &body).await;
    drop(away);
    assert!(log.contains("once more without"), "{log}");
    // The step that fails of itself is reached again.
    assert!(log.contains("\"line\":\"made\\n\""), "{log}");
    assert_eq!(release["failReason"], "build_failed", "{release:#}");
    assert!(
        release["failMessage"].as_str().unwrap().contains("false"),
        "{release:#}"
    );
    fixture.end().await;
}

/// The engine fails a build when a layer of any project that stands on the same base is removed while it looks at all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_meets_the_removal_of_other_layers_keeps_its_own() {
    let fixture = ContainerFixture::new().await;
    fixture.create("mine", "docker").await;
    fixture.create("other", "docker").await;
    let text = |step: &str| dockerfile(&format!("FROM {}\nRUN {step}\n", Docker::BASE));
    outcome(&fixture.ada, "mine", &text("date +%N && false")).await;
    let (_, log) = outcome(&fixture.ada, "other", &text("echo made && false")).await;
    let away = Away::new(&last_layer(&fixture, &log));

    let mine = fixture.release("mine", &text("date +%N && false")).await;
    while !fixture.build_log(&mine).await.contains("once more") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(away);
    ended(&fixture.ada, &mine).await;
    let log = fixture.build_log(&mine).await;
    assert!(!log.contains("once more without"), "{log}");
    assert!(cached(&log) > 0, "{log}");
    fixture.end().await;
}
