//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`KeyAuthenticator`], what it costs goes out through
//! [`UsageLedger`]; whoever builds a [`UsageLedger`] decides what must be on disk before a call goes out.
//!
//! [`Gateway`] is what all threads share, [`Relay`] is one thread's part of it: its connections to
//! the providers. `relay.rs` has the steps of a call, in order.

mod accounting;
pub mod auth;
mod cache;
mod echo;
mod error;
pub mod fast_path;
mod gateway;
mod limits;
mod models;
mod options;
mod relay;
mod request;
mod slots;
mod streaming;
mod upstream;

pub use accounting::trace::{Trace, TraceSink, Tracing};
pub use accounting::usage_ledger::{Admission, AdmissionError, UsageLedger};
pub use accounting::{metrics, trace, usage_ledger};
pub use auth::{AuthContext, AuthError, KeyAuthenticator, WorkspaceSelector};
pub use gateway::Gateway;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::route;
pub use request::route::{Endpoint, InferenceRoute};
pub use request::{CallBody, CallRequest, SentKey};
pub use streaming::body::{BodyError, GatewayBody};
