//! How fields of request bodies are read that may be absent, or written in more than one way.

use crate::Invalid;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::RangeInclusive;

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

/// Reads a string and parses it.
pub fn deserialize_text<'de, D: Deserializer<'de>, T>(
    source: D,
    parse: fn(&str) -> Result<T, Invalid>,
) -> Result<T, D::Error> {
    source.deserialize_str(Text(parse))
}

/// Parses while the string is being visited, and not afterwards: only then does the TOML
/// parser know the place of an error inside a list.
struct Text<T>(fn(&str) -> Result<T, Invalid>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.0(text).map_err(E::custom)
    }
}

/// A whole number, also as a text of digits: public clients send what was typed.
pub(crate) struct WholeNumber {
    pub(crate) range: RangeInclusive<u64>,
    /// What should have been there, for the error.
    pub(crate) expected: &'static str,
}

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
        if !self.range.contains(&number) {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(number)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        // Not just `parse`, which takes a plus sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => self.visit_u64(number),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}
