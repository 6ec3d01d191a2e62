//! An edge with one project, whose releases are rows in a database and whatever the test runs.

use crate::visitor::Visitor;
use estrade_edge::{AccessLog, Edge, EdgeOptions, Instances};
use estrade_listener::{ListenerOptions, Port};
use estrade_model::platform::Platform;
use estrade_model::release::ReleaseType;
use estrade_model::{OwnerId, ProjectId, ReleaseId};
use estrade_service::bootstrap::{self, ADMIN, InstallationPaths};
use estrade_service::{Core, Settings, identity::accounts};
use estrade_store::projects::{self, NewProject};
use estrade_store::releases::{self, ReleaseDraft, ReleaseSpec};
use estrade_store::{ChangeKind, StoreError, networks};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The host of the project.
pub(crate) const HOST: &str = "app.localhost";

/// How the edge is set up.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) edge: EdgeOptions,
    pub(crate) listener: ListenerOptions,
}

pub(crate) struct Stage {
    pub(crate) edge: Arc<Edge>,
    pub(crate) address: SocketAddr,
    pub(crate) project: ProjectId,
    core: Arc<Core>,
    directory: TempDir,
    made: AtomicU32,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// One lane, so that it is known who shares connections with whom.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Setup)) -> Self {
        Self::start_workers(1, change).await
    }

    pub(crate) async fn start_workers(workers: usize, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let directory = TempDir::new().unwrap();
        let paths = InstallationPaths::inside(directory.path());
        let core = bootstrap::open(&paths, Settings::default()).await.unwrap();
        let project = add_project(&core).await;
        let log = directory.path().join("access.log");
        let log = Arc::new(AccessLog::new(Some(log), workers));
        let edge = Edge::open(Arc::clone(&core), setup.edge, Arc::clone(&log));
        let edge = edge.await.unwrap();
        let port = Port::bind(([127, 0, 0, 1], 0).into(), setup.listener, workers);
        let port = port.await.unwrap();
        let (address, stop) = (port.local_addr(), CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(estrade_edge::serve(port, Arc::clone(&edge), stop.clone()));
        running.spawn(Arc::clone(&edge).run(stop.clone()));
        running.spawn(log.run(stop.clone()));
        Self {
            edge,
            address,
            project,
            core,
            directory,
            made: AtomicU32::new(0),
            stop,
            running,
        }
    }

    /// A release that is not live.
    pub(crate) async fn new_release(&self) -> ReleaseId {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let (project, now) = (self.project, self.core.now());
        let id: ReleaseId = format!("{number:024x}").parse().unwrap();
        let spec = ReleaseSpec {
            platform: Platform::Node,
            port: 80,
            settings: Vec::new(),
            image: None,
            artifact: None,
            source: None,
            site: None,
            built: Some(id),
            origin: None,
            env: None,
        };
        let draft = ReleaseDraft {
            id,
            project,
            kind: ReleaseType::Deploy,
            spec,
            message: None,
            git_info: None,
            client: None,
            created_at: now,
            deadline: now,
        };
        let insert = self.core.db.transact(move |tx| {
            let draft = draft.clone();
            Box::pin(async move {
                releases::insert_release(tx, &draft, number.into()).await?;
                tx.query("UPDATE releases SET finished_at = $2 WHERE id = $1")
                    .bind(draft.id)
                    .bind(now)
                    .execute()
                    .await
                    .map(drop)
            })
        });
        insert.await.unwrap();
        id
    }

    /// Makes a release the live one, as its worker would.
    pub(crate) async fn go_live(&self, release: ReleaseId) {
        let (project, now) = (self.project, self.core.now());
        let switch = self.core.db.transact(move |tx| {
            Box::pin(async move {
                projects::set_current_release(tx, project, release, now).await?;
                tx.changed(ChangeKind::Route, project, now).await?;
                Ok::<_, StoreError>(())
            })
        });
        switch.await.unwrap();
    }

    pub(crate) async fn scale(&self, scale: u32) {
        let (project, now) = (self.project, self.core.now());
        let set = self.core.db.transact(move |tx| {
            Box::pin(async move {
                projects::set_scale(tx, project, scale).await?;
                tx.changed(ChangeKind::Route, project, now).await?;
                Ok::<_, StoreError>(())
            })
        });
        set.await.unwrap();
    }

    /// Says where a release can be reached; returns those where it cannot be any more.
    pub(crate) fn publish(&self, release: ReleaseId, addresses: &[SocketAddr]) -> Instances {
        let endpoints = self.edge.routes().endpoints();
        endpoints.publish(self.project, release, addresses)
    }

    /// A new release at these addresses, live.
    pub(crate) async fn serve(&self, addresses: &[SocketAddr]) -> ReleaseId {
        let release = self.new_release().await;
        self.publish(release, addresses);
        self.go_live(release).await;
        release
    }

    pub(crate) async fn visitor(&self) -> Visitor {
        Visitor::connect(self.address, HOST).await
    }

    /// Where requests are noted.
    pub(crate) fn access_log(&self) -> PathBuf {
        self.directory.path().join("access.log")
    }

    /// Stops it; that must not take long.
    pub(crate) async fn finish(mut self) {
        self.stop.cancel();
        let all = async {
            while let Some(ended) = self.running.join_next().await {
                ended.unwrap();
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(10), all).await;
        all.expect("the edge stops");
    }
}

async fn add_project(core: &Arc<Core>) -> ProjectId {
    let admin = accounts::find_account(core, &ADMIN.parse().unwrap()).await;
    let owner: OwnerId = admin.unwrap().id.to_string().parse().unwrap();
    let id: ProjectId = "0123456789abcdef01234567".parse().unwrap();
    let now = core.now();
    let insert = core.db.transact(move |tx| {
        Box::pin(async move {
            let network = networks::find_network(tx, owner, "default").await?;
            let new = NewProject {
                id,
                owner,
                name: "app".into(),
                platform: Platform::Node,
                plan: "nano".into(),
                bundle_plan: "standard".into(),
                network: network.unwrap().id,
                read_only_root: false,
                created_at: now,
            };
            projects::insert_project(tx, &new).await?;
            tx.changed(ChangeKind::Route, id, now).await?;
            Ok::<_, StoreError>(())
        })
    });
    insert.await.unwrap();
    id
}
