//! Platform API: the audit log.

use crate::app::AppState;
use crate::audit_log::{self, AuditLog};
use crate::auth::Scoped;
use crate::error::PlatformError;
use crate::extract::Queries;
use crate::listing::Paged;
use crate::paging::Paging;
use axum::extract::State;
use axum::response::Response;
use estrade_model::audit::ActionFilter;
use estrade_model::id::kind;
use estrade_model::{AccountId, Id, Timestamp};
use estrade_store::audit::AuditFilter;
use serde::Deserialize;

/// Which entries are asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only this action, such as `project.create`, or those of this kind, such as `project`.
    #[param(value_type = Option<String>, example = "project.create")]
    action: Option<ActionFilter>,
    /// Only what this account did.
    account: Option<AccountId>,
    /// Only about this project (or key, team, token, …).
    #[param(value_type = Option<String>, pattern = "^[a-f0-9]{24}$")]
    subject: Option<Id<kind::Audit>>,
    /// Not before this moment.
    from: Option<Timestamp>,
    /// Not after this moment.
    to: Option<Timestamp>,
}

/// List changes
///
/// Newest first: who changed what, when and from where. Everything of the owner: projects and what belongs to them,
/// networks, members, invitations, AI keys; for an account also its tokens, its sign-ins and the account itself. In a
/// team this needs the role admin. Values are never part of an entry. Entries are never changed, and kept for 400
/// days; of refused sign-ins at most 10 an hour are written down.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery, Paged), responses((status = 200, body = AuditLog)))]
pub async fn list_audit(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Queries(query): Queries<AuditQuery, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let filter = AuditFilter {
        action: query.action.unwrap_or_default(),
        account: query.account,
        subject: query.subject.map(|subject| subject.to_string()),
        from: query.from,
        to: query.to,
    };
    Ok(audit_log::list_entries(app, scope, filter, &paging).await?)
}
