//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Keys are authenticated through [`KeyAuthenticator`], costs are recorded through
//! [`UsageLedger`]; the implementation of the ledger decides what must be on disk before a call is sent.
//!
//! [`Gateway`] is shared by all threads, [`Relay`] is one thread's part of it: its connections to
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
mod shared_rates;
mod streaming;
pub mod trace;
mod upstream;

pub use accounting::usage_ledger;
pub use accounting::usage_ledger::{Admission, AdmissionError, UsageLedger};
pub use auth::{AuthContext, AuthError, KeyAuthenticator, WorkspaceSelector};
pub use gateway::Gateway;
pub use models::ListedModel;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::route;
pub use request::route::{Endpoint, InferenceRoute};
pub use request::{CallBody, CallRequest, SentKey};
pub use shared_rates::{SharedRates, SharedRatesUnavailable};
pub use streaming::body::GatewayBody;
pub use streaming::body_error::BodyError;
pub use trace::{Trace, TraceSink, Tracing};
