//! AI key API: the audit log.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::error::KeysError;
use crate::extract::Queries;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::extract::State;
use axum::response::Response;
use estrade_model::audit::{ActionFilter, AuditEntry};
use estrade_model::id::kind;
use estrade_model::{KeyId, Timestamp};
use estrade_service::audit;
use estrade_store::audit::AuditFilter;
use serde::Deserialize;

/// Which entries are asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only about this key (or workspace, or provider).
    key: Option<KeyId>,
    /// Not before this moment.
    from: Option<Timestamp>,
    /// Not after this moment.
    to: Option<Timestamp>,
}

/// `GET /v1/audit`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct AuditLog {
    entries: Vec<AuditEntry>,
}

/// List changes
///
/// Newest first: who made, changed, switched, rotated or deleted which key or workspace, when and
/// from where. Entries are never changed, and kept for 400 days.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery, Paged), responses((status = 200, body = AuditLog)))]
pub async fn list_audit(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Queries(query): Queries<AuditQuery, KeysError>,
    paging: Paging<KeysError>,
) -> Result<Response, KeysError> {
    let filter = AuditFilter {
        action: ActionFilter::Ai,
        account: None,
        subject: query.key.map(|key| key.to_string()),
        from: query.from,
        to: query.to,
    };
    let fetch = move |window: Window<kind::Audit>| {
        let (app, scope, filter) = (AppState::clone(&app), scope.clone(), filter.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            audit::list_entries(&app.core, &scope, &filter, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"entries":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |entry: &AuditEntry| entry.id).await?)
}
