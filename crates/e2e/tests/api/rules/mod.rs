//! What holds for every endpoint.

mod bodies;
mod conditional;
mod documents;
mod errors;
mod health;
mod idempotency;
mod isolation;
mod limits;
mod lists;
mod peers;
mod requests;
mod routes;
mod scopes;
mod uploads;

pub(crate) use routes::{Operation, operations};
