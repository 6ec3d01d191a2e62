//! The protocol side of ACME (RFC 8555): orders a certificate for a host and makes what a handshake shows.
//!
//! An [`AcmeClient`] knows one server. Its account and the responses to challenges have to outlive it and be seen by
//! every node, so they go to an [`AcmeStore`], which the caller has over its database. Which hosts get a certificate,
//! when, and how often it is tried are rules of the caller.

mod client;
mod material;

pub use client::{AcmeClient, AcmeServer, AcmeStore, Challenge, Issued, OrderError};
pub use material::{Material, challenge_certificate};
