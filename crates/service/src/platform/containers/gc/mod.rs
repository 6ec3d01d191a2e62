//! Garbage collection of the engine's objects.

mod images;
mod schedule;
mod volumes;

pub(super) use images::collect;
pub(super) use schedule::{GcSchedule, RETRY_DELAY};
