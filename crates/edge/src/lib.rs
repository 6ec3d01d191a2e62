//! Serves deployed projects by host name.
//!
//! ```text
//! serving/   worker threads: fast_path (plain GET and HEAD), hyper_service (HTTP/2, TLS, bodies)
//!    │
//!    ▼
//! edge       one request → a local response, or the instance that it goes to
//!    │
//!    ├→ tls/           certificates by host, ACME challenges, the redirect to HTTPS
//!    ├→ routing/       host → project → live release; endpoints and the load balancer
//!    ├→ static_files/  files of a release: lookup, caches, conditional requests, rules
//!    └→ proxy/         HTTP/1.1 to an instance: connection pool, retries, streaming
//! ```
//!
//! Imports point down this picture only. What is served comes from the database and the blob store;
//! nothing is unpacked. The addresses of running instances are published in
//! [`routing::endpoints::Endpoints`] by the container services.

pub mod access_log;
mod cookies;
pub mod counters;
pub mod edge;
mod id_table;
pub mod metrics;
mod proxy;
pub mod routing;
mod serving;
pub mod static_files;
pub mod tls;

pub use access_log::AccessLog;
pub use edge::{Edge, EdgeOptions};
pub use proxy::ProxyOptions;
pub use routing::endpoints::Endpoints;
pub use routing::load_balancer::Instances;
pub use serving::serve;
pub use tls::host_certificates::HostCertificates;
