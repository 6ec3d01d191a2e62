//! Static files: which file of a release a path means, and the response that it gets.

mod cache_control;
pub mod content_cache;
pub mod content_error;
mod content_fetch;
pub(crate) mod error_pages;
pub(crate) mod handler;
pub mod header_rules;
pub mod live_site;
pub(crate) mod media_type;
mod negotiate;
mod pattern;
mod pattern_index;
mod precondition;
mod range;
pub mod redirects;
pub mod request;
mod request_path;
pub mod response;
pub(crate) mod response_cache;
pub mod site;
pub mod site_cache;
