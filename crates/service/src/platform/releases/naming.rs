//! How releases are called, and what is said when one is not there.

use crate::Error;

pub(super) const NOT_FOUND: Error = Error::NotFound("the release");

/// How people call a release within its project.
pub(crate) fn tag(number: u64) -> String {
    format!("v{number}")
}
