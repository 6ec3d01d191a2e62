//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`KeyAuthenticator`], what it costs goes out through
//! [`UsageLedger`]; whoever builds a [`UsageLedger`] decides what must be on disk before a call goes out.
//!
//! [`Gateway`] is what all threads share, [`Relay`] is one thread's part of it: its connections to
//! the providers. `relay.rs` has the steps of a call, in order.

mod account;
mod attempt;
pub mod auth;
mod body;
mod body_reader;
mod cache;
mod catalogue;
mod censor;
mod cost_estimate;
mod detached;
mod echo;
mod error;
pub mod fast_path;
mod field_policy;
mod flows;
mod gateway;
mod health;
mod json;
mod metered;
pub mod metrics;
mod model_name;
mod models;
mod options;
mod order;
mod rates;
mod receive;
mod relay;
mod request;
mod request_fields;
pub mod route;
mod scan;
mod shape;
mod slots;
mod sse;
pub mod trace;
mod under_way;
mod upstream;
pub mod usage_ledger;

pub use auth::{AuthContext, AuthError, KeyAuthenticator, WorkspaceSelector};
pub use body::{Broken, GatewayBody};
pub use gateway::Gateway;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::{CallBody, CallRequest, SentKey};
pub use route::{Endpoint, InferenceRoute};
pub use trace::{Trace, TraceSink, Tracing};
pub use usage_ledger::{Admission, AdmissionError, UsageLedger};
