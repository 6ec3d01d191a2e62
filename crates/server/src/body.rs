//! JSON bodies for handlers.
//!
//! `Body<CreateKey, KeysError>` as the last argument of a handler reads, checks and parses the body;
//! whatever is wrong with it becomes an error in the API's own shape, with the field named.

use crate::api_error::ApiError;
use crate::body_reader::{BodyLimits, BodyReader};
use crate::error::ErrorShape;
use crate::strict_json;
use axum::body::Body as RawBody;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use estrade_service::Error;
use serde::de::DeserializeOwned;

/// What a route takes; put it on a route with `.layer(Extension(rules))` where the default is wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct BodyRules {
    /// How much, and how slowly.
    pub limits: BodyLimits,
    /// Whether the `Content-Type` is ignored.
    pub any_type: bool,
}

/// A JSON body. `E` is the error shape of the API at hand.
pub struct Body<T, E: ErrorShape>(pub E::Plain<T>);

impl<S, T, E> FromRequest<S> for Body<T, E>
where
    S: Send + Sync,
    T: DeserializeOwned,
    E: ErrorShape,
{
    type Rejection = E;

    async fn from_request(request: Request, _: &S) -> Result<Self, E> {
        let value = read_json(request).await?;
        Ok(Self(E::plain(value)))
    }
}

/// A JSON body that may be left out: no bytes mean the default.
pub struct OptionalBody<T, E: ErrorShape>(pub E::Plain<T>);

impl<S, T, E> FromRequest<S> for OptionalBody<T, E>
where
    S: Send + Sync,
    T: DeserializeOwned + Default,
    E: ErrorShape,
{
    type Rejection = E;

    async fn from_request(request: Request, _: &S) -> Result<Self, E> {
        let bytes = read_bytes(request).await?;
        let value = if bytes.is_empty() {
            T::default()
        } else {
            parse(&bytes)?
        };
        Ok(Self(E::plain(value)))
    }
}

/// Reads and parses a body under the rules of its route.
pub async fn read_json<T: DeserializeOwned>(request: Request) -> Result<T, ApiError> {
    parse(&read_bytes(request).await?)
}

/// Reads a body under the rules of its route, to be parsed with [`parse`].
pub async fn read_bytes(request: Request<RawBody>) -> Result<bytes::Bytes, ApiError> {
    let rules = request.extensions().get().copied().unwrap_or_default();
    let BodyRules { limits, any_type } = rules;
    if !any_type {
        require_json(request.headers())?;
    }
    BodyReader::new(request, limits)?.read_all().await
}

/// Parses a body that was read before.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    strict_json::from_slice(bytes).map_err(|invalid| Error::from(invalid).into())
}

/// A body without a type is read as JSON; another type is refused.
pub fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get(header::CONTENT_TYPE) {
        Some(value) if !value.to_str().is_ok_and(is_json) => {
            Err(Error::UnsupportedMediaType("application/json").into())
        }
        _ => Ok(()),
    }
}

/// `application/json` and its descendants such as `application/problem+json`.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    kind.eq_ignore_ascii_case("application")
        && (subtype.eq_ignore_ascii_case("json") || subtype.to_ascii_lowercase().ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{KeysError, PlatformError};
    use axum::response::IntoResponse;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    struct New {
        count: u8,
    }

    fn request(content_type: &str, body: &'static str) -> Request {
        Request::builder()
            .header("content-type", content_type)
            .body(RawBody::from(body))
            .unwrap()
    }

    #[tokio::test]
    async fn json_types_are_read_and_others_refused() {
        for good in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/merge-patch+json",
        ] {
            let Body(new) =
                Body::<New, KeysError>::from_request(request(good, r#"{"count":1}"#), &())
                    .await
                    .unwrap();
            assert_eq!(new, New { count: 1 });
        }
        for bad in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "json",
            "text/json+x",
            "",
        ] {
            let refused =
                Body::<New, KeysError>::from_request(request(bad, r#"{"count":1}"#), &()).await;
            assert_eq!(
                refused.err().unwrap().into_response().status(),
                415,
                "{bad}"
            );
        }
    }

    #[tokio::test]
    async fn a_route_may_take_any_type() {
        let mut request = request("text/plain", r#"{"count":1}"#);
        request.extensions_mut().insert(BodyRules {
            any_type: true,
            ..BodyRules::default()
        });
        assert!(read_json::<New>(request).await.is_ok());
    }

    #[tokio::test]
    async fn an_optional_body_may_be_absent_but_not_wrong() {
        let read = |body| async move {
            OptionalBody::<New, PlatformError>::from_request(Request::new(RawBody::from(body)), &())
                .await
                .map(|OptionalBody(new)| new)
        };
        assert_eq!(read("").await.unwrap(), New::default());
        assert_eq!(read(r#"{"count":2}"#).await.unwrap(), New { count: 2 });
        assert_eq!(read("{").await.unwrap_err().into_response().status(), 400);
    }
}
