//! Path parameters and queries, with errors in the API's own shape.

use crate::error::ErrorShape;
use crate::query;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, RawPathParams};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// Path parameters. A malformed id gives the API's error: 400 for keys, else 404.
pub struct Params<T, E: ErrorShape>(pub E::Plain<T>);

impl<S, T, E> FromRequestParts<S> for Params<T, E>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
    E: ErrorShape,
{
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, E> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(params)) => Ok(Self(E::plain(params))),
            Err(rejection) => {
                let raw = RawPathParams::from_request_parts(parts, state).await;
                Err(E::bad_path(describe(rejection, raw.ok().as_ref())).into())
            }
        }
    }
}

/// Describes which parameter is wrong and why. axum's own text names the types of our code and repeats
/// the input.
fn describe(rejection: PathRejection, raw: Option<&RawPathParams>) -> String {
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return "the path has no parameters".to_owned();
    };
    match failed.into_kind() {
        ErrorKind::DeserializeError { key, message, .. } => format!("{key}: {message}"),
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key}: must be UTF-8"),
        ErrorKind::ParseErrorAtKey { key, .. } => format!("{key}: is not valid"),
        // serde does not name a parameter that is not read into a struct's field.
        ErrorKind::Message(message) => {
            let names = raw.into_iter().flatten().map(|(key, _)| key);
            match names.collect::<Vec<_>>().join(" or ") {
                names if names.is_empty() => message,
                names => format!("{names}: {message}"),
            }
        }
        _ => "a parameter of the path is not valid".to_owned(),
    }
}

/// Query parameters; a bad one is a 400 that names it.
pub struct Queries<T, E: ErrorShape>(pub E::Plain<T>);

impl<S, T, E> FromRequestParts<S> for Queries<T, E>
where
    S: Send + Sync,
    T: DeserializeOwned,
    E: ErrorShape,
{
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, E> {
        let read = query::parse(parts.uri.query().unwrap_or_default())?;
        Ok(Self(E::plain(read)))
    }
}
