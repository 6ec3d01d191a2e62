//! Garbage collection on the engine: what it has and nobody needs any more.

mod images;
mod schedule;
mod volumes;

pub(super) use images::collect;
pub(super) use schedule::{GcSchedule, RETRY_DELAY};
