//! Serves deployed projects by host name.
//!
//! ```text
//! lane → express (simple requests)   ┐
//!      → visitors (hyper: the rest)  ┴→ edge → routes → static_site → contents
//! ```
//!
//! Data flows one way: a lane reads a request into an [`ask::Ask`], the [`edge::Edge`] makes an
//! [`answer::Answer`] of it, the lane writes it. What is served comes from the database and the blob
//! store; nothing is unpacked anywhere.

pub mod access_log;
pub mod answer;
pub mod ask;
pub mod certificates;
pub mod contents;
pub mod counts;
mod doorway;
pub mod edge;
mod express;
mod freshness;
mod header_rules;
mod host;
mod lane;
mod media_type;
pub mod metrics;
mod negotiate;
mod pages;
mod pattern;
mod precondition;
mod range;
mod redirects;
mod request_path;
pub mod routes;
pub mod site;
pub mod sites;
mod static_site;
mod table;
mod visitors;

pub use access_log::AccessLog;
pub use certificates::HostCertificates;
pub use edge::{Edge, EdgeOptions};
pub use lane::serve;
