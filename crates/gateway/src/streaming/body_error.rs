//! The error of a response's body.

use crate::upstream::ResponseError;
use std::fmt;

/// The response was aborted: the connection to the client is reset rather than ended cleanly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyError(pub(crate) ResponseError);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the provider's response was cut ({:?})", self.0)
    }
}

impl std::error::Error for BodyError {}
