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
//! which whoever starts them has made known to [`Running`].

pub mod access_log;
pub mod certificates;
pub mod contents;
mod cookies;
pub mod counts;
mod doorway;
pub mod edge;
mod error_pages;
mod express;
mod freshness;
mod header_rules;
mod host;
pub mod instances;
mod lane;
mod media_type;
pub mod metrics;
mod negotiate;
mod numbered;
mod pattern;
mod pattern_index;
mod precondition;
mod proxy;
mod range;
mod recent;
mod redirects;
pub mod request;
mod request_path;
pub mod response;
pub mod routes;
pub mod running;
mod served;
pub mod site;
pub mod sites;
mod static_site;
mod table;
mod visitors;

pub use access_log::AccessLog;
pub use certificates::HostCertificates;
pub use edge::{Edge, EdgeOptions};
pub use instances::Instances;
pub use lane::serve;
pub use proxy::ProxyOptions;
pub use running::Running;
