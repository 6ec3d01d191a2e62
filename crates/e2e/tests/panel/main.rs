//! The account panel over HTTP, as a browser without scripts uses it, and as other sites try to.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod account;
mod admin;
mod ai;
mod confirmation;
mod device;
mod empty;
mod forms;
mod project_settings;
mod projects;
mod routes;
mod rules;
mod sign_in;
mod team;
