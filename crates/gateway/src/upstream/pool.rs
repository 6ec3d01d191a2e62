//! Pool of idle connections of one serving thread.

use crate::upstream::{Connection, Upstream};
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

/// Connections that wait, by provider; in boxes, because that is how they are handed on.
type Idle = HashMap<u64, Vec<Box<Connection>>>;

/// Idle connections by provider, last in first out: those that are not needed reach the idle timeout.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    max_idle: usize,
    idle_timeout: Duration,
}

impl Pool {
    pub(crate) fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            max_idle,
            idle_timeout,
        }
    }

    /// Never contended: the calls of one thread take turns.
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock_ignoring_poison()
    }

    /// A connection that seems to be alive.
    pub(crate) fn take(&self, upstream: &Upstream, now: Instant) -> Option<Box<Connection>> {
        // With tokio's coop budget exhausted every socket seems quiet, also a closed one: open a new connection instead.
        while has_budget_remaining() {
            let mut connection = self.idle().get_mut(&upstream.number)?.pop()?;
            let fresh = now.saturating_duration_since(connection.idle_since) < self.idle_timeout;
            if fresh && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer has ended.
    pub(crate) fn put(&self, upstream: &Upstream, mut connection: Box<Connection>, now: Instant) {
        if !connection.is_reusable() {
            return;
        }
        connection.rest(now);
        let mut idle = self.idle();
        let idle = idle.entry(upstream.number).or_default();
        if idle.len() < self.max_idle {
            idle.push(connection);
        }
    }

    /// Closes what has waited for too long, was closed at the other end or leads to a provider that
    /// is no more.
    pub(crate) fn sweep(&self, known: &[Arc<Upstream>], now: Instant) {
        self.idle().retain(|number, idle| {
            idle.retain_mut(|connection| {
                now.saturating_duration_since(connection.idle_since) < self.idle_timeout
                    && connection.is_quiet()
            });
            !idle.is_empty() && known.iter().any(|upstream| upstream.number == *number)
        });
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.idle().values().map(Vec::len).sum()
    }
}
