//! Header and keep-alive timeouts of a connection, with one timer for both.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// What is told whether a connection waits for a request: who closes idle connections to make room for others.
pub trait ConnectionState {
    /// It waits for a request since `now`.
    fn set_idle(&self, now: Instant);

    /// It has one.
    fn set_busy(&self);
}

/// How long a client may take for a head, and until its next request.
///
/// The timer is moved when it fires and not with every request: a later deadline is only written down, which costs no
/// access to the timer wheel. Only a deadline that comes before the timer resets it.
pub struct KeepAliveTimeout<C> {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
    in_head: bool,
    header_timeout: Duration,
    idle_timeout: Duration,
    connection: Arc<C>,
}

impl<C: ConnectionState> KeepAliveTimeout<C> {
    /// A new connection: its first head has to be complete within the header timeout, counted from now.
    pub fn new(header_timeout: Duration, idle_timeout: Duration, connection: &Arc<C>) -> Self {
        let deadline = Instant::now() + header_timeout;
        Self {
            sleep: Box::pin(sleep_until(deadline)),
            deadline,
            in_head: true,
            header_timeout,
            idle_timeout,
            connection: Arc::clone(connection),
        }
    }

    /// The connection waits for the next request.
    #[inline]
    pub fn wait_for_request(&mut self) {
        let now = Instant::now();
        self.in_head = false;
        self.deadline = now + self.idle_timeout;
        self.connection.set_idle(now);
    }

    /// It waits for the rest of a head, counted from when that was first waited for.
    #[inline]
    pub fn wait_for_head(&mut self) {
        if !self.in_head {
            self.in_head = true;
            self.deadline = Instant::now() + self.header_timeout;
            self.sleep.as_mut().reset(self.deadline);
        }
    }

    /// A request was answered. What has come of the next one begins only now: the time that the response took is not the
    /// client's.
    #[inline]
    pub fn request_done(&mut self) {
        self.in_head = false;
    }

    #[inline]
    pub(super) fn set_busy(&self) {
        self.connection.set_busy();
    }

    /// Ready when the timer fires, which is not later than the deadline.
    #[inline]
    pub(super) fn timer(&mut self) -> Pin<&mut Sleep> {
        self.sleep.as_mut()
    }

    /// Whether the deadline has passed; if not, the timer is set to it.
    pub fn is_expired(&mut self) -> bool {
        let expired = Instant::now() >= self.deadline;
        if !expired {
            self.sleep.as_mut().reset(self.deadline);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unobserved;

    impl ConnectionState for Unobserved {
        fn set_idle(&self, _: Instant) {}
        fn set_busy(&self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_own_time_for_its_head() {
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(75));
        let mut timeout = KeepAliveTimeout::new(head, idle, &Arc::new(Unobserved));
        // Each read ends in the middle of a request, as with a client that never waits.
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(4)).await;
            timeout.request_done();
            timeout.wait_for_head();
            assert!(!timeout.is_expired());
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(timeout.is_expired());
    }
}
