//! For tests only: the whole server on free ports, people who act on it, and eyes on what it leaves
//! behind.
//!
//! ```no_run
//! # use estrade_testkit::{Engine, TestApp};
//! # use serde_json::json;
//! # async fn example() {
//! let app = TestApp::start(Engine::Sqlite).await;
//! let ada = app.new_account("ada").await;
//! let new = json!({"name": "ci-bot", "workspaces": ["main"]});
//! ada.ai().post("/v1/keys", &new).await.assert(201);
//! ada.ai().post("/v1/keys", &new).await.assert_empty(409);
//! app.finish().await;
//! # }
//! ```
//!
//! Tests are written once and run on both engines, see [`on_both_engines`]. Whatever a test is
//! about, [`TestApp::finish`] also checks that no token that was handed out is in the log or on
//! disk, and every answer is checked for what must hold for all of them ([`Answer`]).

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
    reason = "what is demanded of an answer is often the last thing said about it"
)]

mod answer;
mod app;
mod call;
mod disk;
mod dns;
mod docker;
mod log;
mod port;
mod postgres;
mod secrets;
mod user;
mod visitor;
mod wire;

pub use answer::Answer;
pub use app::{Engine, Setup, TestApp};
pub use call::{Api, Call};
pub use disk::Disk;
pub use dns::DnsServer;
pub use docker::Docker;
pub use port::free_port;
pub use postgres::TestDatabase;
pub use user::User;
pub use visitor::{Page, Visitor};

/// Makes two tests of each function, one per engine: `module::name::sqlite` and `…::postgres`.
///
/// `name` takes `&TestApp`; `name with setup` starts the app with what the function `setup` returns.
///
/// ```no_run
/// # use estrade_testkit::{Setup, TestApp, on_both_engines};
/// on_both_engines! {
///     everyone_is_welcome;
///     two_keys_are_enough with few_keys;
/// }
///
/// fn few_keys() -> Setup {
///     Setup::with(|setup| setup.settings.quotas.keys = 2)
/// }
///
/// async fn everyone_is_welcome(app: &TestApp) {}
/// async fn two_keys_are_enough(app: &TestApp) {}
/// ```
#[macro_export]
macro_rules! on_both_engines {
    () => {};
    ($name:ident; $($rest:tt)*) => {
        $crate::on_both_engines!($name with $crate::Setup::default; $($rest)*);
    };
    ($name:ident with $setup:expr; $($rest:tt)*) => {
        mod $name {
            #[allow(unused_imports, clippy::allow_attributes, reason = "for the setup, if it is named")]
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                let app = $crate::TestApp::start_with($crate::Engine::Sqlite, $setup()).await;
                super::$name(&app).await;
                app.finish().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let app = $crate::TestApp::start_with($crate::Engine::Postgres, $setup()).await;
                super::$name(&app).await;
                app.finish().await;
            }
        }
        $crate::on_both_engines!($($rest)*);
    };
}
