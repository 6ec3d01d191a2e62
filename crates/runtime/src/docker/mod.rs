//! The Docker Engine.

pub(crate) mod bases;
pub(crate) mod build_log;
pub(crate) mod builds;
pub(crate) mod cache_guard;
pub(crate) mod capabilities;
pub(crate) mod commands;
pub(crate) mod disks;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod firewall;
pub(crate) mod folders;
pub(crate) mod half_started;
pub(crate) mod host;
pub(crate) mod images;
pub(crate) mod instances;
pub(crate) mod labels;
pub(crate) mod logs;
pub(crate) mod networks;
pub(crate) mod pulls;
pub(crate) mod resolvers;
pub(crate) mod shell;
pub(crate) mod stats;
pub(crate) mod transport;
pub(crate) mod volumes;
