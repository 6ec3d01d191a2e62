//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`Doors`], what it costs goes out through
//! [`Books`]; whoever builds a [`Books`] decides what must be on disk before a call goes out.
//!
//! [`Gateway`] is what all threads share, [`Relay`] is one thread's part of it: its connections to
//! the providers. `relay.rs` has the steps of a call, in order.

mod account;
mod attempt;
mod body;
pub mod books;
mod bound;
mod cache;
mod catalogue;
mod censor;
mod detached;
pub mod doors;
mod echo;
mod error;
pub mod express;
mod fields;
mod flows;
mod gateway;
mod health;
mod intake;
mod json;
mod look;
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
pub mod route;
mod scan;
mod shape;
mod slots;
mod sse;
pub mod trace;
mod under_way;
mod upstream;

pub use body::{Broken, GatewayBody};
pub use books::{Admission, Books, Refused};
pub use doors::{Denied, Doors, Pass, Place};
pub use gateway::Gateway;
pub use options::{Clock, Options};
pub use relay::Relay;
pub use request::{CallBody, CallRequest, SentKey};
pub use route::{Endpoint, InferenceRoute};
pub use trace::{Trace, Traces, Tracing};
