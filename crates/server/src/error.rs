//! The two shapes of an error: JSON for the platform API, an empty body for the AI key API.
//!
//! Handlers return one of these and use `?` on service errors. What a shape does not show (the
//! cause of an internal failure) is logged here, once, when the response is made.

use crate::api_error::ApiError;
use axum::Json;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use estrade_service::Error;

/// One API's way to tell that something went wrong; extractors and fallbacks are generic over it.
pub trait ErrorShape: From<Error> + From<ApiError> + IntoResponse + Send + 'static {
    /// Always `T`. It lets an extractor name its error shape without carrying a second field, so
    /// that handlers can write `Body(new): Body<CreateKey, KeysError>`.
    type Plain<T>;

    /// The error for a path with a malformed parameter, such as an id of the wrong form.
    fn bad_path(reason: String) -> ApiError;

    /// Wraps nothing: see [`ErrorShape::Plain`].
    fn plain<T>(value: T) -> Self::Plain<T>;
}

/// Marks a response that is not stored for repeats: a repeat with the same idempotency key is executed, whatever the
/// status.
#[derive(Clone, Copy)]
pub struct NotStored;

/// The body of a platform error.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The status code, once more.
    #[schema(example = 409)]
    pub status_code: u16,
    /// What the status code means.
    #[schema(example = "Conflict")]
    pub error: &'static str,
    /// What went wrong and what to do, for a person.
    pub message: String,
    /// For programs.
    pub data: ErrorData,
}

/// The part of an error that programs read.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct ErrorData {
    /// A stable code.
    #[schema(example = "project_exists")]
    pub code: &'static str,
    /// With `missing_files`: the contents to send, each with the first path that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<MissingFile>>,
}

/// A content that has to be sent before the release can be made.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct MissingFile {
    /// Where the release has it.
    #[schema(example = "index.html")]
    pub path: String,
    /// Its BLAKE3 hash.
    #[schema(min_length = 64, max_length = 64)]
    pub digest: String,
}

/// Platform API: a JSON body with a message and a code.
#[derive(Debug)]
pub struct PlatformError(ApiError);

/// AI key and workspace API: no body; the reason travels in headers.
#[derive(Debug)]
pub struct KeysError(ApiError);

macro_rules! shape {
    ($shape:ident, |$reason:ident| $bad_path:expr) => {
        impl<E: Into<Error>> From<E> for $shape {
            fn from(error: E) -> Self {
                Self(ApiError::Service(error.into()))
            }
        }
        impl From<ApiError> for $shape {
            fn from(error: ApiError) -> Self {
                Self(error)
            }
        }
        impl ErrorShape for $shape {
            type Plain<T> = T;

            fn bad_path($reason: String) -> ApiError {
                ApiError::from($bad_path)
            }

            fn plain<T>(value: T) -> T {
                value
            }
        }
    };
}
// No resource has such an id, so it is not found; the key API reports the mistake instead.
shape!(PlatformError, |_reason| Error::NotFound("it"));
shape!(KeysError, |reason| Error::invalid(reason));

impl IntoResponse for PlatformError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        error.log();
        let status = error.status();
        let body = ErrorBody {
            status_code: status.as_u16(),
            error: status.canonical_reason().unwrap_or("Error"),
            message: error.message().into_owned(),
            data: ErrorData {
                code: error.code(),
                files: error.missing_files().map(list_missing),
            },
        };
        let is_not_stored = body.data.files.is_some();
        let mut response = (status, Json(body)).into_response();
        error.write_headers(response.headers_mut());
        if is_not_stored {
            // The error instructs the client to repeat the very same request.
            response.extensions_mut().insert(NotStored);
        }
        response
    }
}

fn list_missing(files: &[estrade_service::error::MissingFile]) -> Vec<MissingFile> {
    let shown = |file: &estrade_service::error::MissingFile| MissingFile {
        path: file.path.clone(),
        digest: file.digest.clone(),
    };
    files.iter().map(shown).collect()
}

impl IntoResponse for KeysError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        error.log();
        let mut response = error.status().into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        headers.insert(
            HeaderName::from_static("x-error-code"),
            HeaderValue::from_static(error.code()),
        );
        if let Ok(message) = HeaderValue::try_from(printable(&error.message())) {
            headers.insert(HeaderName::from_static("x-error-message"), message);
        }
        error.write_headers(headers);
        response
    }
}

/// Longest reason in a header: proxies refuse long ones.
const MAX_HEADER_MESSAGE: usize = 300;

/// A message as a header can carry it.
fn printable(message: &str) -> String {
    message
        .chars()
        .map(|c| match c {
            ' '..='~' => c,
            c if c.is_whitespace() => ' ',
            _ => '?',
        })
        .take(MAX_HEADER_MESSAGE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    async fn body(response: Response) -> String {
        String::from_utf8(
            to_bytes(response.into_body(), 10_000)
                .await
                .unwrap()
                .to_vec(),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_platform_error_is_json_with_a_message_and_a_code() {
        let error = Error::conflict("project_exists", "the name shop is taken");
        let response = PlatformError::from(error).into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(
            body(response).await,
            r#"{"statusCode":409,"error":"Conflict","message":"the name shop is taken","data":{"code":"project_exists"}}"#
        );
    }

    #[tokio::test]
    async fn a_keys_error_has_no_body_and_its_reason_in_headers() {
        let error = Error::invalid(format!("név:\nnot allowed{}", "x".repeat(500)));
        let response = KeysError::from(error).into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-length"], "0");
        assert_eq!(response.headers()["x-error-code"], "invalid");
        let message = response.headers()["x-error-message"].to_str().unwrap();
        assert!(message.starts_with("n?v: not allowedx") && message.len() == 300);
        assert_eq!(body(response).await, "");
    }

    #[test]
    fn a_401_says_how_to_authenticate() {
        for response in [
            PlatformError::from(Error::Unauthenticated).into_response(),
            KeysError::from(Error::Unauthenticated).into_response(),
        ] {
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
        }
    }
}
