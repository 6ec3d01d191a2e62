//! TLS: certificates by host name, and what plain HTTP requests get because of them.

pub(crate) mod acme_challenge;
pub mod host_certificates;
pub(crate) mod https_redirect;
