//! Platform API: what happened to a project, as a list and as a stream.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::context::RequestContext;
use crate::error::PlatformError;
use crate::extract::Params;
use crate::follow::{self, Follower, last_seen};
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response, sse};
use estrade_model::event::{Event, EventList};
use estrade_model::id::kind;
use estrade_service::Error;
use estrade_service::platform::events::{self, EventFollower};

/// List the events of a project
///
/// Newest first.
#[utoipa::path(get, path = "/v1/projects/{project_id}/events", tag = "events", params(("project_id" = String, Path), Paged), responses(
    (status = 200, body = EventList), (status = 204, description = "Nothing happened yet"), (status = 404),
))]
pub async fn list_events(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    if events::list_events(&app.core, &scope, &project, None, 1, 0)
        .await?
        .is_empty()
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let fetch = move |window: Window<kind::Event>| {
        let (app, scope, project) = (AppState::clone(&app), scope.clone(), project.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            events::list_events(&app.core, &scope, &project, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"data":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |event| event.id).await?)
}

/// Follow the events of a project
///
/// Server-sent events. `Last-Event-ID` resumes after that event; without it the stream begins with
/// the first event there is.
#[utoipa::path(get, path = "/v1/projects/{project_id}/events/stream", tag = "events", params(
    ("project_id" = String, Path),
    ("Last-Event-ID" = Option<String>, Header, description = "The last event that was seen"),
), responses((status = 200, content_type = "text/event-stream", body = String)))]
pub async fn stream_events(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, PlatformError> {
    let after = last_seen(&headers, "an event")?;
    let follower = events::follow_events(&app.core, &scope, &project, after).await?;
    context.clear_deadline();
    Ok(follow::respond(app, scope.caller, follower)?)
}

impl Follower for EventFollower {
    async fn next(&mut self) -> Result<Vec<sse::Event>, Error> {
        let frame = |event: Event| {
            let frame = sse::Event::default()
                .id(event.id.to_string())
                .event(event.action.clone());
            frame.json_data(&event).ok()
        };
        let events = self.next_events().await?;
        Ok(events.into_iter().filter_map(frame).collect())
    }
}
