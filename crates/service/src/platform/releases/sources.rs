//! Archives that clients upload, for releases to be made from.

use super::incoming::{ReceivedContent, keep_content, settle};
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope};
use estrade_model::project::ProjectKey;
use estrade_model::release::{ArchiveFormat, SourceId};
use estrade_model::team::Role;
use estrade_store::projects as project_rows;
use estrade_store::sources::{self, NewSource};
use futures_util::future::BoxFuture;

/// Keeps an archive as a source of its project. It is durable when this returns.
pub fn create_source<'a>(
    core: &'a Core,
    scope: &'a Scope,
    received: ReceivedContent,
) -> BoxFuture<'a, Result<SourceId>> {
    Box::pin(async move {
        let Some(format) = ArchiveFormat::of(&received.head) else {
            return Err(Error::Invalid {
                code: "archive_unknown",
                message: "file: is neither a .tar.gz nor a .zip, as its first bytes show".into(),
            });
        };
        let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
        let (visible, new) = (
            permission.projects(),
            NewSource {
                id: core.new_id()?,
                project: received.project,
                format,
                digest: received.digest(),
                size: received.size(),
                created_at: core.now(),
            },
        );
        let published = received.publish(core).await?;
        let (blobs, held) = (published.blobs().to_vec(), published.hold());
        let stored = permission
            .transact(core, move |tx| {
                let (blobs, _held) = (blobs.clone(), &held);
                Box::pin(async move {
                    let key = ProjectKey::Id(new.project);
                    // It may have been deleted since the upload began.
                    if project_rows::find_project(tx, visible, &key)
                        .await?
                        .is_none()
                    {
                        return Err(Error::NotFound("the project"));
                    }
                    keep_content(tx, &blobs, new.digest).await?;
                    sources::insert_source(tx, &new).await?;
                    Ok(new.id)
                })
            })
            .await;
        settle(published, &stored);
        stored
    })
}
