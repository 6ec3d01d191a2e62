//! Errors of the client library, in our words.

use crate::error::Error;

impl Error {
    pub(crate) fn from_bollard(what: &'static str, error: bollard::errors::Error) -> Self {
        use bollard::errors::Error as E;
        match error {
            E::DockerResponseServerError {
                status_code,
                message,
            } => Self::from_status(what, status_code, message),
            E::DockerStreamError { error } => Self::from_status(what, 0, error),
            E::RequestTimeoutError => Self::TimedOut(what),
            // Our own transport's words, on their way through bollard.
            E::IOError { err } => match err.downcast::<Self>() {
                Ok(ours) => ours,
                Err(err) => Self::broken(what, err),
            },
            other => Self::broken(what, other),
        }
    }
}
