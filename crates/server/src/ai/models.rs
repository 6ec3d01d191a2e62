//! `GET /v1/models` and `GET /v1/models/{id}`: what there is to call. Open to both kinds of credential.

use super::authorize::refuse;
use crate::app::AppState;
use crate::auth::{self, bearer};
use crate::error::KeysError;
use crate::extract::Params;
use axum::extract::State;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use estrade_gateway::auth::AuthorizedKey;
use estrade_service::Error;
use estrade_service::ai::key_check::Refusal;
use estrade_service::identity::access::Operation;

pub use estrade_gateway::ListedModel;

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
    Ok(match reader(&app, &mut parts).await? {
        Reader::Account => json(app.gateway.all_models()),
        Reader::Key(key) => json(app.gateway.models_for(&key)),
        Reader::Refused(response) => response,
    })
}

/// Read a model
///
/// The id may have slashes in it, as they are or percent-encoded.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "models", params(
    ("id" = String, Path, description = "The model's id", example = "estrade/echo"),
), responses(
    (status = 200, description = "The model, as the list has it", body = serde_json::Value),
    (status = 404, description = "There is no such model, or the key may not use it"),
), security(("account_token" = []), ("inference_key" = [])))]
pub async fn read_model(
    State(app): State<AppState>,
    id: Result<Params<String, KeysError>, KeysError>,
    parts: Parts,
) -> Result<Response, KeysError> {
    find_model(&app, id.map(|Params(id)| id), parts).await
}

/// The same of an id whose slashes are not encoded.
pub async fn read_named_model(
    State(app): State<AppState>,
    id: Result<Params<(String, String), KeysError>, KeysError>,
    parts: Parts,
) -> Result<Response, KeysError> {
    let id = id.map(|Params((vendor, name))| format!("{vendor}/{name}"));
    find_model(&app, id, parts).await
}

/// `id` is looked at after the credential: a caller without one gets 401, whatever the path.
async fn find_model(
    app: &AppState,
    id: Result<String, KeysError>,
    mut parts: Parts,
) -> Result<Response, KeysError> {
    let reader = reader(app, &mut parts).await?;
    let model = match reader {
        Reader::Account => app.gateway.model_for(&id?, None),
        Reader::Key(key) => app.gateway.model_for(&id?, Some(&key)),
        Reader::Refused(response) => return Ok(response),
    };
    let model = model.ok_or(Error::NotFound("the model"))?;
    Ok(json(model))
}

/// The caller that reads the catalogue.
enum Reader {
    Account,
    Key(AuthorizedKey),
    Refused(Response),
}

async fn reader(app: &AppState, parts: &mut Parts) -> Result<Reader, KeysError> {
    let Some(token) = bearer(&parts.headers).map(str::to_owned) else {
        return Err(Error::Unauthenticated.into());
    };
    match app.services.keys.check_key(&token, None).await? {
        Ok(key) => Ok(Reader::Key(key.authorized())),
        // Not a key: then it has to be an account's token.
        Err(Refusal::Unknown) => {
            let caller = auth::authenticate(app, parts).await?;
            caller.require(Operation::ReadAi)?;
            Ok(Reader::Account)
        }
        Err(refusal) => Ok(Reader::Refused(refuse(refusal))),
    }
}

fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
