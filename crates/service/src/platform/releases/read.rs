//! Releases as they are listed, read and waited for.

use super::naming::{NOT_FOUND, tag};
use crate::change_subscription::ChangeSubscription;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::projects};
use estrade_model::ReleaseId;
use estrade_model::platform::Platform;
use estrade_model::release::{Release, ReleaseState};
use estrade_store::releases::{self, ReleaseAuthor, ReleaseRow};
use std::collections::HashMap;
use std::time::Duration;

/// More than can be in a queue: versions of a release that waits lie this far apart.
const MAX_QUEUE: i64 = 1 << 20;

fn on_the_wire(row: ReleaseRow) -> Result<Release> {
    let git_info = row.git_info.as_deref().map(serde_json::from_str);
    let warnings = row.warnings.as_deref().map(serde_json::from_str);
    let warnings = warnings.transpose().map_err(Error::internal)?;
    Ok(Release {
        id: row.id,
        kind: row.kind,
        state: row.state,
        created_at: row.created_at,
        tag: tag(row.number),
        project_type: row.platform,
        port: row.port,
        message: row.message,
        git_info: git_info.transpose().map_err(Error::internal)?,
        client: row.client,
        fail_reason: row.fail_reason,
        fail_message: row.fail_message,
        warnings: warnings.unwrap_or_default(),
        queue: row.queue,
        finished_at: row.finished_at,
        source_available: match row.source {
            Some(_) => row.has_source,
            None => row.artifact.is_some(),
        },
        current: row.current,
    })
}

/// The summary in the list of releases.
#[derive(Debug, Clone)]
pub struct ReleaseSummary {
    /// Platform of the project.
    pub platform: Platform,
    /// How many releases are READY.
    pub ready: u64,
    /// How many releases there are.
    pub total: u64,
    /// The one that serves.
    pub current: Option<ReleaseId>,
}

/// The summary of a project's releases.
pub async fn summarize_releases(
    core: &Core,
    scope: &Scope,
    project: &str,
) -> Result<ReleaseSummary> {
    let row = projects::find_project(core, scope, project).await?;
    Ok(ReleaseSummary {
        platform: row.platform,
        ready: row.ready_releases,
        total: row.releases,
        current: row.current_release,
    })
}

/// A page of a project's releases, newest first.
pub async fn list_releases(
    core: &Core,
    scope: &Scope,
    project: &str,
    before: Option<ReleaseId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Release>> {
    let project = projects::find_project(core, scope, project).await?;
    let rows = releases::list_releases(&core.db, project.id, before, count, skip).await?;
    rows.into_iter().map(on_the_wire).collect()
}

/// A release in a list, and who made it.
#[derive(Debug, Clone)]
pub struct AuthoredRelease {
    pub release: Release,
    /// The name of the account, or its address without one; none when the server made it, or the account is gone.
    pub author: Option<String>,
}

/// A page of a project's releases with their authors, newest first.
pub async fn list_authored(
    core: &Core,
    scope: &Scope,
    project: &str,
    before: Option<ReleaseId>,
    count: u32,
) -> Result<Vec<AuthoredRelease>> {
    let project = projects::find_project(core, scope, project).await?;
    let rows = releases::list_releases(&core.db, project.id, before, count, 0).await?;
    let Some(newest) = rows.first().map(|row| row.id) else {
        return Ok(Vec::new());
    };
    let authors = releases::list_authors(&core.db, project.id, newest, count).await?;
    let mut authors: HashMap<ReleaseId, String> = authors
        .into_iter()
        .map(|it| (it.release, name_of(it)))
        .collect();
    let authored = rows.into_iter().map(|row| {
        let author = authors.remove(&row.id);
        let release = on_the_wire(row)?;
        Ok(AuthoredRelease { release, author })
    });
    authored.collect()
}

/// A release of a project, and who made it.
pub async fn read_authored(
    core: &Core,
    scope: &Scope,
    project: &str,
    id: ReleaseId,
) -> Result<AuthoredRelease> {
    let project = projects::find_project(core, scope, project).await?;
    let visible = scope.projects(ProjectOperation::Read)?;
    let row = releases::read_release(&core.db, visible, id).await?;
    let row = row
        .filter(|row| row.project == project.id)
        .ok_or(NOT_FOUND)?;
    let authors = releases::list_authors(&core.db, project.id, id, 1).await?;
    Ok(AuthoredRelease {
        release: on_the_wire(row)?,
        author: authors.into_iter().next().map(name_of),
    })
}

fn name_of(author: ReleaseAuthor) -> String {
    if author.fullname.is_empty() {
        author.email
    } else {
        author.fullname
    }
}

/// A release, and its version for conditional requests.
pub async fn read_release(core: &Core, scope: &Scope, id: ReleaseId) -> Result<(Release, i64)> {
    let row = releases::read_release(&core.db, scope.projects(ProjectOperation::Read)?, id).await?;
    let row = row.ok_or(NOT_FOUND)?;
    // What comes before it changes with releases of other projects, too.
    let ahead = i64::try_from(row.queue.unwrap_or(0)).unwrap_or(0);
    let version = row.version.saturating_mul(MAX_QUEUE) - ahead.min(MAX_QUEUE - 1);
    Ok((on_the_wire(row)?, version))
}

/// Reads a release once it is in `state` or a terminal one, or as it is after `timeout`.
pub async fn wait_release(
    core: &Core,
    scope: &Scope,
    id: ReleaseId,
    state: ReleaseState,
    timeout: Duration,
) -> Result<(Release, i64)> {
    let mut watch = ChangeSubscription::start(&core.db);
    let reached = async {
        loop {
            let (release, version) = read_release(core, scope, id).await?;
            if release.state == state || release.state.is_terminal() {
                return Ok((release, version));
            }
            watch.changed(&id.to_string()).await;
        }
    };
    match tokio::time::timeout(timeout, reached).await {
        Ok(reached) => reached,
        Err(_) => read_release(core, scope, id).await,
    }
}
