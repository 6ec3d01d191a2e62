//! The configuration: one typed tree, valid by construction.
//!
//! [`load`] builds it from the command line, the environment, the file and the defaults,
//! in that order of precedence. `reference.toml` beside this file describes every key;
//! the environment's names are derived from it, and a test keeps both complete.

mod acme;
mod ai;
mod blobs;
mod database_url;
mod docker;
mod environment;
mod error;
mod file;
mod keys;
mod limits;
mod listeners;
mod load;
mod network;
mod secret;
mod telemetry;
mod text;
mod url;

pub use acme::{Acme, Challenge};
pub use ai::{Ai, Credential, Model, Price, Provider, Providers, Timeouts, UnknownWorkspace};
pub use blobs::{AccessKeyId, BlobUrl, Blobs, CredentialSource, Region};
pub use database_url::DatabaseUrl;
pub use docker::{BuiltPlatform, Docker, DockerHost};
pub use environment::Environment;
pub use error::ConfigError;
pub use estrade_model::ip_range::IpRange;
pub use keys::REFERENCE;
pub use limits::{Cap, Limits, Plan, PlanName};
pub use listeners::{Edge, Metrics, Platform, Tls};
pub use load::{Flags, Loaded, load};
pub use network::DomainName;
pub use secret::{MASK, Secret, SecretUrl};
pub use telemetry::Telemetry;
pub use text::{Invalid, parse_listen};
pub use url::{HttpUrl, WebOrigin};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// Everything that can be configured. Serialises to a valid configuration file in which
/// secrets are masked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The directory of everything that no other key puts elsewhere.
    pub data_dir: PathBuf,
    /// Absent: SQLite inside `data_dir`; see [`Config::database`].
    pub database_url: Option<DatabaseUrl>,
    /// Absent: inside `data_dir`; see [`Config::master_key_path`].
    pub master_key_file: Option<PathBuf>,
    /// Whose forwarded headers are believed.
    pub trusted_proxies: Vec<IpRange>,
    /// Host names that management listeners on loopback addresses accept.
    pub allowed_hosts: Vec<DomainName>,
    /// The platform API and the panel.
    pub platform: Platform,
    /// The edge.
    pub edge: Edge,
    /// Where blobs are kept.
    pub blobs: Blobs,
    /// The container engine.
    pub docker: Docker,
    /// How much anyone may use.
    pub limits: Limits,
    /// Who gets an account.
    pub accounts: Accounts,
    /// Plans that replace built-in ones or join them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<PlanName, Plan>,
    /// The AI API.
    pub ai: Ai,
    /// The usage ledger.
    pub usage: Usage,
    /// Traces.
    pub telemetry: Telemetry,
    /// The log.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "./estrade-data".into(),
            database_url: None,
            master_key_file: None,
            trusted_proxies: Vec::new(),
            allowed_hosts: Vec::new(),
            platform: Platform::default(),
            edge: Edge::default(),
            blobs: Blobs::default(),
            docker: Docker::default(),
            limits: Limits::default(),
            accounts: Accounts::default(),
            plans: BTreeMap::new(),
            ai: Ai::default(),
            usage: Usage::default(),
            telemetry: Telemetry::default(),
            log: Log::default(),
        }
    }
}

impl Config {
    /// The database in use.
    pub fn database(&self) -> DatabaseUrl {
        let default = || DatabaseUrl::Sqlite(self.data_dir.join("estrade.db"));
        self.database_url.clone().unwrap_or_else(default)
    }

    /// The blob store in use.
    pub fn blob_store(&self) -> BlobUrl {
        let default = || BlobUrl::Directory(self.data_dir.join("blobs"));
        self.blobs.url.clone().unwrap_or_else(default)
    }

    /// The file that holds the master key.
    pub fn master_key_path(&self) -> PathBuf {
        let default = || self.data_dir.join("master.key");
        self.master_key_file.clone().unwrap_or_else(default)
    }

    /// The listeners that strangers can reach in plain text: each deserves a warning.
    pub fn exposed_listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let behind_proxy = !self.trusted_proxies.is_empty();
        [
            (
                "platform",
                self.platform.listen,
                self.platform.tls.is_some(),
            ),
            ("ai", self.ai.listen, self.ai.tls.is_some()),
            (
                "edge",
                self.edge.listen,
                self.edge.tls.is_some() || self.edge.tls_listen.is_some(),
            ),
        ]
        .into_iter()
        .filter(move |(_, listen, tls)| !listen.ip().is_loopback() && !tls && !behind_proxy)
        .map(|(name, listen, _)| (name, listen))
    }
}

/// Who gets an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounts {
    /// Whether invitations of people who are no administrators make accounts.
    pub invitations_create_accounts: bool,
}

/// The usage ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// When a call's usage reaches the disk.
    pub durability: Durability,
    /// For how many days calls are kept one by one.
    pub keep_days: NonZeroU32,
    /// How many calls are kept one by one, at most.
    pub keep_calls: NonZeroU64,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            keep_days: NonZeroU32::MIN.saturating_add(29),
            keep_calls: NonZeroU64::MIN.saturating_add(9_999_999),
        }
    }
}

/// When a call's usage reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In batches, soon after.
    #[default]
    Relaxed,
    /// Before the response ends.
    Strict,
}

/// The log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// What is worth a line.
    pub level: LogLevel,
    /// What a line looks like.
    pub format: LogFormat,
}

/// What is worth a log line; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// What a log line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For eyes.
    Human,
    /// For programs.
    Json,
}
