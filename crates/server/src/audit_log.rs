//! The audit log as both APIs list it.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::listing::{self, Window};
use crate::paging::{Frame, Paging};
use axum::response::Response;
use estrade_model::audit::AuditEntry;
use estrade_model::id::kind;
use estrade_service::audit;
use estrade_service::identity::access::Scope;
use estrade_store::audit::AuditFilter;

/// `GET /v1/audit`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct AuditLog {
    entries: Vec<AuditEntry>,
}

/// Responds with the entries that the filter lets through, newest first.
pub(crate) async fn list_entries<E>(
    app: AppState,
    scope: Scope,
    filter: AuditFilter,
    paging: &Paging<E>,
) -> Result<Response, ApiError> {
    let fetch = move |window: Window<kind::Audit>| {
        let (app, scope, filter) = (AppState::clone(&app), scope.clone(), filter.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            audit::list_entries(&app.core, &scope, &filter, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"entries":["#, "]}");
    listing::respond(frame, paging, fetch, |entry: &AuditEntry| entry.id).await
}
