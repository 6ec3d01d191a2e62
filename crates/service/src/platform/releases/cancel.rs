//! Canceling a release.

use super::naming::{NOT_FOUND, tag};
use super::transition::{Transition, apply_transition};
use crate::audit::PendingEntry;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope};
use estrade_model::ReleaseId;
use estrade_model::audit::Action;
use estrade_model::project::ProjectKey;
use estrade_model::release::ReleaseState;
use estrade_model::team::Role;
use estrade_store::{projects, releases};
use futures_util::future::BoxFuture;

/// Stops a release that is not being put in place yet.
pub fn cancel_release<'a>(
    core: &'a Core,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
        let (visible, now) = (permission.projects(), core.now());
        let note = PendingEntry::of_project(core, scope, Action::CancelRelease)?;
        permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let row = releases::find_release(tx, visible, id).await?;
                let row = row.ok_or(NOT_FOUND)?;
                let from = row.state;
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
                apply_transition(tx, &canceled, now).await?;
                let key = ProjectKey::Id(row.project);
                let project = projects::find_project(tx, visible, &key).await?;
                let project = project.ok_or(NOT_FOUND)?;
                let note = note.on(project.id, &project.name).detail(tag(row.number));
                note.write(tx).await
            })
        })
        .await
    })
}
