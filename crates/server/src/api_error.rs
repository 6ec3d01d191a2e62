//! What can go wrong with a request, seen from HTTP.
//!
//! Most of it is [`estrade_service::Error`]; the rest exists only here, because the rules know
//! nothing of routes, sockets and panics. [`crate::error`] renders it in each API's shape.

use crate::rate::RateLimitStatus;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use estrade_model::error::error_chain;
use estrade_service::Error;
use estrade_service::error::MissingFile;
use std::borrow::Cow;
use std::time::Duration;

/// When a client should ask again for what needs a storage that does not answer.
const STORAGE_RETRY: Duration = Duration::from_secs(5);

/// Why a request gets an error.
#[derive(Debug)]
pub enum ApiError {
    /// The rules refused it.
    Service(Error),
    /// No route has this path.
    NoRoute,
    /// The route does not take this method; axum adds `Allow`.
    MethodNotAllowed,
    /// A page in a browser sent this, and the route is for programs.
    SentByPage,
    /// The body did not arrive, or too slowly.
    BodyTimeout,
    /// The client has as many bytes of bodies on their way as it may.
    TooManyBodies,
    /// All clients together have.
    BodiesFull,
    /// The account has as many streams open as it may.
    TooManyStreams,
    /// All accounts together have.
    StreamsFull,
    /// The handler took too long.
    Timeout,
    /// The handler panicked; the panic is already in the log.
    Panic,
    /// The credential sends faster than it may.
    RateLimited(RateLimitStatus),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

impl From<RateLimitStatus> for ApiError {
    fn from(reached: RateLimitStatus) -> Self {
        Self::RateLimited(reached)
    }
}

/// The status that stands for an error of the rules.
pub fn status(error: &Error) -> StatusCode {
    match error {
        Error::Unauthenticated
        | Error::WrongCredentials
        | Error::SecondFactorRequired
        | Error::WrongSecondFactor
        | Error::ConfirmationRequired => StatusCode::UNAUTHORIZED,
        Error::Forbidden(_) | Error::InsufficientScope { .. } | Error::Quota { .. } => {
            StatusCode::FORBIDDEN
        }
        Error::Invalid { .. } => StatusCode::BAD_REQUEST,
        Error::NotFound(_) => StatusCode::NOT_FOUND,
        Error::Gone(_) => StatusCode::GONE,
        Error::Conflict { .. } | Error::MissingFiles(_) | Error::IdempotencyInProgress => {
            StatusCode::CONFLICT
        }
        Error::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Error::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Error::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::Unavailable(_) | Error::StorageUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl ApiError {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Service(error) => status(error),
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::SentByPage => StatusCode::FORBIDDEN,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodiesFull | Self::StreamsFull | Self::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            Self::Panic => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyBodies | Self::TooManyStreams | Self::RateLimited(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
        }
    }

    /// The stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Service(error) => error.code(),
            Self::NoRoute => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::SentByPage => "sent_by_page",
            Self::BodyTimeout => "request_timeout",
            Self::TooManyBodies => "too_many_uploads",
            Self::BodiesFull => "uploads_full",
            Self::TooManyStreams => "too_many_streams",
            Self::StreamsFull => "streams_full",
            Self::Timeout => "timeout",
            Self::Panic => "internal",
            Self::RateLimited(_) => "rate_limited",
        }
    }

    /// The sentence for people.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Service(error) => error.to_string().into(),
            Self::NoRoute => "there is no such endpoint; /docs lists those that exist".into(),
            Self::MethodNotAllowed => {
                "this endpoint does not take this method; the Allow header names those that it takes".into()
            }
            Self::SentByPage => {
                "pages in a browser must not do this: send neither `Origin` nor `Sec-Fetch-Site`".into()
            }
            Self::BodyTimeout => "the body did not arrive in time; send it again without pauses".into(),
            Self::TooManyBodies => {
                "this account has too many requests with a body on their way; wait until some have ended".into()
            }
            Self::BodiesFull => "the server receives too many bodies at once; repeat in a moment".into(),
            Self::TooManyStreams => {
                "this account has too many streams of events or logs open; close some".into()
            }
            Self::StreamsFull => "the server has too many streams open; repeat in a moment".into(),
            Self::Timeout => "this took too long and was given up; repeat in a moment".into(),
            Self::Panic => "something went wrong on our side; the log has the details under this request id".into(),
            Self::RateLimited(limit) => Error::RateLimited(limit.retry_after).to_string().into(),
        }
    }

    /// What the client has to send first, when that is the error.
    pub fn missing_files(&self) -> Option<&[MissingFile]> {
        match self {
            Self::Service(Error::MissingFiles(files)) => Some(files),
            _ => None,
        }
    }

    /// Sets the headers that go with the status, whatever the shape of the body.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        match self {
            Self::Service(error) if status(error) == StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::RateLimited(limit) => {
                for (name, value) in [
                    ("ratelimit-limit", u64::from(limit.limit)),
                    ("ratelimit-remaining", u64::from(limit.remaining)),
                    ("ratelimit-reset", whole_seconds(limit.reset)),
                ] {
                    headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
                }
            }
            _ => {}
        }
        if let Some(wait) = self.retry_after() {
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(whole_seconds(wait).max(1)),
            );
        }
    }

    /// Writes the cause of a failure on our side to the log; the client never sees it.
    pub fn log(&self) {
        if let Self::Service(
            Error::Internal(cause) | Error::Unavailable(cause) | Error::StorageUnavailable(cause),
        ) = self
        {
            tracing::error!(
                error = error_chain(cause.as_ref()),
                code = self.code(),
                "request failed"
            );
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Service(Error::RateLimited(wait)) => Some(*wait),
            Self::RateLimited(limit) => Some(limit.retry_after),
            // As long as a node rests before it asks a storage again that did not answer.
            Self::Service(Error::StorageUnavailable(_)) => Some(STORAGE_RETRY),
            Self::Service(Error::Unavailable(_) | Error::IdempotencyInProgress)
            | Self::TooManyBodies
            | Self::BodiesFull
            | Self::TooManyStreams
            | Self::StreamsFull
            | Self::Timeout => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

/// Rounded up: a client that waits this long has waited long enough.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_with_everything_behind_it_and_never_shown() {
        let disk = std::io::Error::other("disk full");
        let error = ApiError::Service(Error::internal(std::io::Error::other(disk)));
        let ApiError::Service(Error::Internal(cause)) = &error else {
            panic!("not internal")
        };
        assert!(error_chain(cause.as_ref()).contains("disk full"));
        assert!(!error.message().contains("disk"));
    }

    #[test]
    fn waiting_times_are_rounded_up() {
        let mut headers = HeaderMap::new();
        ApiError::Service(Error::RateLimited(Duration::from_millis(1500)))
            .write_headers(&mut headers);
        assert_eq!(headers[header::RETRY_AFTER], "2");
    }
}
