//! A client of both APIs, for the command line and whatever else talks to a server.
//!
//! It prints nothing and reads no arguments. Invariants: a token is sent only to the server that it was stored for;
//! every POST that is repeated carries an idempotency key, so that it is carried out once; text of a server reaches a
//! terminal only through [`text`].

pub mod contexts;
pub mod credentials;
pub mod deploy;
pub mod device_login;
pub mod error;
pub mod folder;
pub mod http;
pub mod ignore_rules;
pub mod keyring;
pub mod server_info;
pub mod shell;
pub mod sse;
pub mod text;
pub mod upload;
pub mod url;
mod websocket;
pub mod wire;

pub use error::{ClientError, Result};
pub use http::Client;
