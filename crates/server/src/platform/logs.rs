//! Platform API: what the instances of a project write, as a list and as a stream.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::context::RequestContext;
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::follow::{self, Follower, last_seen};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response, sse};
use estrade_model::log::{Direction, LegacyLine, Logs, Since};
use estrade_model::{Invalid, ReleaseId};
use estrade_service::Error;
use estrade_service::platform::containers::logs::{self, LogFollower, LogQuery, StoredLine};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Which lines are asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogParams {
    /// From this second on, in seconds since the epoch.
    start: Option<i64>,
    /// Up to this second, which is included.
    end: Option<i64>,
    /// `forward`: oldest first, from `start` on. `backward`, the default: newest first, from `end` back.
    #[param(inline)]
    direction: Option<Direction>,
    /// Only lines with this text in them, in whatever case.
    search: Option<String>,
    /// Only lines of this release.
    #[serde(rename = "releaseId")]
    release: Option<ReleaseId>,
    /// Only the newest so many lines, 5000 at most; `true` means 100, `false` is as if it were absent.
    #[serde(default, deserialize_with = "last_lines")]
    #[param(value_type = Option<String>, pattern = "^([0-9]+|true|false)$")]
    last_lines: Option<u32>,
    // Not a parameter of the document: a client that tries all of them would wait for ever.
    #[param(ignore)]
    follow: Option<bool>,
}

/// How many lines `last_lines=true` asks for.
const LAST_LINES: u32 = 100;

/// A number of lines, or a flag, as public clients send it.
fn last_lines<'de, D: Deserializer<'de>>(source: D) -> Result<Option<u32>, D::Error> {
    let text: Option<String> = Option::deserialize(source)?;
    match text.as_deref() {
        None | Some("false") => Ok(None),
        Some("true") => Ok(Some(LAST_LINES)),
        Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(Some(text.parse().unwrap_or(u32::MAX)))
        }
        Some(_) => Err(D::Error::custom("must be a number of lines, true or false")),
    }
}

/// Read the logs of a project
///
/// Up to 1,000 lines, or 8 MiB of text, of all releases. With `?follow=true` the answer is a stream of
/// server-sent events that begins with these lines and goes on with those that come, in the order in
/// which they are stored; `Last-Event-ID` resumes after that line.
#[utoipa::path(get, path = "/v2/projects/{project_id}/logs", tag = "logs", params(
    ("project_id" = String, Path), LogParams,
    ("Last-Event-ID" = Option<String>, Header, description = "With `follow`: the last line that was seen"),
), responses(
    (status = 200, content((Logs = "application/json"), (String = "text/event-stream"))),
))]
pub async fn read_logs(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Queries(params): Queries<LogParams, PlatformError>,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, PlatformError> {
    let query = LogQuery {
        start: params.start,
        end: params.end,
        direction: params.direction.unwrap_or_default(),
        search: params.search,
        release: params.release,
        instance: None,
        last_lines: params.last_lines,
    };
    if params.follow == Some(true) {
        let after = last_seen(&headers, "a line")?;
        let follower = logs::follow_logs(
            &app.core,
            &app.services.logs,
            &scope,
            &project,
            &query,
            after,
        )
        .await?;
        context.clear_deadline();
        return Ok(follow::respond(app, scope.caller, follower)?);
    }
    let lines = logs::read_logs(&app.core, &app.services.logs, &scope, &project, &query).await?;
    let grouped = logs::grouped(&lines).map_err(Error::from)?;
    Ok(Json(grouped).into_response())
}

impl Follower for LogFollower {
    async fn next(&mut self) -> Result<Vec<sse::Event>, Error> {
        let frame = |line: StoredLine| {
            let frame = sse::Event::default().id(line.cursor.to_string());
            frame.json_data(logs::streamed(line)).ok()
        };
        let lines = self.next_lines().await?;
        Ok(lines.into_iter().filter_map(frame).collect())
    }
}

/// The query of the first version.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SinceParams {
    /// From this second on, in seconds since the epoch, or after the `datetime` of the last line that was
    /// seen.
    since: Option<String>,
}

/// Read the logs of a project, as a plain list
///
/// Oldest first: the newest 1,000 lines, or with `since` the first 1,000 since then.
#[utoipa::path(get, path = "/v1/projects/{project_id}/logs", tag = "logs", params(("project_id" = String, Path), SinceParams), responses(
    (status = 200, body = [LegacyLine]),
))]
pub async fn list_logs(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Queries(params): Queries<SinceParams, PlatformError>,
) -> Result<Json<Vec<LegacyLine>>, PlatformError> {
    // Clients that have seen nothing yet write down the absence of a value as their language does.
    let since = params
        .since
        .filter(|text| !matches!(text.as_str(), "" | "undefined" | "null"));
    let since: Option<Since> = since
        .map(|text| text.parse())
        .transpose()
        .map_err(|Invalid(reason)| Error::invalid(format!("since: {reason}")))?;
    let lines =
        logs::read_logs_since(&app.core, &app.services.logs, &scope, &project, since).await?;
    Ok(Json(lines.into_iter().map(logs::legacy).collect()))
}
