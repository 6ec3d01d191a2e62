//! Compressed variants of contents: made once per content, and kept where they are worth it.
//!
//! The quick codings are made while a release is BUILDING, so that its first requests have them. Their
//! rows are committed together with the release's next step: either both happened or neither.

mod brotli;
mod eager;
mod parallel;
mod priority_gate;
mod variants;

pub use brotli::run as run_brotli;
pub use eager::EagerCompressor;
pub(crate) use eager::UploadScope;
pub(super) use priority_gate::{ForegroundGuard, PriorityGate};
pub(super) use variants::{MissingVariants, PreparedVariants};
