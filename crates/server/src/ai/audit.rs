//! AI key API: the audit log.

use crate::app::AppState;
use crate::audit_log::{self, AuditLog};
use crate::auth::Scoped;
use crate::error::KeysError;
use crate::extract::Queries;
use crate::listing::Paged;
use crate::paging::Paging;
use axum::extract::State;
use axum::response::Response;
use estrade_model::audit::ActionFilter;
use estrade_model::{KeyId, Timestamp};
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
    Ok(audit_log::list_entries(app, scope, filter, &paging).await?)
}
