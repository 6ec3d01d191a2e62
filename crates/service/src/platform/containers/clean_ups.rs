//! When to clean up: soon after something ended, once more when what the engine was told to do is done, and now
//! and then while something runs.

use std::time::Duration;
use tokio::time::Instant;

/// The least time between two that nobody asked for.
pub(super) const SELDOM: Duration = Duration::from_mins(1);
/// How soon what could not be removed is tried again.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// When the next one is due.
pub(super) struct CleanUps {
    /// Something ran or ended since the last.
    wanted: bool,
    next: Instant,
    /// Until when the engine may be about to make something that has to be removed.
    unsettled_until: Instant,
    /// Since when something is in use that nobody needs.
    in_use_since: Option<Instant>,
}

impl CleanUps {
    /// The first is due now: an earlier run may have left something.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            wanted: true,
            next: now,
            unsettled_until: now,
            in_use_since: None,
        }
    }

    /// Something runs, and may leave something behind.
    pub(super) fn want_one_day(&mut self) {
        self.wanted = true;
    }

    /// There will be something to clean up: not later than this, and then at the latest it is all there.
    pub(super) fn want_at(&mut self, at: Instant) {
        self.wanted = true;
        self.next = self.next.min(at);
        self.unsettled_until = self.unsettled_until.max(at);
    }

    /// When the next one is due, if one is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        self.wanted.then_some(self.next)
    }

    /// One begins.
    pub(super) fn begin(&mut self, now: Instant) {
        // One for the sake of what has ended must not be the last before something else has.
        self.wanted = self.unsettled_until > now;
        self.next = if self.wanted {
            self.unsettled_until
        } else {
            now + SELDOM
        };
    }

    /// One has ended. If it left something that is in use: how soon to come back for it.
    pub(super) fn ended(&mut self, now: Instant, left: bool) -> Option<Duration> {
        if !left {
            self.in_use_since = None;
            return None;
        }
        // Something that an engine takes for used for ever is no reason to ask it all the time.
        let since = *self.in_use_since.get_or_insert(now);
        let lately = now.saturating_duration_since(since) < SELDOM;
        let wait = if lately { SOON } else { SELDOM };
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
        let mut clean_ups = CleanUps::new(start);
        assert_eq!(clean_ups.due(), Some(start));
        clean_ups.begin(start);
        assert_eq!(clean_ups.due(), None);
        // Somebody broke off while the engine made something; meanwhile something else ended.
        clean_ups.want_at(at(5000));
        clean_ups.want_at(at(300));
        assert_eq!(clean_ups.due(), Some(at(300)));
        clean_ups.begin(at(310));
        assert_eq!(clean_ups.due(), Some(at(5000)));
        clean_ups.begin(at(5000));
        assert_eq!(clean_ups.due(), None);
        clean_ups.want_one_day();
        assert_eq!(clean_ups.due(), Some(at(5000) + SELDOM));
    }

    #[test]
    fn what_is_in_use_is_tried_again_soon_at_first() {
        let start = Instant::now();
        let mut clean_ups = CleanUps::new(start);
        clean_ups.begin(start);
        assert_eq!(clean_ups.ended(start, true), Some(SOON));
        assert_eq!(clean_ups.due(), Some(start + SOON));
        let later = start + SELDOM;
        clean_ups.begin(later);
        assert_eq!(clean_ups.ended(later, true), Some(SELDOM));
        // Something else that has ended does not wait for it.
        clean_ups.want_at(later + SOON);
        assert_eq!(clean_ups.due(), Some(later + SOON));
        clean_ups.begin(later + Duration::from_secs(1));
        assert_eq!(clean_ups.due(), Some(later + SOON));
        clean_ups.begin(later + SELDOM);
        assert_eq!(clean_ups.ended(later + SELDOM, false), None);
        assert_eq!(clean_ups.due(), None);
        assert_eq!(clean_ups.ended(later + SELDOM, true), Some(SOON));
    }
}
