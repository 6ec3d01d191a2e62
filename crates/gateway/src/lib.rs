//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`KeyAuthenticator`], what it costs goes out through
//! [`UsageLedger`]; whoever builds a [`UsageLedger`] decides what must be on disk before a call goes out.
//!
//! [`Gateway`] is what all threads share, [`Relay`] is one thread's part of it: its connections to
//! the providers. `relay.rs` has the steps of a call, in order.

mod account;
mod active_responses;
pub mod auth;
mod body;
mod body_reader;
mod cache;
mod catalogue;
mod cost_estimate;
mod detached;
mod echo;
mod error;
mod event_template;
mod fallback;
pub mod fast_path;
mod field_policy;
mod gateway;
mod health;
mod in_flight;
mod json;
mod key_redactor;
mod metered_response;
pub mod metrics;
mod model_name;
mod models;
mod options;
mod rate_limiter;
mod receive;
mod relay;
mod request;
mod request_fields;
mod response_scanner;
pub mod route;
mod slots;
mod sse;
mod target_order;
pub mod trace;
mod upstream;
pub mod usage_ledger;

pub use auth::{AuthContext, AuthError, KeyAuthenticator, WorkspaceSelector};
pub use body::{BodyError, GatewayBody};
pub use gateway::Gateway;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::{CallBody, CallRequest, SentKey};
pub use route::{Endpoint, InferenceRoute};
pub use trace::{Trace, TraceSink, Tracing};
pub use usage_ledger::{Admission, AdmissionError, UsageLedger};
