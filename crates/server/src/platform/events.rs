//! Platform API: what happened to a project, as a list and as a stream.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::context::RequestContext;
use crate::error::PlatformError;
use crate::extract::Params;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use estrade_model::event::{EventId, EventList};
use estrade_model::id::kind;
use estrade_service::events::{self, EventFollower};
use estrade_service::{Caller, Error};
use futures_util::stream::{self, Stream};
use std::convert::Infallible;
use std::time::Duration;

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
    let after = last_seen(&headers)?;
    let follower = events::follow_events(&app.core, &scope, &project, after).await?;
    context.lift_deadline();
    let alive = KeepAlive::new().interval(Duration::from_secs(10));
    Ok(Sse::new(event_stream(app, scope.caller, follower))
        .keep_alive(alive)
        .into_response())
}

fn last_seen(headers: &HeaderMap) -> Result<Option<EventId>, Error> {
    let Some(value) = headers
        .get("last-event-id")
        .filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    parsed
        .map(Some)
        .ok_or_else(|| Error::invalid("Last-Event-ID: is not the id of an event"))
}

/// Ends when the project is deleted, the caller may not see it any more, or the server stops; the
/// client then asks again.
fn event_stream(
    app: AppState,
    caller: Caller,
    follower: EventFollower,
) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let start = (app, caller, follower);
    let batches = stream::unfold(start, |(app, caller, mut follower)| async move {
        let batch = tokio::select! {
            batch = follower.next_events() => batch,
            () = app.shutdown.cancelled() => return None,
        };
        app.tokens.check_again(&caller).await.ok()?;
        let events = batch.ok()?.into_iter().filter_map(|event| {
            let frame = sse::Event::default()
                .id(event.id.to_string())
                .event(event.action.clone());
            frame.json_data(&event).ok().map(Ok)
        });
        let events = stream::iter(events.collect::<Vec<_>>());
        Some((events, (app, caller, follower)))
    });
    futures_util::StreamExt::flatten(batches)
}
