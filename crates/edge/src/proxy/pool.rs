//! Connection pool of one worker: idle keep-alive connections to instances, last in first out.

use crate::proxy::ProxyOptions;
use crate::proxy::connection::Connection;
use crate::routing::load_balancer::Instance;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

/// How often connections are closed that are not worth keeping: also those to instances that leave,
/// which may be waiting for it.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The idle connections of a thread. The one that was used last is taken first, so that those that
/// are not needed grow old.
pub(crate) struct Pool {
    idle: Mutex<HashMap<u64, Idle>>,
    max_idle: usize,
    keep_alive: Duration,
    filled: Notify,
}

struct Idle {
    instance: Arc<Instance>,
    connections: Vec<Connection>,
}

impl Pool {
    pub(crate) fn new(options: &ProxyOptions) -> Self {
        Self {
            idle: Mutex::default(),
            max_idle: options.max_idle,
            keep_alive: options.keep_alive,
            filled: Notify::new(),
        }
    }

    /// Never contended: the requests of one thread take turns.
    fn idle(&self) -> MutexGuard<'_, HashMap<u64, Idle>> {
        self.idle.lock_ignoring_poison()
    }

    /// A connection that seems to be alive and has waited for less than `longest`.
    pub(crate) fn take(&self, instance: &Instance, longest: Duration) -> Option<Connection> {
        let longest = longest.min(self.keep_alive);
        // Without coop budget a read returns `Pending` whatever has arrived, so a closed connection would look
        // alive: then none is taken from the pool.
        while has_budget_remaining() {
            let mut connection = self.idle().get_mut(&instance.id)?.connections.pop()?;
            if connection.idle_since.elapsed() < longest && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer has ended.
    pub(crate) fn put(&self, instance: &Arc<Instance>, mut connection: Connection) {
        if instance.is_draining() || self.max_idle == 0 {
            return;
        }
        connection.rest();
        let mut idle = self.idle();
        if idle.is_empty() {
            self.filled.notify_one();
        }
        let new = || Idle {
            instance: Arc::clone(instance),
            connections: Vec::new(),
        };
        let idle = idle.entry(instance.id).or_insert_with(new);
        if idle.connections.len() < self.max_idle {
            idle.connections.push(connection);
        }
    }

    /// Closes what has waited for too long, was closed at the other end or leads to an instance that
    /// leaves. Never ends.
    pub(crate) async fn sweep(&self) {
        loop {
            if self.idle().is_empty() {
                self.filled.notified().await;
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = Instant::now();
            self.idle().retain(|_, idle| {
                idle.connections.retain_mut(|connection| {
                    let waited = now.saturating_duration_since(connection.idle_since);
                    waited < self.keep_alive && connection.is_quiet()
                });
                !idle.connections.is_empty() && !idle.instance.is_draining()
            });
        }
    }
}
