//! What instances wrote, as it goes over the wire.

use crate::ReleaseId;
use serde::Serialize;

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
