//! Going back to what an earlier release ran.

use super::naming::{NOT_FOUND, tag};
use super::queue::queue_rerun;
use crate::audit::PendingEntry;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::disks};
use estrade_model::ReleaseId;
use estrade_model::audit::Action;
use estrade_model::platform::Platform;
use estrade_model::release::{ReleaseState, ReleaseType};
use estrade_model::team::Role;
use estrade_store::projects;
use estrade_store::releases::{self, ReleaseRow};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Makes a release that runs what an earlier one ran; returns its id.
pub fn rollback_release<'a>(
    core: &'a Arc<Core>,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<ReleaseId>> {
    Box::pin(async move {
        let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
        let (visible, now, new) = (permission.projects(), core.now(), core.new_id()?);
        let author = permission.account();
        let shared = Arc::clone(core);
        let note = PendingEntry::of_project(core, scope, Action::RollbackRelease)?;
        permission
            .transact(core, move |tx| {
                let (core, note) = (Arc::clone(&shared), note.clone());
                Box::pin(async move {
                    let row = releases::find_release(tx, visible, id).await?;
                    let row = row.ok_or(NOT_FOUND)?;
                    require_rollback_target(&row)?;
                    if row.platform != Platform::Static {
                        disks::require_disks_of(tx, &core, row.project, id).await?;
                    }
                    let key = estrade_model::project::ProjectKey::Id(row.project);
                    let project = projects::find_project(tx, visible, &key).await?;
                    let project = project.ok_or(NOT_FOUND)?;
                    let message = Some(format!("Roll back to {}", tag(row.number)));
                    let kind = (new, ReleaseType::Rollback);
                    let made = queue_rerun(tx, &project, id, kind, message, now).await?;
                    releases::set_author(tx, new, author).await?;
                    note.on(project.id, &project.name)
                        .detail(format!("{made}, back to {}", tag(row.number)))
                        .write(tx)
                        .await?;
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
