//! What can go wrong between us and the engine.

use std::io;

/// Why a call to the engine failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing listens where the engine should be.
    #[error("{message}")]
    NoEngine {
        /// Where it was expected, and what to do about it.
        message: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The engine is there, but not for us.
    #[error("{message}")]
    NoPermission {
        /// What to do about it.
        message: String,
    },
    /// The engine and this crate have no version of the API in common; which ones there are.
    #[error("{0}")]
    Version(String),
    /// It did not respond in time.
    #[error("the container engine did not respond in time: {0}")]
    TimedOut(&'static str),
    /// It closed the connection during the call, or its response was malformed.
    #[error("the container engine broke off: {what}")]
    Broken {
        /// What was being done.
        what: &'static str,
        /// What was seen of it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thing is not there (any more).
    #[error("{what}: {message}")]
    NotFound {
        /// What was being done.
        what: &'static str,
        message: String,
    },
    /// It clashes with something that is there, or is in use.
    #[error("{what}: {message}")]
    Conflict {
        /// What was being done.
        what: &'static str,
        message: String,
    },
    /// The engine does not want to.
    #[error("{what}: {message}")]
    Refused {
        /// What was being done.
        what: &'static str,
        /// The status of its response; 0 where the refusal came inside of one.
        status: u16,
        message: String,
    },
    /// Every subnet of the pool is taken.
    #[error("no subnet is left for another owner's network in {0}: configure a larger pool")]
    NoSubnetLeft(String),
}

impl Error {
    /// Whether the engine is away or unwell, so that the same call may well work later.
    pub fn is_engine_away(&self) -> bool {
        matches!(
            self,
            Self::NoEngine { .. }
                | Self::NoPermission { .. }
                | Self::TimedOut(_)
                | Self::Broken { .. }
        )
    }

    /// Whether the thing is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether it clashes with something, or is in use.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// The error for a response with an error status.
    pub(crate) fn from_status(what: &'static str, status: u16, message: String) -> Self {
        match status {
            404 => Self::NotFound { what, message },
            409 => Self::Conflict { what, message },
            _ => Self::Refused {
                what,
                status,
                message,
            },
        }
    }

    /// The error for a malformed response.
    pub(crate) fn broken(
        what: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Broken {
            what,
            source: source.into(),
        }
    }
}
