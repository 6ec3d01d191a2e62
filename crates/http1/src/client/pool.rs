//! Pool of idle keep-alive connections, by target.

use crate::client::Connection;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

/// Idle connections of one worker. Last in, first out: connections that are not needed reach the idle timeout.
///
/// Holds only connections that may be reused, at most `max_idle` per target. `T` is what the user needs to decide
/// whether a target still exists.
pub struct Pool<S, T> {
    /// Hardly ever contended: the requests of one worker run one after the other, and only [`evict`](Self::evict) is
    /// called by others.
    idle: Mutex<HashMap<u64, Idle<S, T>>>,
    max_idle: usize,
    idle_timeout: Duration,
}

struct Idle<S, T> {
    target: T,
    connections: Vec<Box<Connection<S>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin, T> Pool<S, T> {
    /// `max_idle` is per target.
    pub fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            max_idle,
            idle_timeout,
        }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<u64, Idle<S, T>>> {
        self.idle.lock_ignoring_poison()
    }

    /// Takes a connection that seems to be open and was idle for less than `max_idle_time`.
    pub fn take(
        &self,
        id: u64,
        max_idle_time: Duration,
        now: Instant,
    ) -> Option<Box<Connection<S>>> {
        let max_idle_time = max_idle_time.min(self.idle_timeout);
        // With tokio's coop budget exhausted every socket seems quiet, also a closed one. Then no connection is reused.
        while has_budget_remaining() {
            let mut connection = self.idle().get_mut(&id)?.connections.pop()?;
            if connection.idle_time(now) < max_idle_time && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection if it may be reused and there is room. Returns whether the pool was empty before.
    pub fn put(
        &self,
        id: u64,
        mut connection: Box<Connection<S>>,
        now: Instant,
        target: impl FnOnce() -> T,
    ) -> bool {
        if !connection.is_reusable() || self.max_idle == 0 {
            return false;
        }
        connection.set_idle(now);
        let mut idle = self.idle();
        let was_empty = idle.is_empty();
        let idle = idle.entry(id).or_insert_with(|| Idle {
            target: target(),
            connections: Vec::new(),
        });
        if idle.connections.len() < self.max_idle {
            idle.connections.push(connection);
        }
        was_empty
    }

    /// Closes connections that were idle for too long, that the peer has closed, or whose target is not to be kept.
    pub fn sweep(&self, now: Instant, keep: impl Fn(u64, &T) -> bool) {
        self.idle().retain(|id, idle| {
            idle.connections.retain_mut(|connection| {
                connection.idle_time(now) < self.idle_timeout && connection.is_quiet()
            });
            !idle.connections.is_empty() && keep(*id, &idle.target)
        });
    }

    /// Closes at most `count` connections, those of a target in the order in which they became idle. `chosen` is asked for
    /// one stream of each target. Returns how many.
    pub fn evict(&self, count: usize, chosen: impl Fn(&S) -> bool) -> usize {
        let mut evicted = 0;
        for Idle { connections, .. } in self.idle().values_mut() {
            if evicted == count {
                break;
            }
            let first = connections.first();
            if first.is_some_and(|connection| chosen(connection.stream())) {
                let goes = connections.len().min(count - evicted);
                drop(connections.drain(..goes));
                evicted += goes;
            }
        }
        evicted
    }

    pub fn is_empty(&self) -> bool {
        self.idle().is_empty()
    }

    /// How many connections are idle.
    pub fn len(&self) -> usize {
        self.idle()
            .values()
            .map(|idle| idle.connections.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Request;
    use bytes::Bytes;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A connection that has carried a request, and its peer.
    async fn used(response: &[u8]) -> (Box<Connection<DuplexStream>>, DuplexStream) {
        let (near, mut far) = duplex(1024);
        let mut connection = Box::new(Connection::new(near));
        far.write_all(response).await.unwrap();
        let request = Request {
            head: b"GET / HTTP/1.1\r\n",
            extra_headers: b"\r\n",
            body: &Bytes::new(),
        };
        let now = Instant::now();
        connection
            .send(&request, now, now + TIMEOUT, |_| ())
            .await
            .unwrap();
        let _ = poll_fn(|cx| connection.poll_data(cx)).await;
        assert!(far.read(&mut [0; 64]).await.unwrap() > 0);
        (connection, far)
    }

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_used_last_is_taken_first_and_closed_ones_are_not() {
        let pool = Pool::new(2, TIMEOUT);
        let now = Instant::now();
        let mut peers = Vec::new();
        for count in 0..3 {
            let (connection, peer) = used(OK).await;
            assert_eq!(pool.put(1, connection, now, || ()), count == 0);
            peers.push(peer);
        }
        assert_eq!(pool.len(), 2, "no more than two per target");
        assert!(pool.take(2, Duration::MAX, now).is_none());
        // The second one is the last that found room.
        peers[1]
            .write_all(b"HTTP/1.1 408 Late\r\n\r\n")
            .await
            .unwrap();
        let taken = pool.take(1, Duration::MAX, now).unwrap();
        assert!(taken.may_have_been_closed(TIMEOUT));
        assert!(pool.take(1, Duration::MAX, now).is_none());
        pool.put(1, taken, now, || ());
        drop(peers);
        assert!(pool.take(1, Duration::MAX, now).is_none(), "it was closed");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_not_reused_after_the_idle_timeout_or_an_unclear_end() {
        let pool = Pool::new(8, TIMEOUT);
        let now = Instant::now();
        let (connection, _first) = used(OK).await;
        pool.put(1, connection, now, || ());
        assert!(pool.take(1, Duration::ZERO, now).is_none());
        let (connection, _second) = used(OK).await;
        pool.put(1, connection, now, || ());
        assert!(pool.take(1, Duration::MAX, now + TIMEOUT).is_none());
        for response in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!"[..],
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok",
            b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            let (connection, _peer) = used(response).await;
            pool.put(1, connection, now, || ());
            assert_eq!(pool.len(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_evicted_and_the_longest_idle_first() {
        let pool = Pool::new(8, TIMEOUT);
        let now = Instant::now();
        let mut peers = Vec::new();
        for target in [1, 1, 1] {
            let (connection, peer) = used(OK).await;
            pool.put(target, connection, now, || target);
            peers.push(peer);
        }
        assert_eq!(pool.evict(2, |_| false), 0);
        assert_eq!(pool.evict(2, |_| true), 2);
        assert_eq!(pool.len(), 1);
        for peer in &mut peers[..2] {
            assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0, "it is open");
        }
        assert!(pool.take(1, Duration::MAX, now).is_some());
        assert_eq!(pool.evict(2, |_| true), 0);
        assert_eq!(pool.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_closes_what_is_old_closed_or_of_no_target() {
        let pool = Pool::new(8, TIMEOUT);
        let now = Instant::now();
        let mut peers = Vec::new();
        for target in [1, 1, 2] {
            let (connection, peer) = used(OK).await;
            pool.put(target, connection, now, || target);
            peers.push(peer);
        }
        drop(peers.remove(0));
        pool.sweep(now, |id, target| id == *target);
        assert_eq!(pool.len(), 2);
        pool.sweep(now, |id, _| id == 1);
        assert_eq!(pool.len(), 1);
        pool.sweep(now + TIMEOUT, |_, _| true);
        assert!(pool.is_empty());
    }
}
