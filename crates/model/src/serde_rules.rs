//! How optional fields of request bodies are read.

use serde::{Deserialize, Deserializer};

/// A field that a request may leave out, clear with `null`, or set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    /// Not in the body: leave it as it is.
    #[default]
    Keep,
    /// `null`: clear it.
    Clear,
    /// A value: set it.
    Set(T),
}

impl<T> Patch<T> {
    /// What an existing value becomes.
    pub fn apply(self, present: Option<T>) -> Option<T> {
        match self {
            Self::Keep => present,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(|value| value.map_or(Self::Clear, Self::Set))
    }
}

/// Reads a field that may be absent but not `null` (with `#[serde(default)]`).
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
