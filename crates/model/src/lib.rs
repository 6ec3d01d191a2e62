//! The words everyone shares: ids, names, plans, states and wire bodies.
//!
//! Pure: nothing here does I/O. A value of one of these types is valid by
//! construction, because serde builds it through the same parser as the code.

pub mod account;
pub mod admission;
pub mod amount;
pub mod audit;
pub mod auth;
pub mod budget;
pub mod built_image;
pub mod call;
pub mod coding;
pub mod device_login;
pub mod disk;
pub mod domain;
pub mod dotenv;
pub mod error;
pub mod event;
pub mod id;
pub mod image_mirror;
pub mod image_ref;
pub mod invalid;
pub mod ip_range;
pub mod key;
pub mod keyed_limit;
pub mod log;
pub mod metrics;
pub mod names;
pub mod node;
pub mod paths;
pub mod plan;
pub mod platform;
pub mod port;
pub mod project;
pub mod provider;
pub mod rate;
pub mod release;
pub mod secret;
pub mod secret_finder;
pub mod serde_rules;
pub mod site;
pub mod site_rules;
pub mod site_settings;
pub mod sync;
pub mod team;
pub mod time;
pub mod token_scope;
pub mod workspace;

pub use id::{
    AccountId, Id, KeyId, OwnerId, ProjectId, ReleaseId, SessionId, TeamId, TokenId, WorkspaceId,
};
pub use invalid::Invalid;
pub use time::Timestamp;
