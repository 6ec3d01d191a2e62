//! Text that must not reach a log.

use std::fmt;

/// A secret on its way to the one reader it is for; its `Debug` says nothing.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct Secret(pub String);

impl Secret {
    /// The text itself; every call is a place to look at twice.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
