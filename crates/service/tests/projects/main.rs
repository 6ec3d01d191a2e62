//! Projects and their releases: the rules, the isolation between owners, the state machine.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod acting;
mod blob_gc;
mod blob_migration;
mod downloads;
mod envs;
mod events;
mod isolation;
mod projects;
mod releases;
mod roles;
mod rules_of_states;
mod shells;
#[path = "../accounts_support/mod.rs"]
mod support;
mod uploads;
mod variants;
mod workers;
