//! `[limits]` and `[plans]`: how much anyone may use.

use super::text::{Invalid, serde_as_text};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

/// What one client, release or owner may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Management requests per second and credential.
    pub requests_per_second: Cap,
    /// How many of them may come at once.
    pub burst: NonZeroU32,
    /// Management requests per second of all credentials of an account together.
    pub account_requests_per_second: Cap,
    /// How many of them may come at once.
    pub account_burst: NonZeroU32,
    /// The largest JSON body.
    pub body_bytes: NonZeroU64,
    /// The largest release.
    pub release_bytes: NonZeroU64,
    /// The most files in a release.
    pub release_files: NonZeroU32,
    /// How many releases of a project can come back.
    pub release_history: NonZeroU32,
    /// Projects per owner.
    pub projects: Cap,
    /// AI keys per owner.
    pub keys: Cap,
    /// Workspaces per owner.
    pub workspaces: Cap,
    /// Tokens per account.
    pub tokens: Cap,
    /// Teams that an account owns.
    pub teams: Cap,
    /// Networks per owner, the default one included.
    pub networks: Cap,
    /// Domains per owner.
    pub domains: Cap,
    /// Open connections per listener.
    pub connections: NonZeroU32,
    /// Open connections of one address per listener. Absent: half of `connections`.
    pub connections_per_address: Option<NonZeroU32>,
    /// The most instances that a project may be scaled to.
    pub scale: NonZeroU32,
    /// Failed logins per account before the next ones have to wait.
    pub login_failures_per_account: Cap,
    /// Failed logins per address before the next ones have to wait.
    pub login_failures_per_address: Cap,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_second: Cap::at(500),
            burst: at_least_one(2000),
            account_requests_per_second: Cap::at(2000),
            account_burst: at_least_one(8000),
            body_bytes: MEBIBYTE,
            release_bytes: MEBIBYTE.saturating_mul(at_least_one(256).into()),
            release_files: at_least_one(10_000),
            release_history: at_least_one(20),
            projects: Cap::at(1000),
            keys: Cap::at(100_000),
            workspaces: Cap::at(10_000),
            tokens: Cap::at(1000),
            teams: Cap::at(1000),
            networks: Cap::at(100),
            domains: Cap::at(1000),
            connections: at_least_one(10_000),
            connections_per_address: None,
            scale: at_least_one(10),
            login_failures_per_account: Cap::at(10),
            login_failures_per_address: Cap::at(50),
        }
    }
}

const MEBIBYTE: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 20) - 1);

/// The number, for defaults that are never 0.
fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

/// A limit that 0 switches off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cap(u32);

impl Cap {
    const fn at(limit: u32) -> Self {
        Self(limit)
    }

    /// The limit, unless it is off.
    pub fn get(self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0)
    }
}

/// What a plan grants. Sizes are binary (1 MB is 1,048,576 bytes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Memory.
    pub memory_mb: NonZeroU64,
    /// CPU cores.
    pub cpus: NonZeroU64,
    /// Disk space, a hard cap.
    pub disk_gb: NonZeroU64,
    /// The price of an hour.
    #[serde(default)]
    pub hourly_price: u64,
}

/// The identifier of a plan (`planID`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanName(String);

impl PlanName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlanName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !(1..=50).contains(&text.len()) || !text.bytes().all(allowed) {
            return Err(
                "the name of a plan is 1 to 50 lower-case letters, digits and hyphens".into(),
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(PlanName);
