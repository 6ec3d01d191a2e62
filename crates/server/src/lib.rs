//! HTTP of both APIs: routes in, responses out.
//!
//! The foundation is here: [`listener`] accepts connections, [`front`] is the one middleware that
//! every request passes, [`error`] turns what went wrong into each API's shape, and the extractors
//! ([`body`], [`spool`], [`paging`], [`conditional`]) read requests for the handlers.

pub mod body;
pub mod conditional;
pub mod context;
pub mod docs;
pub mod error;
pub mod front;
pub mod intake;
mod linger;
pub mod listener;
pub mod metrics;
pub mod paging;
pub mod peer;
pub mod problem;
pub mod rate;
pub mod spool;
pub mod strict_json;
