//! The HTTP foundation over real sockets: connections, bodies, and what every request gets.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod bodies;
mod connections;
mod heads;
mod middleware;
mod support;
mod tls;
