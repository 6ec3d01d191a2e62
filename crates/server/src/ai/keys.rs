//! AI key API: keys that authenticate inference requests.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::body::{Body, OptionalBody};
use crate::conditional::{ETag, IfMatch};
use crate::error::KeysError;
use crate::extract::Params;
use crate::idempotency::Redacted;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use estrade_model::KeyId;
use estrade_model::id::kind;
use estrade_model::key::{
    CreateKey, Key, Message, RotateKey, RotatedKey, UpdateKey, Verified, VerifyKey,
};
use estrade_service::ai::keys;

/// Create an API key
///
/// The answer is the only place where the key's JWT is shown.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = CreateKey, responses(
    (status = 201, body = Key),
    (status = 400, description = "No workspace selected, or the name is not allowed"),
    (status = 409, description = "A key with this name exists"),
))]
pub async fn create_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Body(new): Body<CreateKey, KeysError>,
) -> Result<Response, KeysError> {
    let mut key = keys::create_key(&app.core, &scope, new).await?;
    let response = (StatusCode::CREATED, Json(&key)).into_response();
    key.key = None;
    Ok(Redacted::attach(response, &key))
}

/// List API keys
///
/// Newest first, without their secrets.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(Paged), responses((status = 200, body = [Key])))]
pub async fn list_keys(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    paging: Paging<KeysError>,
) -> Result<Response, KeysError> {
    let fetch = move |window: Window<kind::Key>| {
        let (app, scope) = (AppState::clone(&app), scope.clone());
        async move { keys::list_keys(&app.core, &scope, window.before, window.count, window.skip).await }
    };
    Ok(listing::respond(Frame::array(), &paging, fetch, |key| key.id).await?)
}

/// Read an API key
#[utoipa::path(get, path = "/v1/keys/{keyID}", tag = "keys", params(("keyID" = KeyId, Path)), responses(
    (status = 200, body = Key), (status = 304), (status = 404),
))]
pub async fn read_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<KeyId, KeysError>,
    headers: HeaderMap,
) -> Result<Response, KeysError> {
    let (key, version) = keys::read_key(&app.core, &scope, id).await?;
    Ok(ETag::of(version).respond(&headers, || Json(key)))
}

/// Update an API key
///
/// What is absent stays as it is; in force for the next request.
#[utoipa::path(put, path = "/v1/keys/{keyID}", tag = "keys", params(("keyID" = KeyId, Path)), request_body = UpdateKey, responses(
    (status = 200, body = Message),
    (status = 404),
    (status = 409, description = "Another key has this name"),
    (status = 412),
))]
pub async fn update_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<KeyId, KeysError>,
    headers: HeaderMap,
    Body(update): Body<UpdateKey, KeysError>,
) -> Result<Json<Message>, KeysError> {
    keys::update_key(
        &app.core,
        &scope,
        id,
        update,
        IfMatch::from_headers(&headers)?.expected(),
    )
    .await?;
    Ok(Json(Message {
        message: "key updated.".into(),
    }))
}

/// Delete an API key
///
/// It stops working at once, and its name is free again.
#[utoipa::path(delete, path = "/v1/keys/{keyID}", tag = "keys", params(("keyID" = KeyId, Path)), responses(
    (status = 204), (status = 404), (status = 412),
))]
pub async fn delete_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<KeyId, KeysError>,
    headers: HeaderMap,
) -> Result<StatusCode, KeysError> {
    keys::delete_key(
        &app.core,
        &scope,
        id,
        IfMatch::from_headers(&headers)?.expected(),
    )
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate an API key
///
/// Gives the key a new secret; the old one stays valid for `grace` seconds.
#[utoipa::path(post, path = "/v1/keys/{keyID}/rotate", tag = "keys", params(("keyID" = KeyId, Path)), request_body = Option<RotateKey>, responses(
    (status = 200, body = RotatedKey), (status = 404), (status = 409),
))]
pub async fn rotate_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<KeyId, KeysError>,
    OptionalBody(request): OptionalBody<RotateKey, KeysError>,
) -> Result<Response, KeysError> {
    let mut rotated = keys::rotate_key(&app.core, &scope, id, request.grace).await?;
    let response = Json(&rotated).into_response();
    rotated.key = None;
    Ok(Redacted::attach(response, &rotated))
}

/// Verify an API key
///
/// Tells whether a request with this key would be let in now; keys of others are unknown.
#[utoipa::path(post, path = "/v1/keys/verify", tag = "keys", request_body = VerifyKey, responses((status = 200, body = Verified)))]
pub async fn verify_key(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Body(request): Body<VerifyKey, KeysError>,
) -> Result<Json<Verified>, KeysError> {
    Ok(Json(app.services.keys.verify_key(&scope, request).await?))
}
