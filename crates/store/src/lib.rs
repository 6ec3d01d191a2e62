//! Facts and blobs on disk.
//!
//! [`Db`] is one handle over two engines, SQLite and PostgreSQL. Queries live in one file per
//! resource, each SQL text written once. [`blobs`] keeps contents by their hash.

pub mod changes;
pub mod db;
pub mod error;
mod migrate;
mod postgres;
mod sqlite;
pub mod value;

pub use changes::Change;
pub use db::{Db, Job, Query, Tx};
pub use error::StoreError;
pub use value::{Record, Row};
