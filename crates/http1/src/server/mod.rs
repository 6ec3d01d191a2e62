//! The server side of a connection.

pub mod fast_path;
pub mod response_writer;
mod strict_heads;

pub use strict_heads::StrictHeads;

use std::time::Duration;

/// A client that takes no byte of a response for this long is dropped: by the fast path itself, and on other
/// connections by the kernel where it can.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
