//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`KeyAuthenticator`], what it costs goes out through
//! [`UsageLedger`]; whoever builds a [`UsageLedger`] decides what must be on disk before a call goes out.
//!
//! [`Gateway`] is what all threads share, [`Relay`] is one thread's part of it: its connections to
//! the providers. `relay/mod.rs` has the steps of a call, in order.

mod accounting;
pub mod auth;
mod cache;
mod echo;
mod error;
pub mod fast_path;
mod gateway;
mod headers;
mod limits;
pub mod metrics;
mod models;
mod options;
mod relay;
mod request;
mod streaming;
pub mod trace;
mod upstream;

pub use accounting::usage_ledger;
pub use accounting::usage_ledger::{Admission, AdmissionError, UsageLedger};
pub use auth::{AuthContext, AuthError, KeyAuthenticator, WorkspaceSelector};
pub use gateway::Gateway;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::route;
pub use request::route::{Endpoint, InferenceRoute};
pub use request::{CallBody, CallRequest, SentKey};
pub use streaming::body::GatewayBody;
pub use streaming::body_error::BodyError;
pub use trace::{Trace, TraceSink, Tracing};
