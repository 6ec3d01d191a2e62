//! HTTP of both APIs: routes in, responses out.
//!
//! [`platform`] and [`ai`] are the two APIs; [`run`] puts them on their listeners. Below them is the
//! foundation: [`listener`] accepts connections, [`middleware`] is the one middleware that every request
//! passes, [`auth`] authenticates, [`error`] turns errors into each API's shape, and the
//! extractors ([`body`], [`extract`], [`paging`], [`conditional`]) read requests for the handlers.

pub mod ai;
pub mod api_error;
pub mod app;
pub mod audit_log;
pub mod auth;
pub mod body;
pub mod body_budget;
pub mod body_reader;
pub mod conditional;
pub mod context;
mod descriptors;
pub mod docs;
pub mod document;
mod edge;
mod endpoints;
pub mod error;
pub mod extract;
pub mod fair_slots;
pub mod follow;
pub mod health;
pub mod idempotency;
mod listen_error;
pub mod listing;
pub mod metrics;
pub mod middleware;
pub mod multipart;
mod on_runtime;
pub mod paging;
pub mod platform;
pub mod provider_sync;
mod query;
pub mod rate;
pub mod run;
pub mod shell_slots;
pub mod spool;
pub mod stream_limit;
pub mod strict_json;
