//! Why unpacking stopped.

use std::io;

/// Why unpacking stopped.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is not acceptable: a stable code, and words for a person.
    #[error("{0}: {1}")]
    Refused(&'static str, String),
    /// The caller does not want the result any more.
    #[error("it is not wanted any more")]
    Canceled,
    /// The contents could not be stored.
    #[error("we could not")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Refuses an archive: a stable code, and words for a person.
pub fn refuse<T>(reason: &'static str, message: impl Into<String>) -> Result<T, UnpackError> {
    Err(UnpackError::Refused(reason, message.into()))
}

/// More came out of an archive than may.
#[derive(Debug, thiserror::Error)]
#[error("unpacked, the files are larger than {0} bytes")]
pub(crate) struct TooLarge(pub(crate) u64);

/// Errors of reading: ours, on the way through a reader that knows only `io::Error`, or the archive's.
impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(stop) => return stop,
            Err(error) => error,
        };
        match error.downcast::<TooLarge>() {
            Ok(too_much) => Self::Refused("archive_too_large", too_much.to_string()),
            Err(error) => Self::Refused(
                "archive_invalid",
                format!("the archive is damaged: {error}"),
            ),
        }
    }
}
