//! The steps of time that traffic is recorded in.

use estrade_model::Timestamp;

/// The short step, in seconds.
pub(super) const MINUTE: i64 = 60;
/// The long step, in seconds.
pub(super) const HALF_HOUR: i64 = 1800;

/// When the step of a moment begins.
pub(super) fn start_of(at: Timestamp, step: i64) -> Timestamp {
    Timestamp::from_millis(at.millis() - at.millis().rem_euclid(step * 1000))
}
