//! Routing: from the host of a request to a project, its live release, and where that is served from.

pub mod endpoints;
pub(crate) mod host;
pub mod load_balancer;
mod name_table;
mod route_generation;
pub mod route_table;
