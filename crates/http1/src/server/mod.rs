//! The server side of a connection.
//!
//! The fast path answers plain HTTP/1.1 requests that it supports without hyper: [`RequestReader`] reads, [`parse_head`]
//! decides, [`ResponseWriter`] sends. The first request that is anything else ends it with [`Outcome::Fallback`], and
//! hyper goes on with the connection and with what was read of it ([`crate::Rewind`]). Behind hyper, and only there,
//! [`StrictHeads`] refuses what its parser lets through.
//!
//! The loop that puts these parts together is written twice, in `edge/src/serving/fast_path.rs` and in
//! `gateway/src/fast_path.rs`, because what stands between two of its steps differs and not only what is called: the edge
//! borrows the request from the input for the whole response, keeps the stream, counts turns and writes an access log;
//! the gateway waits for a body, copies it, and gives the stream away to the task that sends a stream of events. A
//! handler trait would need a borrowed request, an owned stream and hooks for all of this: longer than both loops.
//!
//! Invariant: a request is either answered here as a whole, or nothing of it was answered and hyper gets all its bytes.

mod disconnect;
mod input;
mod keep_alive;
mod request_head;
mod request_reader;
mod response_head;
mod response_writer;
mod strict_heads;
mod write;

pub use disconnect::{PipelinedInput, while_connected};
pub use input::Input;
pub use keep_alive::{ConnectionState, KeepAliveTimeout};
pub use request_head::{Parsed, parse_connection, parse_head};
pub use request_reader::RequestReader;
pub use response_head::{begin_head, begin_status, end_head};
pub use response_writer::{
    BodyEncoding, OutgoingBody, OutputBuffer, Part, ResponseWriter, write_chunk_size,
};
pub use strict_heads::StrictHeads;
pub(crate) use strict_heads::scan_requests;
pub use write::{try_send, writable, write_all, write_more};

use std::time::Duration;
use tokio::net::TcpStream;

/// A client that takes no byte of a response for this long is dropped: by the fast path itself, and on other
/// connections by the kernel where it can.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

/// How the fast path of a connection ended.
pub enum Outcome {
    /// The connection is over and can be closed; none when the stream was lost with the task that had it.
    Closed(Option<TcpStream>),
    /// hyper goes on with the connection; this was read of it and has no response yet.
    Fallback(TcpStream, Input),
}
