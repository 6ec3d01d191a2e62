//! Events: what happened to a project, listed and followed.
//!
//! Every change of a project records an event in the same transaction, which also raises the
//! project's version and notifies the change feed.

use crate::change_subscription::ChangeSubscription;
use crate::identity::access::ProjectOperation;
use crate::{Core, Result, Scope, platform::projects, random};
use estrade_model::event::{Event, EventId};
use estrade_model::{ProjectId, ReleaseId, Timestamp};
use estrade_store::{ChangeKind, Tx, events, projects as project_rows};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Most events that a follower is given at once.
const MAX_BATCH: u32 = 100;

/// An event before it has an id.
pub(crate) struct NewEvent {
    pub(crate) action: &'static str,
    pub(crate) status: String,
    /// The release it is about, with its tag.
    pub(crate) release: Option<(ReleaseId, String)>,
}

impl NewEvent {
    /// Something that happened to the project itself.
    pub(crate) fn of_project(action: &'static str, status: impl Into<String>) -> Self {
        Self {
            action,
            status: status.into(),
            release: None,
        }
    }
}

/// Records events of a project. Within a project, ids of events rise in the order of commits,
/// so that a reader who has seen one has seen all before it.
pub(crate) async fn record_events(
    tx: &mut Tx,
    project: ProjectId,
    new_events: Vec<NewEvent>,
    now: Timestamp,
) -> Result<()> {
    let mut last = project_rows::touch_project(tx, project).await?;
    for new in new_events {
        let id = next_id(last, now)?;
        let (release, tag) = new.release.unzip();
        let event = Event {
            id,
            action: new.action.into(),
            status: new.status,
            release,
            tag,
            timestamp: now,
        };
        events::insert_event(tx, project, &event).await?;
        last = Some(id);
    }
    if let Some(last) = last {
        project_rows::set_last_event(tx, project, last).await?;
    }
    Ok(tx.changed(ChangeKind::Project, project, now).await?)
}

/// An id above `last`, also when the node that made `last` has a clock ahead of ours.
fn next_id(last: Option<EventId>, now: Timestamp) -> Result<EventId> {
    let id = random::id(now)?;
    match last {
        Some(last) if last >= id => random::id(Timestamp::from_millis(last.millis() + 1)),
        _ => Ok(id),
    }
}

/// A page of a project's events, newest first.
pub async fn list_events(
    core: &Core,
    scope: &Scope,
    project: &str,
    before: Option<EventId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Event>> {
    let project = projects::find_project(core, scope, project).await?;
    Ok(events::list_events(&core.db, project.id, before, count, skip).await?)
}

/// The next events of a project, oldest first, strictly after `after`.
pub async fn events_after(
    core: &Core,
    scope: &Scope,
    project: &str,
    after: Option<EventId>,
    most: u32,
) -> Result<Vec<Event>> {
    let project = projects::find_project(core, scope, project).await?;
    let visible = scope.projects(ProjectOperation::Read)?;
    Ok(events::events_after(&core.db, visible, project.id, after, most).await?)
}

/// Follows a project's events, beginning with those after `after` that are there already.
pub async fn follow_events(
    core: &Arc<Core>,
    scope: &Scope,
    project: &str,
    after: Option<EventId>,
) -> Result<EventFollower> {
    let watch = ChangeSubscription::start(&core.db);
    let project = projects::find_project(core, scope, project).await?.id;
    Ok(EventFollower {
        core: Arc::clone(core),
        scope: scope.clone(),
        project,
        after,
        watch,
    })
}

/// Reads the events of one project as they happen.
pub struct EventFollower {
    core: Arc<Core>,
    scope: Scope,
    project: ProjectId,
    after: Option<EventId>,
    watch: ChangeSubscription,
}

impl EventFollower {
    /// Waits for the next events, oldest first, at least one; an error once the project is gone or
    /// the caller may not see it any more.
    ///
    /// A call that is dropped while it waits loses nothing.
    pub fn next_events(&mut self) -> BoxFuture<'_, Result<Vec<Event>>> {
        Box::pin(async move {
            loop {
                // A member who was removed from the team since the stream began gets no more events.
                self.scope = self.scope.renew(&self.core).await?;
                let visible = self.scope.projects(ProjectOperation::Read)?;
                let db = &self.core.db;
                let found =
                    events::events_after(db, visible, self.project, self.after, MAX_BATCH).await?;
                if let Some(last) = found.last() {
                    self.after = Some(last.id);
                    return Ok(found);
                }
                projects::find_project(&self.core, &self.scope, &self.project.to_string()).await?;
                self.watch.changed(&self.project.to_string()).await;
            }
        })
    }
}
