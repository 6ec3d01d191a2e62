//! Routing: from the host of a request to a project, its live release, and where that is served from.

mod change_feed;
mod custom_domains;
pub mod endpoints;
pub(crate) mod host;
pub mod load_balancer;
mod name_table;
mod pending_changes;
mod publisher;
mod read_state;
pub mod route;
mod route_generation;
pub mod route_table;
