//! Events: what happened to projects.

use crate::projects::ProjectFilter;
use crate::{Db, Record, Row, StoreError, Tx, value};
use estrade_model::ProjectId;
use estrade_model::event::{Event, EventId};

impl Record for Event {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            action: row.take()?,
            status: row.take()?,
            release: row.take()?,
            tag: row.take()?,
            timestamp: row.take()?,
        })
    }
}

/// Adds an event.
pub async fn insert_event(
    tx: &mut Tx,
    project: ProjectId,
    event: &Event,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO events (id, project_id, action, status, release_id, tag, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(event.id)
    .bind(project)
    .bind(&event.action)
    .bind(&event.status)
    .bind(event.release)
    .bind(event.tag.as_deref())
    .bind(event.timestamp)
    .execute()
    .await
    .map(drop)
}

/// A page of a project's events, newest first, strictly before `before`.
pub async fn list_events(
    db: &Db,
    project: ProjectId,
    before: Option<EventId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Event>, StoreError> {
    db.read(
        "SELECT id, action, status, release_id, tag, at FROM events
         WHERE project_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4",
    )
    .bind(project)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// The next events of a project, oldest first, strictly after `after`; none when it is not visible.
pub async fn events_after(
    db: &Db,
    visible: ProjectFilter,
    project: ProjectId,
    after: Option<EventId>,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    if !visible.includes_own(project) {
        return Ok(Vec::new());
    }
    // The empty text sorts before every id.
    let after = after.map_or_else(|| "".into(), value::Value::from);
    db.read(
        "SELECT e.id, e.action, e.status, e.release_id, e.tag, e.at
         FROM events e JOIN projects p ON p.id = e.project_id
         WHERE e.project_id = $1 AND p.owner_id = $2 AND e.id > $3 ORDER BY e.id LIMIT $4",
    )
    .bind(project)
    .bind(visible.owner())
    .bind(after)
    .bind(limit)
    .fetch_all()
    .await
}
