//! Serves deployed projects by host name.
//!
//! ```text
//! lane → express (simple requests)   ┐
//!      → visitors (hyper: the rest)  ┴→ edge → routes ┬→ static_site → contents
//!                                                    └→ proxy → instances of a running release
//! ```
//!
//! Data flows one way: a lane reads a request into a [`request::StaticRequest`], the [`edge::Edge`] makes a
//! [`response::StaticResponse`] of it, the lane writes it. What is served comes from the database and the blob
//! store; nothing is unpacked anywhere. Requests of a project that runs go on to one of its instances,
//! which whoever starts them has made known to [`Endpoints`].

pub mod access_log;
mod cache_control;
pub mod content_cache;
mod cookies;
pub mod counters;
mod doorway;
pub mod edge;
pub mod endpoints;
mod error_pages;
mod fast_path;
mod header_rules;
mod host;
pub mod host_certificates;
mod hyper_service;
mod id_table;
pub mod load_balancer;
mod media_type;
pub mod metrics;
mod name_table;
mod negotiate;
mod pattern;
mod pattern_index;
mod precondition;
mod proxy;
mod range;
mod redirects;
pub mod request;
mod request_path;
pub mod response;
mod response_cache;
mod route_generation;
pub mod routes;
pub mod site;
pub mod site_cache;
mod static_handler;
mod worker;

pub use access_log::AccessLog;
pub use edge::{Edge, EdgeOptions};
pub use endpoints::Endpoints;
pub use host_certificates::HostCertificates;
pub use load_balancer::Instances;
pub use proxy::ProxyOptions;
pub use worker::serve;
