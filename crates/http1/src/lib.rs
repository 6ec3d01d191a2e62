//! HTTP/1.1 as RFC 9112 defines it: message framing, heads, a client with its connection pool, and
//! the server loop of the fast path.
//!
//! This crate knows connections and messages, and no listener, route or policy: who uses it says
//! which requests it supports and how each is answered.

pub mod buffer_pool;
pub mod client;
mod date;
pub mod framing;
#[doc(hidden)]
pub mod invariants;
mod rewind;
pub mod server;

pub use date::DateCache;
pub use rewind::Rewind;
