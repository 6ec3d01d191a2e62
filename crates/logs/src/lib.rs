//! The format of stored container logs: lines become compressed blocks, blocks become lines.
//!
//! - [`Batch`] and [`unpack`]: the format of a block, and [`join`], which makes one of several small ones.
//! - [`LineFilter`] and [`SelectedLines`]: which lines a query wants, in bounded memory.
//! - [`Window`]: which lines of an instance are stored already, so that each is stored once.
//! - [`grouped`], [`legacy`], [`streamed`]: lines as they go over the wire.
//!
//! Invariant: a block that was sealed reads back to the same lines, and one that is damaged is an error and never
//! another text. The crate reads no database; who may read, how long lines are kept and when they are merged are the
//! caller's rules.

mod block;
mod error;
mod filter;
mod format;
mod line;
mod merge;
mod window;

pub use block::{Batch, Unpacked, unpack};
pub use error::Error;
pub use filter::{LineFilter, SelectedLines, find_lines};
pub use format::{grouped, legacy, streamed};
pub use line::{Cursor, StoredLine};
pub use merge::{join, small_runs};
pub use window::{LineFingerprint, TailWindow, Window, nanos};
