//! Path parameters and queries, with errors in the API's own shape.

use crate::error::ErrorShape;
use crate::query;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Path parameters. What cannot be an id answers as the API says: 400 for keys, else 404.
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
            Err(rejection) => Err(E::bad_path(rejection.body_text()).into()),
        }
    }
}

/// Reads a query parameter that may be absent, or there and empty, which is the same.
pub fn unless_empty<'de, D, T>(source: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(source)
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
