//! The rules: who may do what, in which order. No HTTP, no SQL.

pub mod error;

pub use error::{Error, Result};
