//! Why a release does not go on.

use super::transition::Failure;
use crate::Error;
use estrade_archive::UnpackError;
use estrade_model::release::ReleaseState;

/// Why a release does not go on.
pub(super) enum StepError {
    /// It ends here.
    Failed(Failure),
    /// It ends here, and not as FAILED.
    Ended(ReleaseState, Failure),
    /// The lease was lost: the release was ended or taken over by another worker.
    Lost,
    /// It needs a build slot and holds none.
    NeedsBuild,
    /// We could not; the lease runs out and the release is taken up again.
    Broken(Error),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl From<UnpackError> for StepError {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Refused(reason, message) => Self::Failed(Failure { reason, message }),
            UnpackError::Canceled => Self::Lost,
            // An error of ours travelled through the reader in a box.
            UnpackError::Broken(error) => Self::Broken(match error.downcast() {
                Ok(error) => *error,
                Err(error) => Error::Internal(error),
            }),
        }
    }
}

pub(super) fn source_gone() -> Failure {
    Failure {
        reason: "source_gone",
        message: "what this release was made of has been cleaned up; deploy the files again".into(),
    }
}
