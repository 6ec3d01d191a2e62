//! For tests only: the whole server on free ports, people who act on it, and eyes on what it leaves
//! behind.
//!
//! ```no_run
//! # use estrade_testkit::{Backend, TestApp};
//! # use serde_json::json;
//! # async fn example() {
//! let app = TestApp::start(Backend::Sqlite).await;
//! let ada = app.new_account("ada").await;
//! let new = json!({"name": "ci-bot", "workspaces": ["main"]});
//! ada.ai().post("/v1/keys", &new).await.assert(201);
//! ada.ai().post("/v1/keys", &new).await.assert_empty(409);
//! app.finish().await;
//! # }
//! ```
//!
//! Tests are written once and run on both backends, see [`on_both_backends`]. Whatever a test is
//! about, [`TestApp::finish`] also checks that no token that was handed out is in the log or on
//! disk, and every response is checked for what must hold for all of them ([`ApiResponse`]).

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
#![expect(
    clippy::missing_panics_doc,
    reason = "every function here panics when something is not as it should be"
)]
#![expect(
    clippy::return_self_not_must_use,
    reason = "what is demanded of a response is often the last thing said about it"
)]

mod api_response;
mod app;
mod authenticator;
mod call;
mod disk;
mod dns;
mod docker;
mod edge_client;
mod log;
mod panel;
mod port;
mod secrets;
mod user;
mod wire;

pub use api_response::ApiResponse;
pub use app::{Setup, TestApp};
pub use authenticator::Authenticator;
pub use call::{Api, Call};
pub use disk::Disk;
pub use dns::DnsServer;
pub use docker::Docker;
pub use edge_client::{EdgeClient, Page};
pub use estrade_fixtures::{Backend, TestDatabase, eventually, eventually_or, on_both_backends};
pub use panel::PanelClient;
pub use port::free_port;
pub use user::User;
