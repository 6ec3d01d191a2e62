//! Serving: the worker threads, from an accepted connection to the last byte of its responses.

mod fast_path;
mod forward_fast_path;
mod forward_hyper;
mod hyper_body;
mod hyper_request;
mod hyper_service;
mod logged_body;
mod serve;
mod tunnel;
mod worker;

pub use serve::serve;
