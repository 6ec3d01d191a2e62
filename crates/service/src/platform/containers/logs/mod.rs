//! What instances write: kept across redeploys, read and followed.
//!
//! The engine keeps the last of what an instance wrote. [`LogCollector`] reads it from there and writes it to
//! the database in blocks; everybody else reads only the database.

mod collector;
mod follow;
mod log_state;
pub mod merging;
mod notifier;
mod read;
mod reader;
pub mod retention;
mod shared;
mod stored;

pub use collector::LogCollector;
pub use estrade_logs::{Cursor, StoredLine, grouped, legacy, streamed};
pub use follow::{LogFollower, follow_logs};
pub use read::{LogQuery, read_logs, read_logs_since};
pub use shared::ContainerLogs;
