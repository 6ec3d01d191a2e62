//! Releases: made from files, run through their states by the worker, listed, canceled, rolled back.
//!
//! ```text
//! begin_upload → Upload::add_file … → create_release      a request
//! Worker::run → Claim → steps::run_release                   the worker, in the background
//! transition::apply_transition                                        the one place where a state changes
//! ```

mod archive;
mod build;
mod build_log;
mod build_slots;
mod claim;
mod compress;
mod create;
mod download;
mod incoming;
mod known;
mod layout;
mod limits;
mod read;
mod schedule;
mod site_rules;
mod sources;
mod step_error;
mod steps;
mod transition;
mod unpack;
mod upload;
pub mod worker;

pub use build_log::read_build_logs;
pub(crate) use build_slots::BuildSlots;
pub use claim::Claim;
pub(crate) use compress::EagerCompressor;
pub use compress::run_brotli;
pub(crate) use create::open_settings;
pub use create::{MAX_GIT_INFO_BYTES, MAX_SETTINGS_BYTES, Source, create_release};
pub use download::{SourceDownload, SourceStream, download_source};
pub use incoming::{IncomingContent, ReceivedContent, begin_content, keep_upload};
pub use read::{ReleaseSummary, list_releases, read_release, summarize_releases, wait_release};
pub use sources::create_source;
pub use transition::Failure;
pub(crate) use transition::presentable;
pub use upload::{Upload, begin_upload};
pub use worker::{Worker, end_overdue};

use crate::platform::events::{NewEvent, record_events};
use crate::{Core, Error, Result, Scope, platform::disks};
use estrade_model::platform::Platform;
use estrade_model::release::{ReleaseState, ReleaseType};
use estrade_model::team::Role;
use estrade_model::{ReleaseId, Timestamp};
use estrade_store::projects::{self, ProjectRow};
use estrade_store::releases::{self, ReleaseDraft, ReleaseRow};
use estrade_store::{ChangeKind, Tx};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use transition::{MAX_QUEUED, Transition, apply_transition};

const NOT_FOUND: Error = Error::NotFound("the release");

/// How people call a release within its project.
pub(crate) fn tag(number: u64) -> String {
    format!("v{number}")
}

/// Adds a release at the end of its project's queue.
async fn queue_release(tx: &mut Tx, draft: &ReleaseDraft) -> Result<()> {
    let now = draft.created_at;
    let number = projects::next_release_number(tx, draft.project).await?;
    releases::insert_release(tx, draft, number).await?;
    let accepted = NewEvent {
        action: "release",
        status: ReleaseState::Pending.to_string(),
        release: Some((draft.id, tag(number))),
    };
    record_events(tx, draft.project, vec![accepted], now).await?;
    Ok(tx.changed(ChangeKind::Release, draft.id, now).await?)
}

/// Adds a release `id` that runs the same as the release `of`.
pub(crate) async fn queue_rerun(
    tx: &mut Tx,
    project: &ProjectRow,
    of: ReleaseId,
    (id, kind): (ReleaseId, ReleaseType),
    message: Option<String>,
    now: Timestamp,
) -> Result<()> {
    let mut spec = releases::find_spec(tx, of).await?.ok_or(NOT_FOUND)?;
    if kind == ReleaseType::EnvUpdate {
        // The ones of now; whoever goes back gets those of then.
        spec.env = None;
    }
    let draft = ReleaseDraft {
        id,
        project: project.id,
        kind,
        spec,
        message,
        git_info: None,
        client: None,
        created_at: now,
        deadline: now.after(MAX_QUEUED),
    };
    queue_release(tx, &draft).await
}

/// Stops a release that is not being put in place yet.
pub fn cancel_release<'a>(
    core: &'a Core,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let permission = scope.require(Role::Developer)?;
        let (owner, now) = (scope.owner, core.now());
        permission
        .transact(core, move |tx| {
            Box::pin(async move {
                let row = releases::find_release(tx, owner, id).await?;
                let from = row.ok_or(NOT_FOUND)?.state;
                if !from.is_cancelable() {
                    return Err(Error::conflict(
                        "not_cancelable",
                        format!(
                            "the release is {from}; only a PENDING or BUILDING one can be canceled"
                        ),
                    ));
                }
                let canceled = Transition {
                    release: id,
                    from,
                    through: &[ReleaseState::Canceled],
                    lease: None,
                    deadline: now,
                    failure: None,
                };
                apply_transition(tx, &canceled, now).await.map(drop)
            })
        })
        .await
    })
}

/// Makes a release that runs what an earlier one ran; returns its id.
pub fn rollback_release<'a>(
    core: &'a Arc<Core>,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<ReleaseId>> {
    Box::pin(async move {
        let permission = scope.require(Role::Developer)?;
        let (owner, now, new) = (scope.owner, core.now(), core.new_id()?);
        let shared = Arc::clone(core);
        permission
            .transact(core, move |tx| {
                let core = Arc::clone(&shared);
                Box::pin(async move {
                    let row = releases::find_release(tx, owner, id).await?;
                    let row = row.ok_or(NOT_FOUND)?;
                    require_rollback_target(&row)?;
                    if row.platform != Platform::Static {
                        disks::require_disks_of(tx, &core, row.project, id).await?;
                    }
                    let key = estrade_model::project::ProjectKey::Id(row.project);
                    let project = projects::find_project(tx, owner, &key).await?;
                    let project = project.ok_or(NOT_FOUND)?;
                    let message = Some(format!("Roll back to {}", tag(row.number)));
                    let kind = (new, ReleaseType::Rollback);
                    queue_rerun(tx, &project, id, kind, message, now).await?;
                    Ok(new)
                })
            })
            .await
    })
}

fn require_rollback_target(row: &ReleaseRow) -> Result<()> {
    if row.current {
        return Err(Error::conflict(
            "current",
            "this release is the one that serves; choose an earlier one",
        ));
    }
    if row.state != ReleaseState::Ready {
        return Err(Error::conflict(
            "not_ready",
            format!(
                "this release is {}; only one that was READY can come back",
                row.state
            ),
        ));
    }
    if row.artifact.is_none() && row.image.is_none() && !row.has_image {
        return Err(Error::Gone("what this release was made of"));
    }
    Ok(())
}
