//! The database.
//!
//! [`Db`] is one handle over two backends, SQLite and PostgreSQL. Queries live in one file per
//! resource, each SQL text written once.

pub mod accounts;
pub mod acme;
pub mod artifacts;
pub mod audit;
pub mod blob_gc;
pub mod blob_rows;
pub mod blob_uploads;
pub mod budgets;
pub mod build_logs;
pub mod calls;
pub mod certificates;
pub mod changes;
pub mod clock;
pub mod db;
pub mod disks;
pub mod domains;
pub mod envs;
pub mod error;
pub mod events;
pub mod former_names;
mod id_list;
pub mod idempotency;
pub mod images;
pub mod installation;
pub mod integrity;
pub mod invitations;
pub mod keys;
pub mod log_blocks;
pub mod login_attempts;
pub mod manifest;
pub mod members;
mod migrate;
pub mod networks;
mod postgres;
mod project_filter;
pub mod projects;
pub mod providers;
mod prune;
pub mod quotas;
pub mod random;
pub mod release_queue;
pub mod releases;
pub mod reset_links;
pub mod retention;
pub mod routes;
pub mod second_factors;
pub mod sessions;
pub mod signing_keys;
pub mod sources;
mod sqlite;
pub mod status;
pub mod teams;
pub mod tokens;
pub mod traffic;
pub mod usage;
pub mod value;
pub mod variants;
pub mod workloads;
pub mod workspaces;

pub use changes::{Change, ChangeKind};
pub use db::{Db, Job, Location, Query, Tx};
pub use error::StoreError;
pub use value::{Record, Row, Value};
