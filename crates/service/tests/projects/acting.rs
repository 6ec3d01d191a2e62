//! What people do in these tests.

use crate::support::Installation;
use estrade_model::names::ProjectName;
use estrade_model::platform::Platform;
use estrade_model::project::{CreateProject, Project};
use estrade_model::release::{NewRelease, Release, ReleaseState};
use estrade_model::team::Role;
use estrade_model::{Id, ReleaseId};
use estrade_service::platform::releases::worker::Worker;
use estrade_service::platform::releases::{self, EagerCompressor, Source, Upload};
use estrade_service::{Core, Result, Scope, Services, platform::projects};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The stable code of a refusal, or `ok`.
pub(crate) fn code<T>(answer: Result<T>) -> &'static str {
    answer.map_or_else(|error| error.code(), |_| "ok")
}

/// A new person in their own scope.
pub(crate) async fn owner(at: &Installation, name: &str) -> Scope {
    let caller = at.person(name).await;
    Scope::own(caller)
}

/// The same things, seen with another role.
pub(crate) fn with_role(scope: &Scope, role: Role) -> Scope {
    let mut scope = scope.clone();
    scope.role = role;
    scope
}

pub(crate) fn new_project(name: &str) -> CreateProject {
    CreateProject {
        name: ProjectName::try_from(name.to_owned()).unwrap(),
        platform: Platform::Static,
        plan_id: "nano".into(),
        bundle_plan_id: None,
        network: None,
        read_only_root: None,
    }
}

pub(crate) async fn create(core: &Core, scope: &Scope, name: &str) -> Project {
    projects::create_project(core, scope, new_project(name))
        .await
        .unwrap()
}

/// Hands files to an upload as the HTTP layer does.
pub(crate) async fn add_files(
    mut upload: Upload,
    files: Vec<(String, Vec<u8>)>,
) -> Result<Box<Upload>> {
    tokio::task::spawn_blocking(move || {
        for (path, content) in files {
            upload.add_file(path, &content)?;
        }
        Ok(Box::new(upload))
    })
    .await
    .unwrap()
}

pub(crate) fn named(files: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    files
        .iter()
        .map(|(path, content)| ((*path).to_owned(), content.to_vec()))
        .collect()
}

pub(crate) async fn try_deploy(
    core: &Core,
    scope: &Scope,
    project: &str,
    files: Vec<(String, Vec<u8>)>,
) -> Result<ReleaseId> {
    let upload = releases::begin_upload(core, &EagerCompressor::default(), scope, project).await?;
    let source = Source::Files(add_files(upload, files).await?);
    releases::create_release(core, scope, project, NewRelease::default(), source).await
}

pub(crate) async fn deploy(
    core: &Core,
    scope: &Scope,
    project: &str,
    files: &[(&str, &[u8])],
) -> ReleaseId {
    try_deploy(core, scope, project, named(files))
        .await
        .unwrap()
}

pub(crate) async fn read(core: &Core, scope: &Scope, id: ReleaseId) -> Release {
    releases::read_release(core, scope, id).await.unwrap().0
}

/// Waits until a release is finished.
pub(crate) async fn finished(core: &Core, scope: &Scope, id: ReleaseId) -> Release {
    let patience = Duration::from_secs(20);
    let (release, _) = releases::wait_release(core, scope, id, ReleaseState::Ready, patience)
        .await
        .unwrap();
    assert!(release.state.is_terminal(), "{release:?}");
    release
}

/// A worker that runs until it is stopped or dropped.
pub(crate) struct RunningWorker {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl RunningWorker {
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        Self::start_with(Services::new(core).unwrap())
    }

    pub(crate) fn start_with(services: Services) -> Self {
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        let (fleet, eager_compressor) = (services.fleet, services.eager_compressor);
        let nodes = services.nodes;
        task.spawn(Worker::run(fleet, eager_compressor, nodes, stop.clone()));
        Self { stop, task }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(done) = self.task.join_next().await {
            done.unwrap();
        }
    }
}

/// The number that a query counts, past the services.
pub(crate) async fn count(core: &Core, sql: &'static str) -> i64 {
    core.db.read(sql).fetch_one().await.unwrap()
}

/// How long all packs and files are together: many releases may share one pack.
pub(crate) fn bytes_on_disk(core: &Core) -> u64 {
    let places = core.blobs.objects().unwrap();
    places.map(|entry| entry.unwrap().size).sum()
}

/// An id that names nothing.
pub(crate) fn nobody<T>() -> Id<T> {
    "0123456789abcdef01234567".parse().unwrap()
}
