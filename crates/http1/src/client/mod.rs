//! HTTP/1.1 client: sends one request at a time on a connection, reads its response, keeps the connection.
//!
//! A connection is owned by the request that uses it. No task and no channel lies between the socket and the user of
//! the response: dropping the request closes the connection, and it is always known whether a byte of the response has
//! arrived, which decides whether a request may be sent again. Targets, retries, deadlines and which headers are
//! forwarded are up to the user of this module.

mod body;
mod connection;
mod pool;
mod request;
mod response_head;

pub use connection::{Connection, connect};
pub use pool::Pool;
pub use request::{Request, RequestFraming, SendError, SendRequest};
pub use response_head::{
    MAX_HEAD_BYTES, MAX_HEADERS, MalformedResponse, ResponseContext, ResponseHead, list_items,
    parse_response_head,
};
