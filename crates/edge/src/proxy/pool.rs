//! Connection pool of one worker, with what the edge knows of instances: an instance that is draining gets no idle
//! connections, and those it has are closed, since it may wait for that before it stops.

use crate::proxy::{Connection, ProxyOptions};
use crate::routing::load_balancer::Instance;
use estrade_http1::client;
use estrade_listener::{IdleConnections, UpstreamSocket};
use estrade_model::ProjectId;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct Pool {
    idle: client::Pool<UpstreamSocket<TcpStream>, Arc<Instance>>,
    /// Wakes the sweeper, which has no timer while the pool is empty.
    filled: Notify,
}

impl Pool {
    pub(crate) fn new(options: &ProxyOptions) -> Self {
        Self {
            idle: client::Pool::new(options.max_idle, options.keep_alive),
            filled: Notify::new(),
        }
    }

    /// Takes a connection that seems to be open and was idle for less than `max_idle_time`.
    pub(crate) fn take(
        &self,
        instance: &Instance,
        max_idle_time: Duration,
    ) -> Option<Box<Connection>> {
        self.idle.take(instance.id, max_idle_time, Instant::now())
    }

    /// Keeps a connection whose response has ended, if it may be reused.
    pub(crate) fn put(&self, instance: &Arc<Instance>, connection: Box<Connection>) {
        if instance.is_draining() {
            return;
        }
        let target = || Arc::clone(instance);
        let was_empty = self
            .idle
            .put(instance.id, connection, Instant::now(), target);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Closes idle connections that are too old, closed by the instance or to a draining instance. Never returns.
    pub(crate) async fn sweep(&self) {
        loop {
            if self.idle.is_empty() {
                self.filled.notified().await;
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.idle
                .sweep(Instant::now(), |_, instance| !instance.is_draining());
        }
    }
}

impl IdleConnections for Pool {
    fn evict(&self, project: Option<ProjectId>, count: usize) -> usize {
        let is_of =
            |socket: &UpstreamSocket<TcpStream>| project.is_none() || socket.project() == project;
        self.idle.evict(count, is_of)
    }
}
