//! What the instances of a project use, on the wire.

use crate::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// `GET /v1/projects/{project_id}/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct ProjectMetrics {
    /// Seconds from one sample to the next. Where samples are missing, nothing ran or nothing was measured.
    pub step: u64,
    /// The last hour, oldest first.
    pub samples: Vec<MetricSample>,
    /// What one instance may use.
    pub limits: MetricLimits,
    /// What instances have written to their own file systems, outside of disks.
    pub disk: MetricDisk,
}

/// `GET /v1/projects/{project_id}/metrics/summary`.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct MetricSummary {
    /// When instances were measured; null while none run.
    pub timestamp: Option<Timestamp>,
    /// How many instances run.
    pub instances: u32,
    /// CPU time in cores, of all instances together.
    pub cpu: SummaryCpu,
    /// Memory in bytes, of all instances together.
    pub memory: SummaryBytes,
    /// What the instance that has written most has on its own file system.
    pub disk: MetricDisk,
    /// Bytes per second.
    pub network: SummaryNetwork,
    /// What visitors were given since this node has served the project.
    pub requests: SummaryRequests,
}

/// CPU time in cores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct SummaryCpu {
    /// What they use: 0.5 is half a core.
    pub used: f64,
    /// What they may use.
    pub limit: u64,
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SummaryBytes {
    /// What they use.
    pub used: u64,
    /// What they may use.
    pub limit: u64,
}

/// Bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SummaryNetwork {
    /// Received.
    pub r#in: u64,
    /// Sent.
    pub out: u64,
}

/// Responses to visitors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRequests {
    /// How many.
    pub total: u64,
    /// How many of each class of status, such as `2xx`.
    pub by_status: BTreeMap<&'static str, u64>,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// What all instances of a project together used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricSample {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// CPU time since the sample before, in cores: 0.5 is half of one.
    pub cpu: f64,
    /// Memory in bytes.
    pub memory: u64,
    /// Bytes received per second since the sample before.
    pub network_in: u64,
    /// Bytes sent per second since the sample before.
    pub network_out: u64,
    /// How many instances ran.
    pub instances: u32,
}

/// What one instance may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct MetricLimits {
    /// Memory in bytes.
    pub memory: u64,
    /// CPU cores.
    pub cpus: u64,
}

/// The file system of the instance that has written most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct MetricDisk {
    /// Bytes that it has written, where somebody has to count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Bytes that it may write.
    pub limit: u64,
}
