//! What instances write: kept across redeploys, read and followed.
//!
//! The engine keeps the last of what an instance wrote. [`LogCollector`] reads it from there and writes it to
//! the database in blocks; everybody else reads only the database.

mod block;
mod collector;
mod filter;
mod follow;
mod format;
mod line;
mod log_state;
mod merge;
pub mod merging;
mod notifier;
mod read;
mod reader;
pub mod retention;
mod shared;
mod stored;
mod window;

pub use collector::LogCollector;
pub use follow::{LogFollower, follow_logs};
pub use format::{grouped, legacy, streamed};
pub use line::{Cursor, KeptLine};
pub use read::{LogQuery, read_logs, read_logs_since};
pub use shared::ContainerLogs;
