//! Providers: who answers inference requests, and at what price.

use crate::call::Price;
use crate::secret::Secret;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the built-in test model and of what answers it.
pub const ECHO_MODEL: &str = "estrade/echo";

/// One upstream that speaks the `OpenAI` protocol.
#[derive(Debug, Clone)]
pub struct Provider {
    /// What logs and call records name it.
    pub name: String,
    /// Its base URL, usually ending in `/v1`, without a slash at its end.
    pub base_url: String,
    /// What it is sent as bearer.
    pub api_key: Option<Secret>,
    /// Certificates it is trusted by, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// How often a failed attempt is repeated before the next provider is asked.
    pub retries: u32,
    /// Whether streams are asked for their usage when the caller did not.
    pub stream_usage: bool,
    /// What it offers.
    pub models: Vec<OfferedModel>,
}

/// How long to wait for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until it accepts the connection.
    pub connect: Duration,
    /// Until the answer begins.
    pub first_byte: Duration,
    /// Between two parts of the answer.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            // Large models think for minutes before the first byte of an answer that is no stream.
            first_byte: Duration::from_mins(10),
            idle: Duration::from_mins(5),
        }
    }
}

/// A model of a provider.
#[derive(Debug, Clone)]
pub struct OfferedModel {
    /// What callers write.
    pub id: String,
    /// What the provider is sent; absent: the same.
    pub upstream: Option<String>,
    /// What it costs.
    pub price: Price,
    /// How many tokens fit.
    pub context_length: Option<NonZeroU32>,
    /// The share of calls among the providers of this model; absent: in order.
    pub weight: Option<NonZeroU32>,
}

/// Which provider of a model a workspace prefers.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Preference {
    /// As configured: weights, else order.
    #[default]
    Order,
    /// The cheapest first.
    Price,
    /// The one whose first byte comes soonest first, as measured.
    Latency,
    /// The one that sends most tokens per second first, as measured.
    Throughput,
}
