//! What can be switched on and off: no gap between releases, a read-only file system. And variables of a release.

use crate::sources::server;
use crate::support::{ContainerFixture, ended, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

impl ContainerFixture {
    async fn switch(&self, project: &str, switch: &str) {
        let path = format!("/v1/projects/{project}/{switch}");
        self.ada.post_empty(&path).await.assert(200);
    }
}

/// Notes the most instances that ever ran at once, until it is told to stop.
struct Watch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicUsize>,
    tasks: tokio::task::JoinSet<()>,
}

impl Watch {
    fn begin(fixture: &ContainerFixture) -> Self {
        let (stop, most) = (
            Arc::new(AtomicBool::new(false)),
            Arc::<AtomicUsize>::default(),
        );
        let runtime = Arc::clone(&fixture.app.core().runtime);
        let (until, seen) = (Arc::clone(&stop), Arc::clone(&most));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            while !until.load(Ordering::Relaxed) {
                let all = runtime.instances().await.unwrap();
                let running = |it: &&estrade_runtime::Instance| {
                    it.state == estrade_runtime::InstanceState::Running
                };
                seen.fetch_max(all.iter().filter(running).count(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { stop, most, tasks }
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        self.most.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_zero_downtime_two_never_run_at_once() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("solo").await;
    let watch = Watch::begin(&fixture);
    fixture.deploy("solo", &server("two")).await;
    assert_eq!(watch.end().await, 2, "with it, the new one starts first");
    eventually("the old one is gone", || async {
        fixture.docker.running().len() == 1
    })
    .await;

    fixture.switch("solo", "zero-downtime/disable").await;
    let watch = Watch::begin(&fixture);
    fixture.deploy("solo", &server("three")).await;
    assert_eq!(fixture.reply("solo").await.version, "three");
    let host = fixture.reply("solo").await.host;
    fixture.switch("solo", "actions/restart").await;
    eventually("it has started again", || async {
        let page = fixture.page("solo", "/").await;
        page.status == 200 && !page.text().contains(&host)
    })
    .await;
    // One that fails leaves what was live, which is started again.
    let mut broken = server("four");
    broken["healthCheck"] = json!({"path": "/missing-page", "deadline": 3});
    let release = fixture.release("solo", &broken).await;
    let state = ended(&fixture.ada, &release).await["state"].clone();
    assert_ne!(state, "READY");
    eventually("the one before is back", || async {
        let page = fixture.page("solo", "/").await;
        page.status == 200 && page.text().starts_with("three ")
    })
    .await;
    assert_eq!(watch.end().await, 1);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_file_system_is_switched_while_it_runs() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("fixed").await;
    let read_only = |fixture: &ContainerFixture| {
        let of = |container: &Value| container["HostConfig"]["ReadonlyRootfs"] == true;
        fixture.docker.running().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(read_only(&fixture), [false]);
    fixture.switch("fixed", "read-only/enable").await;
    eventually("it is read-only", || async {
        read_only(&fixture) == [true]
    })
    .await;
    let page = fixture.page("fixed", "/write?path=/var/note&text=x").await;
    assert_eq!(page.status, 500, "{}", page.text());
    fixture.deploy("fixed", &server("two")).await;
    eventually("it stays so", || async { read_only(&fixture) == [true] }).await;
    fixture.switch("fixed", "read-only/disable").await;
    eventually("it is not any more", || async {
        read_only(&fixture) == [false]
    })
    .await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_of_a_release_arrive_by_either_name() {
    let fixture = ContainerFixture::new().await;
    fixture.create("words", "docker").await;
    for (field, variables, word) in [
        ("envs", json!({"WORD": "one"}), "one"),
        ("envVars", json!({"WORD": "two"}), "two"),
        (
            "envVars",
            json!([{"key": "WORD", "value": "three"}]),
            "three",
        ),
        ("envs", json!({"WORD": 4}), "4"),
    ] {
        let mut body = server("v1");
        body[field] = variables;
        fixture.deploy("words", &body).await;
        assert_eq!(fixture.reply("words").await.word, word);
    }
    fixture.end().await;
}
