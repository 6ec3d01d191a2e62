//! Why a request, or what led to it, failed.

use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// What went wrong; each kind is something else that a person would do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// What was asked for makes no sense; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// What was named is not there.
    #[error("{0}")]
    NotFound(String),
    /// The role or the token does not allow it.
    #[error("{0}")]
    Denied(String),
    /// It is not possible as things are now.
    #[error("{0}")]
    State(String),
    /// It went wrong on the way; something may have been done.
    #[error("{0}")]
    Failed(String),
    /// There is no token for the server.
    #[error("not logged in to {0}")]
    NoCredential(String),
    /// A login through a browser came to nothing.
    #[error("not logged in to {server}: {reason}")]
    LoginEnded { server: String, reason: String },
    /// The server has no login through a browser.
    #[error(
        "{0} has no login through a browser: it is of an earlier version, or no Estrade server"
    )]
    NoBrowserLogin(String),
    /// The keyring has its token, or had it.
    #[error("the token for {server} is in the keyring, and that {reason}")]
    LostCredential { server: String, reason: String },
    /// The server was not reached, or the connection broke.
    #[error("cannot reach {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// The server did not answer. Whether it did what it was asked is not known.
    #[error("{url} did not answer in time")]
    TimedOut { url: String },
    /// The server refused the request.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    /// What came is not what the API promises: perhaps another server listens there.
    #[error("{url} does not answer like an Estrade server: {reason}")]
    Malformed { url: String, reason: String },
    /// A file on this machine.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl ClientError {
    /// Says which file an error of the system is about.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    /// The refusal of a server, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the same request may succeed in a moment: the server restarts, is overloaded, or was not reached.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Refused(refusal) => status_may_pass(refusal.status, refusal.has_retry_after),
            _ => false,
        }
    }

    /// Whether the server refused with this code.
    pub fn has_code(&self, code: &str) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == code)
    }
}

/// Whether a response with this status is about the moment, not about the request.
pub(crate) fn status_may_pass(status: u16, has_retry_after: bool) -> bool {
    match status {
        429 | 502..=504 => true,
        // An earlier attempt with the same idempotency key is still being carried out.
        409 => has_retry_after,
        _ => false,
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// Stable, for programs; empty where the server gave none.
    pub code: String,
    /// For a person.
    pub message: String,
    pub request_id: Option<String>,
    /// Whether it says when to try again.
    pub has_retry_after: bool,
    /// With `missing_files`: the contents to send.
    pub missing: Vec<MissingFile>,
}

/// A content that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MissingFile {
    pub path: String,
    pub digest: String,
}
