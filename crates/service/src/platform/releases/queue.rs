//! Adding releases to the queue of their project.

use super::naming::{NOT_FOUND, tag};
use super::transition::MAX_QUEUED;
use crate::Result;
use crate::platform::events::{NewEvent, record_events};
use estrade_model::release::{ReleaseState, ReleaseType};
use estrade_model::{ReleaseId, Timestamp};
use estrade_store::projects::{self, ProjectRow};
use estrade_store::releases::{self, ReleaseDraft};
use estrade_store::{ChangeKind, Tx};

/// Adds a release at the end of its project's queue; returns its tag.
pub(super) async fn queue_release(tx: &mut Tx, draft: &ReleaseDraft) -> Result<String> {
    let now = draft.created_at;
    let number = projects::next_release_number(tx, draft.project).await?;
    releases::insert_release(tx, draft, number).await?;
    let accepted = NewEvent {
        action: "release",
        status: ReleaseState::Pending.to_string(),
        release: Some((draft.id, tag(number))),
    };
    record_events(tx, draft.project, vec![accepted], now).await?;
    tx.changed(ChangeKind::Release, draft.id, now).await?;
    Ok(tag(number))
}

/// Adds a release `id` that runs the same as the release `of`; returns its tag.
pub(crate) async fn queue_rerun(
    tx: &mut Tx,
    project: &ProjectRow,
    of: ReleaseId,
    (id, kind): (ReleaseId, ReleaseType),
    message: Option<String>,
    now: Timestamp,
) -> Result<String> {
    let mut spec = releases::find_spec(tx, of).await?.ok_or(NOT_FOUND)?;
    if kind == ReleaseType::EnvUpdate {
        // The project's present variables; a rollback keeps those of its release.
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
