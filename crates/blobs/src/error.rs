//! What can go wrong with blobs, told apart as far as callers act on it.

use std::error::Error;
use std::io;

/// Why the caller of a staging could not tell whether a content is known: any error of its own.
pub type LookupError = Box<dyn Error + Send + Sync>;

/// An error of the blob store.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The pack or file that should hold the content is not there.
    #[error("the content is missing from the blob store")]
    Missing,
    /// The bytes on disk are not the ones that were stored.
    #[error("the stored content is damaged")]
    Damaged,
    /// More bytes than the caller allowed.
    #[error("more than {max} bytes")]
    TooLarge {
        /// The number of bytes that would have been accepted.
        max: u64,
    },
    /// The disk, or this user's quota on it, is full.
    #[error("no space is left for blobs")]
    NoSpace(#[source] io::Error),
    /// The question whether a content is known failed.
    #[error("could not look up a content")]
    Lookup(#[source] LookupError),
    /// The directory holds the blobs of another installation.
    #[error("the blob store belongs to the installation {owner}")]
    OtherInstallation { owner: String },
    /// The bucket did not answer in time, or refused. What the cache holds is still served.
    #[error("the bucket is unavailable: {problem}")]
    Unavailable {
        /// A sentence for the operator. It holds no secret and no name that a user chose.
        problem: String,
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// No installation has used the store, although it should have contents.
    #[error("the blob store is empty")]
    NeverUsed,
    /// Contents are being copied here from another place.
    #[error("the blob store is being filled from {from}")]
    Filling { from: String },
    /// The contents are in another place now.
    #[error("the contents of the blob store have moved to {to}")]
    Moved { to: String },
    /// Any other failure of the file system.
    #[error("the blob store could not use its files")]
    Io(#[source] io::Error),
}

/// Also undoes the wrapping that `std::io::Write` forces on a [`ContentWriter`](super::ContentWriter),
/// so that `io::copy(…)?` yields the error that was meant.
impl From<io::Error> for BlobError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(error),
                _ => Self::Io(error),
            },
        }
    }
}

impl From<BlobError> for io::Error {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::NoSpace(error) | BlobError::Io(error) => error,
            other => Self::other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() -> io::Result<()> {
        let mut full = OpenOptions::new().write(true).open("/dev/full")?;
        let error = full.write_all(b"x").err().map(BlobError::from);
        assert!(matches!(error, Some(BlobError::NoSpace(_))), "{error:?}");
        Ok(())
    }

    #[test]
    fn a_wrapped_error_comes_back_as_itself() {
        let wrapped = io::Error::from(BlobError::TooLarge { max: 7 });
        assert!(matches!(
            BlobError::from(wrapped),
            BlobError::TooLarge { max: 7 }
        ));
    }
}
