//! Why a value was refused at the border.

/// A value that a parser of this crate refused, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl From<&str> for Invalid {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<String> for Invalid {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}
