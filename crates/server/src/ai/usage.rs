//! AI key API: what the keys of a workspace were used for, and what it cost.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::error::KeysError;
use crate::extract::{Params, Queries};
use crate::paging::Paging;
use axum::Json;
use axum::extract::State;
use estrade_model::call::{Activity, CallId, CallLog, LoggedCall, Span};
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_service::ai::usage;
use estrade_store::calls::CallFilter;
use serde::Deserialize;

/// Default number of calls on a page.
const DEFAULT_PAGE_SIZE: u64 = 15;
/// Most calls on a page.
const MAX_PAGE_SIZE: u64 = 100;

/// What activity is asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// By what it is summed up: the last 24 hours, 30 days (the default), 12 weeks or 12 months.
    #[param(inline)]
    filter: Option<Span>,
    /// Only of this key.
    key: Option<KeyId>,
}

/// Activity of a workspace
///
/// Oldest first; hours, days, weeks and months without a call are left out.
#[utoipa::path(get, path = "/v1/workspaces/{id}/activity", tag = "usage", params(("id" = WorkspaceId, Path), ActivityQuery), responses(
    (status = 200, body = [Activity]), (status = 404),
))]
pub async fn read_activity(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<WorkspaceId, KeysError>,
    Queries(query): Queries<ActivityQuery, KeysError>,
) -> Result<Json<Vec<Activity>>, KeysError> {
    let span = query.filter.unwrap_or_default();
    let shown = usage::activity(&app.core, &app.ledger, &scope, id, span, query.key).await?;
    Ok(Json(shown))
}

/// Which calls are asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CallQuery {
    /// Not before this moment.
    from: Option<Timestamp>,
    /// Not after this moment.
    to: Option<Timestamp>,
    /// Only of this model.
    model: Option<String>,
    /// Only of this key.
    key: Option<KeyId>,
    /// Only with this status.
    status: Option<u16>,
    /// Only calls older than this one: the `next` of the page before.
    before: Option<CallId>,
}

/// `page` and `count` of the calls, for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "only its description is used; Paging reads the query"
)]
pub struct CallPage {
    /// Which page, from 1; not together with `before`. Numbers reach the newest 10000 matches.
    page: Option<i64>,
    /// Calls per page: 1 to 100, 15 unless said.
    count: Option<i64>,
}

/// Calls of a workspace
///
/// Newest first. One entry per inference request of a key that was let in, refused ones included.
/// Pages follow one another through everything that is kept: send `next` of an answer as `before`. One request looks at
/// 20000 calls at most: when there are older ones, `countIsLowerBound` is true, `searchedUntil` says how far it looked,
/// and `next` goes on from there.
#[utoipa::path(get, path = "/v1/workspaces/{id}/logs", tag = "usage", params(("id" = WorkspaceId, Path), CallQuery, CallPage), responses(
    (status = 200, body = CallLog), (status = 404),
))]
pub async fn list_calls(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<WorkspaceId, KeysError>,
    Queries(query): Queries<CallQuery, KeysError>,
    paging: Paging<KeysError>,
) -> Result<Json<CallLog>, KeysError> {
    let page = paging.window_of(DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE);
    let count = u32::try_from(page.limit).unwrap_or(u32::MAX);
    let filter = CallFilter {
        from: query.from,
        to: query.to,
        model: query.model,
        key: query.key,
        status: query.status,
        before: query.before,
    };
    let log = usage::list_calls(
        &app.core,
        &app.ledger,
        &scope,
        id,
        &filter,
        count,
        page.offset,
    )
    .await?;
    Ok(Json(log))
}

/// One call
///
/// `x-estrade-call` of an answer leads here.
#[utoipa::path(get, path = "/v1/workspaces/{id}/logs/{callID}", tag = "usage", params(("id" = WorkspaceId, Path), ("callID" = CallId, Path)), responses(
    (status = 200, body = LoggedCall), (status = 404),
))]
pub async fn read_call(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params((workspace, id)): Params<(WorkspaceId, CallId), KeysError>,
) -> Result<Json<LoggedCall>, KeysError> {
    Ok(Json(
        usage::read_call(&app.core, &app.ledger, &scope, workspace, id).await?,
    ))
}
