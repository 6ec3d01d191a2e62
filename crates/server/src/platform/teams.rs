//! Platform API: teams, their members and invitations.

use crate::app::AppState;
use crate::auth::Auth;
use crate::body::{Body, OptionalBody};
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::idempotency::Redacted;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use estrade_model::id::kind;
use estrade_model::secret::Secret;
use estrade_model::team::{
    CreateTeam, Invite, Invited, JoinTeam, MemberList, SetRole, Team, TeamList,
};
use estrade_model::{AccountId, TeamId};
use estrade_service::{Error, identity::invitations, identity::members, identity::teams};

/// List my teams
///
/// Newest first.
#[utoipa::path(get, path = "/v2/teams", tag = "teams", params(Paged), responses((status = 200, body = TeamList)))]
pub async fn list_teams(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let total = teams::count_teams(&app.core, &caller).await?;
    let fetch = move |window: Window<kind::Team>| {
        let (app, caller) = (AppState::clone(&app), caller.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            teams::list_teams(&app.core, &caller, before, count, skip).await
        }
    };
    let frame = Frame::new(format!(r#"{{"totalTeams":{total},"teams":["#), "]}");
    Ok(listing::respond(frame, &paging, fetch, |team| team.id).await?)
}

/// Create a team
///
/// The caller becomes its owner.
#[utoipa::path(post, path = "/v2/teams", tag = "teams", request_body = CreateTeam, responses(
    (status = 200, body = Team), (status = 403, description = "The account owns as many teams as it may own"),
))]
pub async fn create_team(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Body(new): Body<CreateTeam, PlatformError>,
) -> Result<Json<Team>, PlatformError> {
    Ok(Json(teams::create_team(&app.core, &caller, new).await?))
}

/// Delete a team
///
/// It must own no project and no key any more.
#[utoipa::path(delete, path = "/v2/teams/{id}", tag = "teams", params(("id" = TeamId, Path)), responses(
    (status = 200), (status = 404), (status = 409, description = "It still owns projects or keys"),
))]
pub async fn delete_team(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params(team): Params<TeamId, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(teams::delete_team(&app.core, &caller, team).await?)
}

/// List the members of a team
///
/// In the order in which they joined.
#[utoipa::path(get, path = "/v2/teams/{id}/members", tag = "teams", params(("id" = TeamId, Path), Paged), responses((status = 200, body = MemberList)))]
pub async fn list_members(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params(team): Params<TeamId, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let fetch = move |window: Window<kind::Account>| {
        let (app, caller) = (AppState::clone(&app), caller.clone());
        async move {
            let (last, count, skip) = (window.before, window.count, window.skip);
            members::list_members(&app.core, &caller, team, last, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"members":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |member| member.id).await?)
}

/// Remove a member of a team
///
/// Everyone may leave; the last owner may not.
#[utoipa::path(delete, path = "/v2/teams/{id}/members/{memberID}", tag = "teams", params(("id" = TeamId, Path), ("memberID" = AccountId, Path)), responses(
    (status = 200), (status = 404), (status = 409, description = "The last owner cannot leave"),
))]
pub async fn delete_member(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params((team, member)): Params<(TeamId, AccountId), PlatformError>,
) -> Result<(), PlatformError> {
    Ok(members::delete_member(&app.core, &caller, team, member).await?)
}

/// Change the role of a member
#[utoipa::path(post, path = "/v2/teams/{id}/members/{memberID}/role", tag = "teams", params(("id" = TeamId, Path), ("memberID" = AccountId, Path)), request_body = SetRole, responses((status = 200)))]
pub async fn set_role(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params((team, member)): Params<(TeamId, AccountId), PlatformError>,
    Body(request): Body<SetRole, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(members::set_role(&app.core, &caller, team, member, request.role).await?)
}

/// Invite somebody to a team
///
/// The answer is the only place where the link is shown.
#[utoipa::path(post, path = "/v2/teams/{id}/invitations", tag = "teams", params(("id" = TeamId, Path)), request_body = Invite, responses((status = 200, body = Invited)))]
pub async fn create_invitation(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params(team): Params<TeamId, PlatformError>,
    Body(invite): Body<Invite, PlatformError>,
) -> Result<Response, PlatformError> {
    let mut invited = invitations::create_invitation(&app.core, &caller, team, invite).await?;
    let response = Json(&invited).into_response();
    invited.link = None;
    Ok(Redacted::attach(response, &invited))
}

/// The header that carries the token of an invitation.
const INVITATION_HEADER: &str = "x-invitation-token";

/// The query of joining a team.
#[derive(Debug, serde::Deserialize)]
pub struct JoinQuery {
    token: Option<Secret>,
}

/// Join a team
///
/// Works once, for the account with the invited address. The token of the invitation's link is sent in the
/// body or in a header, because a URL ends up in the logs of proxies.
#[utoipa::path(post, path = "/v2/teams/invitations/join", tag = "teams", params(
    ("x-invitation-token" = Option<String>, Header, description = "The token of the invitation's link, unless it is in the body"),
    ("token" = Option<String>, Query, deprecated, description = "The same; send it in the body or the header instead"),
), request_body = Option<JoinTeam>, responses(
    (status = 200, body = Team),
    (status = 400, description = "No token, or more than one"),
    (status = 404),
))]
pub async fn join_team(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Queries(query): Queries<JoinQuery, PlatformError>,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody<JoinTeam, PlatformError>,
) -> Result<Json<Team>, PlatformError> {
    let sent = headers.get_all(INVITATION_HEADER).iter();
    let sent = sent.map(|value| Secret(value.to_str().unwrap_or_default().to_owned()));
    let mut tokens = sent.chain(body.token).chain(query.token);
    let (Some(token), None) = (tokens.next(), tokens.next()) else {
        let message = "token: send the token of the invitation's link once, in the body or as x-invitation-token";
        return Err(Error::invalid(message).into());
    };
    Ok(Json(
        invitations::join_team(&app.core, &caller, token.expose()).await?,
    ))
}
