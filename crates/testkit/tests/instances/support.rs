//! Projects with instances that these tests start themselves.

use estrade_model::{OwnerId, ProjectId, ReleaseId};
use estrade_runtime::{EngineHost, Instance, InstanceKey, InstanceSpec, Limits};
use estrade_store::Value as Cell;
use estrade_testkit::{Setup, TestApp, User};
use serde_json::json;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// An app that uses the engine of the tests.
pub(crate) fn engine() -> Setup {
    let socket = std::env::var("ESTRADE_TEST_DOCKER").expect(
        "ESTRADE_TEST_DOCKER is not set: run `./test tests`, which starts a Docker Engine, or set it to the socket \
         of an engine that has the image of tests/docker/base-image as estrade-test/base:1",
    );
    Setup::with(|setup| setup.settings.containers.host = EngineHost::Unix(socket.into()))
}

/// A project with a release that serves, as the database has it.
pub(crate) struct Live {
    pub(crate) owner: OwnerId,
    pub(crate) project: ProjectId,
    pub(crate) release: ReleaseId,
}

pub(crate) async fn new_project(user: &User, name: &str) -> ProjectId {
    let new = json!({"name": name, "platform": "docker", "planID": "nano"});
    let made = user.post("/v1/projects", &new).await.assert(200);
    made.field("/projectID").parse().unwrap()
}

/// Makes a project of `user`, who acts for `owner`, with a release that serves and its image.
pub(crate) async fn new_live(app: &TestApp, user: &User, owner: &str, name: &str) -> Live {
    let project = new_project(user, name).await;
    let release = ReleaseId::generate(app.core().now().millis(), 7);
    let rows = [
        (
            "INSERT INTO releases (id, project_id, number, kind, state, platform, port, settings, created_at,
                finished_at, deadline, lease_until, version)
             VALUES ($1, $2, 1, 'DEPLOY', 'READY', 'docker', 8000, $3, 1, 1, 1, 0, 1)",
            vec![Cell::from(release), Cell::from(project), Cell::from(vec![0_u8; 32])],
        ),
        (
            "UPDATE projects SET current_release = $1 WHERE id = $2",
            vec![Cell::from(release), Cell::from(project)],
        ),
        (
            "INSERT INTO images (id, project_id, created_at) VALUES ($1, $2, 1)",
            vec![Cell::from(release), Cell::from(project)],
        ),
    ];
    let written = app.core().db.transact(move |tx| {
        let rows = rows.clone();
        Box::pin(async move {
            for (sql, row) in rows {
                tx.execute_many(sql, vec![row]).await?;
            }
            Ok::<_, estrade_store::StoreError>(())
        })
    });
    written.await.unwrap();
    Live {
        owner: owner.parse().unwrap(),
        project,
        release,
    }
}

impl Live {
    /// Starts an instance of it that runs this command.
    pub(crate) async fn start(&self, app: &TestApp, number: u32, command: &[&str]) -> Instance {
        let engine = &app.core().engine;
        let spec = InstanceSpec {
            key: InstanceKey {
                owner: self.owner,
                project: self.project,
                release: self.release,
                number,
            },
            revision: 0,
            image: "estrade-test/base:1".parse().unwrap(),
            command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            env: Vec::new(),
            port: 8000,
            limits: Limits {
                memory: 128 * MIB,
                nano_cpus: 500_000_000,
                pids: 64,
                disk: 64 * MIB,
                tmp: 16 * MIB,
            },
            user: None,
            read_only_root: false,
            tmpfs: Vec::new(),
            mounts: Vec::new(),
            hosts: Vec::new(),
        };
        engine.ensure_network(self.owner).await.unwrap();
        let id = engine.run_instance(&spec).await.unwrap();
        engine.instance(&id).await.unwrap().unwrap()
    }
}

/// Removes everything that was started.
pub(crate) async fn clean(app: &TestApp) {
    let engine = &app.core().engine;
    for instance in engine.instances().await.unwrap() {
        engine.remove_instance(&instance.id).await.unwrap();
    }
    for network in engine.networks().await.unwrap() {
        engine.remove_network(&network).await.unwrap();
    }
}

/// Waits until something is so.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    for _ in 0..200 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within ten seconds: {what}");
}
