//! A client of both APIs, for the command line and whatever else talks to a server.
//!
//! It prints nothing and reads no arguments. Invariants: a token is sent only to the server that it was stored for;
//! every POST that is repeated carries an idempotency key, so that it is carried out once; text of a server reaches a
//! terminal only through [`text`].

pub mod contexts;
pub mod credentials;
pub mod error;
pub mod http;
pub mod keyring;
pub mod server_info;
pub mod sse;
pub mod text;
pub mod url;
pub mod wire;

pub use error::{ClientError, Result};
pub use http::Client;
