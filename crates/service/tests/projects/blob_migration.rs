//! Moving files beside a server that deploys: what a run leaves that is cut off in its last step.

use crate::acting::{RunningWorker, code, create, deploy, finished, named, owner, try_deploy};
use crate::support::{Installation, on_both_backends};
use estrade_model::ReleaseId;
use estrade_model::release::ReleaseState;
use estrade_service::blob_migration::{
    self, MigrateError, MigrationEvent, MigrationOptions, MigrationReport, WorkDirectory,
};
use estrade_service::bootstrap::{self, BlobsAt, InstallationPaths, OpenError};
use estrade_service::{Core, Scope, Settings};
use estrade_store::{artifacts, blob_rows};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    a_run_that_was_killed_in_the_last_step_is_taken_back_or_completed
    a_run_that_is_interrupted_in_the_last_step_takes_it_back
    a_move_that_was_killed_at_its_very_end_is_final
}

/// What may happen in the last step.
#[derive(Clone, Copy, PartialEq)]
enum Accident {
    None,
    /// The process ends.
    Kill,
    /// Somebody presses Ctrl-C.
    Interrupt,
}

/// Runs the command; none if it was killed.
async fn migrate(
    at: &Installation,
    from: &BlobsAt,
    to: &Path,
    finish: bool,
    accident: Accident,
) -> Result<Option<Result<MigrationReport, MigrateError>>, OpenError> {
    let paths = InstallationPaths {
        blobs: from.clone(),
        ..at.paths().clone()
    };
    let (db, name) = bootstrap::open_database(&paths).await?;
    let work = WorkDirectory::lock(&paths.data_dir)?;
    let to = BlobsAt::Directory(to.to_owned());
    let migration = blob_migration::open(from, &to, &work, &name).await?;
    let options = MigrationOptions {
        parallel: 2,
        finish,
        accept_damaged: false,
    };
    let stop = CancellationToken::new();
    let is_last = AtomicBool::new(false);
    let report = |event: MigrationEvent| match event {
        MigrationEvent::SwitchBegan => {
            is_last.store(true, Ordering::Relaxed);
            if accident == Accident::Interrupt {
                stop.cancel();
            }
        }
        // Like the end of the process, but for destructors.
        MigrationEvent::PassBegan { .. } if is_last.load(Ordering::Relaxed) => {
            assert!(accident != Accident::Kill, "killed");
        }
        _ => {}
    };
    let run = blob_migration::run(&db, &migration, options, &report, &stop);
    let outcome = AssertUnwindSafe(run).catch_unwind().await;
    db.close().unwrap();
    Ok(outcome.ok())
}

async fn done(at: &Installation, from: &BlobsAt, to: &Path, finish: bool) -> MigrationReport {
    let outcome = migrate(at, from, to, finish, Accident::None).await;
    outcome.unwrap().unwrap().unwrap()
}

/// A release that is live.
async fn ready(core: &Core, ada: &Scope, text: &str) -> ReleaseId {
    let page = text.repeat(500);
    let id = deploy(core, ada, "shop", &[("index.html", page.as_bytes())]).await;
    assert_eq!(finished(core, ada, id).await.state, ReleaseState::Ready);
    id
}

async fn is_refused(core: &Core, ada: &Scope, text: &str) -> bool {
    let files = named(&[("index.html", text.as_bytes())]);
    code(try_deploy(core, ada, "shop", files).await) == "storage_unavailable"
}

/// A server with its files there, if it starts.
async fn server(at: &Installation, blobs: &BlobsAt) -> Result<Arc<Core>, OpenError> {
    let paths = InstallationPaths {
        blobs: blobs.clone(),
        ..at.paths().clone()
    };
    bootstrap::open(&paths, Settings::default()).await
}

async fn is_no_place(at: &Installation, blobs: &BlobsAt) -> bool {
    matches!(server(at, blobs).await, Err(OpenError::Refused(_)))
}

/// Every content that has a row is in the store of this server.
async fn assert_complete(core: &Core, releases: &[ReleaseId]) {
    for id in releases {
        let artifact = core
            .db
            .read("SELECT artifact_id FROM releases WHERE id = $1")
            .bind(*id)
            .fetch_one()
            .await
            .unwrap();
        let manifest = artifacts::read_manifest(&core.db, artifact).await.unwrap();
        let manifest = manifest.unwrap();
        let digests: Vec<_> = manifest.files().iter().map(|file| file.digest).collect();
        let blobs = blob_rows::read_blobs(&core.db, &digests).await.unwrap();
        assert!(!blobs.is_empty());
        for blob in blobs.values() {
            core.blobs.verify(blob).unwrap();
        }
    }
}

/// Where files are, and where they are to be.
fn places(at: &Installation) -> (BlobsAt, TempDir, PathBuf) {
    let other = TempDir::new().unwrap();
    let to = other.path().join("blobs");
    (at.paths().blobs.clone(), other, to)
}

async fn a_run_that_was_killed_in_the_last_step_is_taken_back_or_completed(at: &Installation) {
    let (from, _other, to) = places(at);
    let target = BlobsAt::Directory(to.clone());
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let first = ready(core, &ada, "first").await;
    let report = done(at, &from, &to, false).await;
    assert!(report.copied_objects > 0 && !report.is_finished);
    assert_eq!(done(at, &from, &to, false).await.copied_objects, 0);
    assert!(is_no_place(at, &target).await);

    let second = ready(core, &ada, "second").await;
    let killed = migrate(at, &from, &to, true, Accident::Kill).await;
    assert!(killed.unwrap().is_none());
    assert!(is_refused(core, &ada, "refused").await);
    assert!(is_no_place(at, &from).await && is_no_place(at, &target).await);

    // Taken back: the same server goes on.
    done(at, &from, &to, false).await;
    let third = ready(core, &ada, "third").await;
    server(at, &from).await.unwrap();
    assert!(is_no_place(at, &target).await);

    // Completed.
    let killed = migrate(at, &from, &to, true, Accident::Kill).await;
    assert!(killed.unwrap().is_none());
    let report = done(at, &from, &to, true).await;
    assert!(report.is_finished && report.damaged.is_empty());
    assert!(is_refused(core, &ada, "refused again").await);
    assert!(is_no_place(at, &from).await);
    let again = migrate(at, &from, &to, true, Accident::None).await;
    let refused = again.unwrap_err().to_string();
    assert!(refused.contains("moved"), "{refused}");
    worker.stop().await;
    let new = server(at, &target).await.unwrap();
    assert_complete(&new, &[first, second, third]).await;
    let worker = RunningWorker::start(&new);
    let fourth = ready(&new, &ada, "fourth").await;
    assert_complete(&new, &[fourth]).await;
    worker.stop().await;
}

async fn a_run_that_is_interrupted_in_the_last_step_takes_it_back(at: &Installation) {
    let (from, _other, to) = places(at);
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    ready(core, &ada, "first").await;
    let interrupted = migrate(at, &from, &to, true, Accident::Interrupt).await;
    let outcome = interrupted.unwrap().unwrap();
    assert!(matches!(outcome, Err(MigrateError::Stopped)), "{outcome:?}");
    ready(core, &ada, "second").await;
    server(at, &from).await.unwrap();
    assert!(is_no_place(at, &BlobsAt::Directory(to)).await);
    worker.stop().await;
}

async fn a_move_that_was_killed_at_its_very_end_is_final(at: &Installation) {
    let (from, _other, to) = places(at);
    let target = BlobsAt::Directory(to.clone());
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let first = ready(core, &ada, "first").await;
    worker.stop().await;
    assert!(done(at, &from, &to, true).await.is_finished);
    // As if the last write had not come.
    let unnoted: Result<u64, estrade_store::StoreError> = core
        .db
        .transact(|tx| {
            Box::pin(async move {
                tx.query("UPDATE blob_storage SET former = 0 WHERE slot = 1")
                    .execute()
                    .await
            })
        })
        .await;
    assert_eq!(unnoted.unwrap(), 1);
    let second = server(at, &target).await.unwrap();
    assert!(is_refused(core, &ada, "refused").await);
    // The next move keeps those of the place before it out, and lets none of the first one in.
    let report = done(at, &target, &at.paths().data_dir.join("blobs"), true).await;
    assert!(report.is_finished, "{report:?}");
    assert!(is_refused(&second, &ada, "refused again").await);
    // Its open pack was replaced under it.
    let files = named(&[("index.html", b"refused by the first")]);
    assert_eq!(
        code(try_deploy(core, &ada, "shop", files).await),
        "internal"
    );
    let third = server(at, &from).await.unwrap();
    assert_complete(&third, &[first]).await;
    let worker = RunningWorker::start(&third);
    ready(&third, &ada, "second").await;
    worker.stop().await;
}
