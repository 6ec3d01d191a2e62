//! Releases: made from files, run through their states by the worker, listed, canceled, rolled back.
//!
//! ```text
//! begin_upload → Upload::add_file … → create_release      a request
//! Worker::run → Claim → steps::run_release                   the worker, in the background
//! transition::apply_transition                                        the one place where a state changes
//! ```

mod archive;
mod build;
mod build_log;
mod build_slots;
mod cancel;
mod claim;
mod compress;
mod create;
mod download;
mod incoming;
mod known;
mod layout;
mod limits;
mod naming;
mod queue;
mod read;
mod rollback;
mod schedule;
mod sealed_settings;
mod site_rules;
mod sources;
mod step_error;
mod steps;
mod transition;
mod unpack;
mod upload;
pub mod worker;

pub(crate) use build::CacheQueue;
pub use build_log::{BuildLogFollower, follow_build_log, read_build_logs};
pub(crate) use build_slots::BuildSlots;
pub use cancel::cancel_release;
pub use claim::Claim;
pub use compress::EagerCompressor;
pub use compress::run_brotli;
pub use create::{MAX_GIT_INFO_BYTES, MAX_SETTINGS_BYTES, Source, create_release};
pub use download::{SourceDownload, SourceStream, download_source};
pub use incoming::{IncomingContent, ReceivedContent, begin_content, keep_upload};
pub(crate) use naming::tag;
pub(crate) use queue::queue_rerun;
pub use read::{
    AuthoredRelease, ReleaseSummary, list_authored, list_releases, read_authored, read_release,
    summarize_releases, wait_release,
};
pub use rollback::rollback_release;
pub(crate) use sealed_settings::open_settings;
pub use sources::create_source;
pub use transition::Failure;
pub(crate) use transition::presentable;
pub use upload::{Upload, begin_upload};
pub use worker::{Worker, end_overdue};
