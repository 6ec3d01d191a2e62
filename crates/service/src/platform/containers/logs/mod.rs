//! What instances write: kept across redeploys, read and followed.
//!
//! The engine keeps the last of what an instance wrote. [`LogKeeper`] reads it from there and writes it to
//! the database in blocks; everybody else reads only the database.

mod block;
mod desk;
mod follow;
mod format;
mod keeper;
mod line;
pub mod merging;
mod news;
mod picked;
mod read;
mod reader;
pub mod retention;
mod window;

pub use follow::{LogFollower, follow_logs};
pub use format::{grouped, legacy, streamed};
pub(crate) use keeper::KeeperSlot;
pub use keeper::LogKeeper;
pub use line::{Cursor, KeptLine};
pub(crate) use news::LogNews;
pub use read::{LogQuery, read_logs, read_logs_since};
pub(crate) use retention::RETENTION;
