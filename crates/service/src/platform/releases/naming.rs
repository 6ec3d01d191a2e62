//! Names of releases, and the errors for those that do not exist.

use crate::Error;

pub(super) const NOT_FOUND: Error = Error::NotFound("the release");

/// How people call a release within its project.
pub(crate) fn tag(number: u64) -> String {
    format!("v{number}")
}
