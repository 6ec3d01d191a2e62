//! `GET /v1/models`: what there is to call. Open to both kinds of credential.

use super::authorize::refuse;
use crate::app::AppState;
use crate::auth::{self, bearer};
use crate::error::KeysError;
use axum::extract::State;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use estrade_service::Error;
use estrade_service::key_check::Refusal;

/// List models
///
/// With an account token: the whole catalogue. With an AI key: the models that this key may use.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses(
    (status = 200, description = "`{object: \"list\", data: [Model], models: [Model]}`, the same items twice", body = serde_json::Value),
), security(("account_token" = []), ("inference_key" = [])))]
pub async fn list_models(
    State(app): State<AppState>,
    mut parts: Parts,
) -> Result<Response, KeysError> {
    let models = match bearer(&parts.headers).map(str::to_owned) {
        None => return Err(Error::Unauthenticated.into()),
        Some(token) => match app.keys.check_key(&token, None).await? {
            Ok(key) => app.gateway.models_for(&key.pass()),
            // Not a key: then it has to be an account's token.
            Err(Refusal::Unknown) => {
                auth::authenticate(&app, &mut parts).await?;
                app.gateway.all_models()
            }
            Err(refusal) => return Ok(refuse(refusal)),
        },
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], models).into_response())
}
