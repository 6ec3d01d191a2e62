//! What instances wrote, as it goes over the wire.

use crate::{Invalid, ReleaseId};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// In which order lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Oldest first.
    Forward,
    /// Newest first.
    #[default]
    Backward,
}

impl FromStr for Direction {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "forward" => Ok(Self::Forward),
            "backward" => Ok(Self::Backward),
            _ => Err("must be forward or backward".into()),
        }
    }
}

/// From when on lines are read: the first nanosecond since the epoch.
///
/// Written as seconds since the epoch, from which on, or as the moment of a line, after which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(pub i64);

impl FromStr for Since {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Ok(seconds) = text.parse::<i64>() {
            return Ok(Self(seconds.saturating_mul(1_000_000_000)));
        }
        let moment: jiff::Timestamp = text.parse().map_err(|_| {
            Invalid::from("must be seconds since the epoch, or the datetime of a line")
        })?;
        let nanos = moment.as_nanosecond().saturating_add(1);
        let nanos = nanos.clamp(i64::MIN.into(), i64::MAX.into());
        Ok(Self(i64::try_from(nanos).unwrap_or(i64::MAX)))
    }
}

/// `GET /v2/projects/{p}/logs`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Logs {
    /// The lines, release by release.
    pub data: Vec<ReleaseLines>,
}

/// The lines of one release.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseLines {
    /// Whose lines these are.
    pub meta_data: LinesOf,
    /// Each line as two texts: when, in nanoseconds since the epoch, and a JSON object with `_entry` (the
    /// text) and `type` (`stdout` or `stderr`).
    #[schema(value_type = Vec<Vec<String>>, example = json!([["1794704523004567891", "{\"_entry\":\"listening\",\"type\":\"stdout\"}"]]))]
    pub values: Vec<[String; 2]>,
}

/// Whose lines they are.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinesOf {
    /// The release.
    pub release_id: ReleaseId,
}

/// One line of `GET /v1/projects/{p}/logs`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct LegacyLine {
    /// `stdout` or `stderr`.
    #[schema(example = "stdout")]
    pub r#type: &'static str,
    /// When, with nanoseconds.
    #[schema(example = "2026-11-15T01:02:03.004567891Z", format = DateTime)]
    pub datetime: String,
    /// The text.
    #[schema(example = "listening")]
    pub message: String,
}

/// One line of a stream.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamedLine {
    /// The release.
    pub release_id: ReleaseId,
    /// When, in nanoseconds since the epoch.
    pub time: String,
    /// `stdout` or `stderr`.
    pub r#type: &'static str,
    /// The text.
    #[serde(rename = "_entry")]
    pub entry: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_second_or_after_a_line() {
        let since = |text: &str| text.parse().map(|Since(first)| first);
        assert_eq!(since("5"), Ok(5_000_000_000));
        assert_eq!(since("1970-01-01T00:00:05.000000007Z"), Ok(5_000_000_008));
        assert_eq!(since("9223372036854775807"), Ok(i64::MAX));
        assert_eq!(since("9999-01-01T00:00:00Z"), Ok(i64::MAX));
        for bad in ["", "x", "5.5", "yesterday", "99999999999999999999"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_document_names_directions_as_the_wire_does() {
        let schema = serde_json::to_value(<Direction as utoipa::PartialSchema>::schema()).unwrap();
        for name in schema["enum"].as_array().unwrap() {
            let parsed: Direction = name.as_str().unwrap().parse().unwrap();
            assert_eq!(serde_json::to_value(parsed).unwrap(), *name);
        }
    }
}
