//! Platform API: the caller, signing in, and tokens.

use crate::app::AppState;
use crate::auth::Auth;
use crate::body::{Body, BodyRules, OptionalBody};
use crate::body_reader::BodyLimits;
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::idempotency::Redacted;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use estrade_listener::peer::PeerAddr;
use estrade_model::TokenId;
use estrade_model::account::{CreateToken, CreatedToken, LoggedIn, Login, LoginCheck, Me, Token};
use estrade_model::id::kind;
use estrade_model::time::Lifetime;
use estrade_service::identity::tokens::TokenRequest;
use estrade_service::{identity::accounts, identity::tokens};
use std::time::Duration;

/// Who am I?
#[utoipa::path(get, path = "/v1/me", tag = "account", responses((status = 200, body = Me)))]
pub async fn read_me(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
) -> Result<Json<Me>, PlatformError> {
    Ok(Json(accounts::read_me(&app.core, &caller)?))
}

/// A login is not authenticated yet, and any client can send any number of them: the body is bounded to
/// what an address and a password need.
pub(super) const LOGIN_BODY: BodyRules = BodyRules {
    limits: BodyLimits::at_most(8 * 1024),
    any_type: false,
};

/// Sign in
#[utoipa::path(post, path = "/v1/login", tag = "account", request_body = Login, security(()), responses(
    (status = 200, body = LoggedIn),
    (status = 401, description = "The address or the password is wrong; or, with the right password, the code `otp` is missing (`second_factor_required`) or wrong (`wrong_second_factor`)"),
    (status = 429, description = "Too many failures; `Retry-After` says when to repeat"),
    (status = 503, description = "Not available right now"),
))]
pub async fn log_in(
    State(app): State<AppState>,
    Extension(PeerAddr(address)): Extension<PeerAddr>,
    Body(request): Body<Login, PlatformError>,
) -> Result<Json<LoggedIn>, PlatformError> {
    Ok(Json(app.services.logins.log_in(address, request).await?))
}

/// Could this address sign in?
///
/// Always yes: the answer reveals nothing.
#[utoipa::path(post, path = "/v1/login/check-if-exists", tag = "account", security(()), responses((status = 200, body = LoginCheck)))]
pub async fn check_if_exists() -> Json<LoginCheck> {
    Json(LoginCheck {
        status: "success",
        exists: true,
        social_completed: true,
    })
}

/// How long a token lives.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize, utoipa::ToSchema)]
enum ExpiresIn {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "1d")]
    Day,
    #[serde(rename = "7d")]
    Week,
    #[default]
    #[serde(rename = "30d")]
    Month,
    #[serde(rename = "180d")]
    HalfYear,
    #[serde(rename = "1y")]
    Year,
}

impl From<ExpiresIn> for Lifetime {
    fn from(expires: ExpiresIn) -> Self {
        let days = match expires {
            ExpiresIn::Hour => return Self(Some(Duration::from_hours(1))),
            ExpiresIn::Day => 1,
            ExpiresIn::Week => 7,
            ExpiresIn::Month => 30,
            ExpiresIn::HalfYear => 180,
            ExpiresIn::Year => 365,
        };
        Self(Some(Duration::from_hours(24 * days)))
    }
}

/// The query of a new token.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct TokenQuery {
    /// How long the token lives; 30 days unless said.
    #[serde(default)]
    #[param(inline, required = false)]
    expires_in: ExpiresIn,
}

/// Create a token
///
/// The answer is the only place where the token is shown. `scope` limits what it is good for: `full` is everything that
/// the account may do; `read` is what a viewer of a team may read, so no values of environment variables, no sources
/// and no shell; `project:` and an `_id` is everything with that project and nothing else; `ai` is the AI API without
/// the administration of providers. Only a token of the scope `full` creates tokens, or revokes others than itself.
#[utoipa::path(post, path = "/v1/api-token", tag = "account", params(TokenQuery), request_body = Option<CreateToken>, responses(
    (status = 201, body = CreatedToken),
    (status = 400, description = "`project_unknown`: the account sees no project of the `_id` in `scope`"),
    (status = 403, description = "The account has as many tokens as it may have, or the token of this request is not `full`"),
))]
pub async fn create_token(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Queries(query): Queries<TokenQuery, PlatformError>,
    OptionalBody(new): OptionalBody<CreateToken, PlatformError>,
) -> Result<Response, PlatformError> {
    let new = TokenRequest {
        name: new.name.map_or_else(|| "token".to_owned(), String::from),
        scope: new.scope.unwrap_or_default(),
        lifetime: query.expires_in.into(),
    };
    let mut made = tokens::create_token(&app.core, &caller, new).await?;
    let response = (StatusCode::CREATED, Json(&made)).into_response();
    made.api_token = None;
    Ok(Redacted::attach(response, &made))
}

/// `GET /v1/tokens`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct TokenList {
    tokens: Vec<Token>,
}

/// List my tokens
#[utoipa::path(get, path = "/v1/tokens", tag = "account", params(Paged), responses((status = 200, body = TokenList)))]
pub async fn list_tokens(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let fetch = move |window: Window<kind::Token>| {
        let (app, caller) = (AppState::clone(&app), caller.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            tokens::list_tokens(&app.core, &caller, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"tokens":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |token| token.id).await?)
}

/// Revoke a token
///
/// It stops working with the next request. A token that is not `full` can only revoke itself.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "account", params(("id" = TokenId, Path)), responses((status = 204), (status = 404)))]
pub async fn delete_token(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    Params(id): Params<TokenId, PlatformError>,
) -> Result<StatusCode, PlatformError> {
    tokens::delete_token(&app.core, &caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
