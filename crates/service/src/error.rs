//! What can go wrong, in the platform's own words.
//!
//! Services return [`Error`] and know nothing of HTTP. Each API surface turns it into a response
//! in its own shape, at the last moment. Every error has a stable code for programs and a sentence
//! for people; the cause of an internal one goes to the log only.

use estrade_blobs::BlobError;
use estrade_model::token_scope::{ScopeKind, TokenScope};
use std::time::Duration;

/// The result of a service call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No credential, or one that is not (or no longer) good.
    #[error("authentication is missing or invalid: send `Authorization: Bearer <token>`")]
    Unauthenticated,
    /// A login with a wrong address or password. It does not reveal which of them is wrong.
    #[error("the e-mail address or the password is wrong, or the account is disabled")]
    WrongCredentials,
    /// The password is right, and the account also has a second factor.
    #[error("this account has a second factor: send its code, or a recovery code, as `otp`")]
    SecondFactorRequired,
    /// A code of a second factor that is wrong, expired or used.
    #[error("the code is wrong or was used already; wait for the next one")]
    WrongSecondFactor,
    /// The sign-in behind a session is too old for this; the APIs, which take tokens, never say so.
    #[error("your sign-in is older than ten minutes: confirm that it is you")]
    ConfirmationRequired,
    /// The caller sees the thing but may not do this to it.
    #[error("{0}")]
    Forbidden(String),
    /// The token is not good for this, whatever its account may do.
    #[error("this needs a token of the scope {}; this one has the scope {grant}", join(.needed))]
    InsufficientScope {
        grant: TokenScope,
        /// The scopes that would do.
        needed: &'static [ScopeKind],
    },
    /// The owner has reached a quota.
    #[error(
        "the limit of {limit} {what} is reached; delete some or ask the administrator to raise it"
    )]
    Quota {
        /// What is limited, in the plural.
        what: &'static str,
        limit: u64,
    },
    /// Part of the request is not acceptable.
    #[error("{message}")]
    Invalid {
        /// Stable code, `invalid` unless something more specific is known.
        code: &'static str,
        /// What is wrong, and where.
        message: String,
    },
    /// It does not exist, or the caller may not know that it does.
    #[error("{0} was not found")]
    NotFound(&'static str),
    /// It was there once.
    #[error("{0} is gone")]
    Gone(&'static str),
    /// It clashes with what is there.
    #[error("{message}")]
    Conflict {
        code: &'static str,
        /// What clashes, and what to do.
        message: String,
    },
    /// Contents that a release names and its project does not have.
    #[error(
        "{} of the contents are not here yet; send each with PUT /v2/projects/{{project}}/blobs/{{digest}}, then repeat this request",
        .0.len()
    )]
    MissingFiles(Vec<MissingFile>),
    /// `If-Match` named another version.
    #[error("it has changed since you read it; read it again and repeat")]
    PreconditionFailed,
    /// More bytes or files than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// A body of another type than the one that is named.
    #[error("send the body as {0}")]
    UnsupportedMediaType(&'static str),
    /// An idempotency key was used for two different requests.
    #[error("this Idempotency-Key was used for a different request; use a new key")]
    IdempotencyMismatch,
    /// The first request with this idempotency key is still in progress.
    #[error("a request with this Idempotency-Key is still being carried out; repeat in a moment")]
    IdempotencyInProgress,
    /// Too many requests or attempts.
    #[error("too many requests; repeat in {} s", .0.as_secs().max(1))]
    RateLimited(Duration),
    /// A dependency, such as the database, is not available.
    #[error("the service is not available right now; repeat in a moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The storage of files, such as a bucket, does not answer or refuses us. What was stored is safe.
    #[error(
        "the storage of files is not available right now; nothing was changed, repeat in a moment"
    )]
    StorageUnavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A failure on our side. The cause is logged, never shown.
    #[error("something went wrong on our side; the log has the details under this request id")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn join(scopes: &[ScopeKind]) -> String {
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    names.join(" or ")
}

/// A content that has to be sent, and the first path that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFile {
    /// Where the release has it.
    pub path: String,
    pub digest: String,
}

impl Error {
    /// An unacceptable part of a request, with the general code.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            code: "invalid",
            message: message.into(),
        }
    }

    /// A clash, with its stable code.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::Conflict {
            code,
            message: message.into(),
        }
    }

    /// An internal failure with its cause.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(cause.into())
    }

    /// Whether it is a failure, and not a refusal: a transaction that ends with it may have been committed.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::StorageUnavailable(_) | Self::Internal(_)
        )
    }

    /// The stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::WrongCredentials => "wrong_credentials",
            Self::SecondFactorRequired => "second_factor_required",
            Self::WrongSecondFactor => "wrong_second_factor",
            Self::ConfirmationRequired => "confirmation_required",
            Self::Forbidden(_) => "no_permission",
            Self::InsufficientScope { .. } => "insufficient_scope",
            Self::Quota { .. } => "quota",
            Self::Invalid { code, .. } | Self::Conflict { code, .. } => code,
            Self::MissingFiles(_) => "missing_files",
            Self::NotFound(_) => "not_found",
            Self::Gone(_) => "gone",
            Self::PreconditionFailed => "precondition_failed",
            Self::TooLarge(_) => "too_large",
            Self::UnsupportedMediaType(_) => "unsupported_media_type",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::IdempotencyInProgress => "idempotency_in_progress",
            Self::RateLimited(_) => "rate_limited",
            Self::Unavailable(_) => "unavailable",
            Self::StorageUnavailable(_) => "storage_unavailable",
            Self::Internal(_) => "internal",
        }
    }
}

impl From<estrade_model::Invalid> for Error {
    fn from(invalid: estrade_model::Invalid) -> Self {
        Self::invalid(invalid.0)
    }
}

/// What becomes of an error of the blob store where the request is not to blame.
impl From<BlobError> for Error {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Unavailable { .. } | BlobError::Filling { .. } | BlobError::Moved { .. } => {
                Self::StorageUnavailable(error.into())
            }
            BlobError::NoSpace(_) | BlobError::Lookup(_) => Self::Unavailable(error.into()),
            other => Self::internal(other),
        }
    }
}

impl From<estrade_logs::Error> for Error {
    fn from(error: estrade_logs::Error) -> Self {
        Self::internal(error)
    }
}

impl From<estrade_runtime::Error> for Error {
    fn from(error: estrade_runtime::Error) -> Self {
        Self::internal(error)
    }
}

impl From<estrade_store::StoreError> for Error {
    fn from(error: estrade_store::StoreError) -> Self {
        match error {
            estrade_store::StoreError::Unavailable(_)
            | estrade_store::StoreError::Serialization(_) => Self::Unavailable(error.into()),
            estrade_store::StoreError::BlobsMoved => Self::StorageUnavailable(error.into()),
            other => Self::Internal(other.into()),
        }
    }
}
