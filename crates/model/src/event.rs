//! Events: what happened to a project.

use crate::{Id, ReleaseId, Timestamp, id::kind};
use serde::Serialize;

/// Identifies an event.
pub type EventId = Id<kind::Event>;

/// One thing that happened to a project.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Event {
    /// Identifier; also the id to resume the stream after.
    pub id: EventId,
    /// What happened: `release`, `scale`, `resize`, `restart`, `envs`.
    pub action: String,
    /// The state it led to, such as `READY`.
    pub status: String,
    /// The release it is about.
    pub release: Option<ReleaseId>,
    /// That release's tag.
    pub tag: Option<String>,
    /// When it happened.
    pub timestamp: Timestamp,
}

/// `GET /v1/projects/{p}/events`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EventList {
    /// The events, newest first.
    pub data: Vec<Event>,
}
