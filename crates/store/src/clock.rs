//! The one clock of a server.

use estrade_model::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time. Clones share their offset: when a test advances one, every component sees it.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    ahead_ms: Arc<AtomicI64>,
}

impl Clock {
    pub fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(millis.saturating_add(self.ahead_ms.load(Ordering::Relaxed)))
    }

    /// Moves the clock forward, for tests of what expires.
    pub fn advance(&self, span: Duration) {
        self.ahead_ms.fetch_add(
            i64::try_from(span.as_millis()).unwrap_or(0),
            Ordering::Relaxed,
        );
    }
}
