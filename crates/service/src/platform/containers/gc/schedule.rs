//! Schedule of garbage collection: soon after an instance or build ended, once more when the engine has finished its
//! own removals, and periodically while something runs.

use std::time::Duration;
use tokio::time::Instant;

/// The least time between two periodic collections.
pub(in super::super) const MIN_INTERVAL: Duration = Duration::from_mins(1);
/// How soon what could not be removed is tried again.
pub(in super::super) const RETRY_DELAY: Duration = Duration::from_secs(5);

/// When the next one is due.
pub(in super::super) struct GcSchedule {
    /// Something ran or ended since the last.
    wanted: bool,
    next: Instant,
    /// Until when the engine may be about to make something that has to be removed.
    unsettled_until: Instant,
    /// Since when an unused object could not be removed because the engine reports it as in use.
    in_use_since: Option<Instant>,
}

impl GcSchedule {
    /// The first is due now: an earlier run may have left something.
    pub(in super::super) fn new(now: Instant) -> Self {
        Self {
            wanted: true,
            next: now,
            unsettled_until: now,
            in_use_since: None,
        }
    }

    /// Something runs, and may leave something behind.
    pub(in super::super) fn request_eventually(&mut self) {
        self.wanted = true;
    }

    /// There will be something to clean up: not later than this, and then at the latest it is all there.
    pub(in super::super) fn request_by(&mut self, at: Instant) {
        self.wanted = true;
        self.next = self.next.min(at);
        self.unsettled_until = self.unsettled_until.max(at);
    }

    /// When the next one is due, if one is wanted.
    pub(in super::super) fn due(&self) -> Option<Instant> {
        self.wanted.then_some(self.next)
    }

    pub(in super::super) fn begin(&mut self, now: Instant) {
        // One for the sake of what has ended must not be the last before something else has.
        self.wanted = self.unsettled_until > now;
        self.next = if self.wanted {
            self.unsettled_until
        } else {
            now + MIN_INTERVAL
        };
    }

    /// One has ended. If it left something that is in use: how soon to come back for it.
    pub(in super::super) fn ended(&mut self, now: Instant, left: bool) -> Option<Duration> {
        if !left {
            self.in_use_since = None;
            return None;
        }
        // Bounds the retries for an object that the engine reports as in use for ever.
        let since = *self.in_use_since.get_or_insert(now);
        let lately = now.saturating_duration_since(since) < MIN_INTERVAL;
        let wait = if lately { RETRY_DELAY } else { MIN_INTERVAL };
        // Whichever comes next finds it again.
        self.wanted = true;
        self.next = self.next.min(now + wait);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_comes_early_is_not_the_last() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut schedule = GcSchedule::new(start);
        assert_eq!(schedule.due(), Some(start));
        schedule.begin(start);
        assert_eq!(schedule.due(), None);
        // Somebody broke off while the engine made something; meanwhile something else ended.
        schedule.request_by(at(5000));
        schedule.request_by(at(300));
        assert_eq!(schedule.due(), Some(at(300)));
        schedule.begin(at(310));
        assert_eq!(schedule.due(), Some(at(5000)));
        schedule.begin(at(5000));
        assert_eq!(schedule.due(), None);
        schedule.request_eventually();
        assert_eq!(schedule.due(), Some(at(5000) + MIN_INTERVAL));
    }

    #[test]
    fn what_is_in_use_is_tried_again_soon_at_first() {
        let start = Instant::now();
        let mut schedule = GcSchedule::new(start);
        schedule.begin(start);
        assert_eq!(schedule.ended(start, true), Some(RETRY_DELAY));
        assert_eq!(schedule.due(), Some(start + RETRY_DELAY));
        let later = start + MIN_INTERVAL;
        schedule.begin(later);
        assert_eq!(schedule.ended(later, true), Some(MIN_INTERVAL));
        // Something else that has ended does not wait for it.
        schedule.request_by(later + RETRY_DELAY);
        assert_eq!(schedule.due(), Some(later + RETRY_DELAY));
        schedule.begin(later + Duration::from_secs(1));
        assert_eq!(schedule.due(), Some(later + RETRY_DELAY));
        schedule.begin(later + MIN_INTERVAL);
        assert_eq!(schedule.ended(later + MIN_INTERVAL, false), None);
        assert_eq!(schedule.due(), None);
        assert_eq!(
            schedule.ended(later + MIN_INTERVAL, true),
            Some(RETRY_DELAY)
        );
    }
}
