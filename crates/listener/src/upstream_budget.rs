//! Budget of sockets to instances and providers, which are file descriptors as well.
//!
//! A client connection may have many requests under way (HTTP/2), and each takes a socket of its own; sockets also stay
//! open while they are idle. Without a bound a few clients would leave no descriptor for anything else. So a socket holds
//! a permit for as long as it is open, idle or not. When the budget is used up, idle sockets are closed in favour of new
//! ones, and a project that has its part gets no more when little is left.

use crate::descriptors::{DescriptorShare, EvictIdle};
use estrade_model::ProjectId;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Part of the sockets that one project may have, however many are open.
const PROJECT_PART: usize = 2;
/// Part of all sockets, and of the shared descriptors, that a project with more than its part leaves to others.
const LEFT_PART: usize = 4;
/// Eviction closes 1/256 of all sockets at a time: one by one, each new one would have to look for an old one.
const EVICTED_PART: usize = 256;
/// How often room is made for one socket: others may take it meanwhile.
const MAX_EVICTIONS: usize = 4;
/// How often the other holders of descriptors are asked for some: they look at all of their connections.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// How long after a search that found no idle socket there is no other: it looks at all of them, under the locks that
/// requests need, and to be refused must cost less than to be served.
const SEARCH_INTERVAL: Duration = Duration::from_millis(25);

/// The idle connections of one worker.
pub trait IdleConnections: Send + Sync {
    /// Closes at most `count` of them, those of a project if one is named; returns how many.
    fn evict(&self, project: Option<ProjectId>, count: usize) -> usize;
}

/// How many sockets to instances or providers may be open at once. Clones share it. The default is without a limit.
#[derive(Debug, Clone)]
pub struct UpstreamBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    max_per_project: usize,
    descriptors: Option<DescriptorShare>,
    open: Mutex<Open>,
    pools: Mutex<Vec<Weak<dyn IdleConnections>>>,
    /// When the other holders of descriptors were last asked for some.
    asked_at: Mutex<Option<Instant>>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    /// When none of all was found idle.
    none_idle_at: Option<Instant>,
    projects: HashMap<ProjectId, OpenOfProject>,
}

#[derive(Debug, Default)]
struct OpenOfProject {
    count: usize,
    /// When none of these was found idle.
    none_idle_at: Option<Instant>,
}

impl Open {
    /// None if the project has no sockets any more.
    fn none_idle_at(&mut self, project: Option<ProjectId>) -> Option<&mut Option<Instant>> {
        match project {
            Some(project) => {
                let own = self.projects.get_mut(&project)?;
                Some(&mut own.none_idle_at)
            }
            None => Some(&mut self.none_idle_at),
        }
    }
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exhausted {
    Project(ProjectId),
    All,
    Descriptors,
}

/// The right to have one socket open, until it is dropped.
#[derive(Debug)]
pub struct UpstreamPermit {
    budget: Arc<Inner>,
    project: Option<ProjectId>,
}

impl Default for UpstreamBudget {
    fn default() -> Self {
        Self::with_limits(usize::MAX, usize::MAX, None)
    }
}

impl UpstreamBudget {
    /// At most `max` sockets, and as many as `descriptors` allows.
    pub fn new(max: usize, descriptors: Option<DescriptorShare>) -> Self {
        Self::with_limits(max, (max / PROJECT_PART).max(1), descriptors)
    }

    fn with_limits(
        max: usize,
        max_per_project: usize,
        descriptors: Option<DescriptorShare>,
    ) -> Self {
        let inner = Arc::new(Inner {
            max,
            max_per_project,
            descriptors,
            open: Mutex::default(),
            pools: Mutex::default(),
            asked_at: Mutex::default(),
            refused: AtomicU64::new(0),
        });
        if let Some(share) = &inner.descriptors {
            let holder: Weak<Inner> = Arc::downgrade(&inner);
            share.register(holder);
        }
        Self(inner)
    }

    /// Makes the idle connections of a worker available for eviction.
    pub fn register(&self, pool: Weak<dyn IdleConnections>) {
        let mut pools = self.0.pools.lock_ignoring_poison();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    /// A permit for one more socket, of a project if it leads to an instance. None when there is none to be had, even by
    /// closing idle connections.
    pub fn acquire(&self, project: Option<ProjectId>) -> Option<UpstreamPermit> {
        // A project that has closed one of its own has no more than before with the new one.
        let mut replaces_own = false;
        for _ in 0..MAX_EVICTIONS {
            let exhausted = match self.0.try_acquire(project, replaces_own) {
                Ok(()) => {
                    let budget = Arc::clone(&self.0);
                    return Some(UpstreamPermit { budget, project });
                }
                Err(exhausted) => exhausted,
            };
            if self.0.make_room(exhausted) == 0 {
                break;
            }
            replaces_own |= matches!(exhausted, Exhausted::Project(_));
        }
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// How many sockets are open.
    pub fn open(&self) -> usize {
        self.0.open().all
    }

    /// How many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock_ignoring_poison()
    }

    fn try_acquire(&self, project: Option<ProjectId>, replaces_own: bool) -> Result<(), Exhausted> {
        let mut open = self.open();
        let of_project = project.and_then(|project| open.projects.get(&project));
        let of_project = of_project.map_or(0, |own| own.count);
        if let Some(project) = project
            && of_project >= self.max_per_project
            && !replaces_own
            && self.is_scarce(open.all)
        {
            return Err(Exhausted::Project(project));
        }
        if open.all >= self.max {
            return Err(Exhausted::All);
        }
        let descriptors = self.descriptors.as_ref();
        if descriptors.is_some_and(|share| !share.try_acquire(open.all)) {
            return Err(Exhausted::Descriptors);
        }
        open.all += 1;
        if let Some(project) = project {
            open.projects.entry(project).or_default().count += 1;
        }
        Ok(())
    }

    /// Whether little is left when `open` sockets are open.
    fn is_scarce(&self, open: usize) -> bool {
        let descriptors = self.descriptors.as_ref();
        open >= self.max - self.max / LEFT_PART
            || descriptors.is_some_and(|share| share.has_less_than(LEFT_PART))
    }

    fn release(&self, project: Option<ProjectId>) {
        let mut open = self.open();
        open.all -= 1;
        if let Some(share) = &self.descriptors {
            share.release(open.all);
        }
        if let Some(project) = project
            && let Some(own) = open.projects.get_mut(&project)
        {
            own.count -= 1;
            if own.count == 0 {
                open.projects.remove(&project);
            }
        }
    }

    /// Closes idle connections; returns how many permits that has freed.
    fn make_room(&self, exhausted: Exhausted) -> usize {
        let project = match exhausted {
            Exhausted::Project(project) => Some(project),
            Exhausted::All | Exhausted::Descriptors => None,
        };
        let evicted = self.search(project, |open| open / EVICTED_PART + 1);
        if evicted == 0
            && exhausted == Exhausted::Descriptors
            && let Some(share) = &self.descriptors
            && self.may_ask()
        {
            // Too late for this socket, since clients' connections close when their worker gets to it.
            share.evict_idle();
        }
        evicted
    }

    fn may_ask(&self) -> bool {
        let mut asked_at = self.asked_at.lock_ignoring_poison();
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= ASK_INTERVAL);
        if is_due {
            *asked_at = Some(Instant::now());
        }
        is_due
    }

    /// Closes idle connections, as many as `count` says of all that are open, unless none was found just before.
    fn search(&self, project: Option<ProjectId>, count: impl FnOnce(usize) -> usize) -> usize {
        let count = {
            let mut open = self.open();
            let none_idle_at = open.none_idle_at(project).and_then(|at| *at);
            if none_idle_at.is_some_and(|at| at.elapsed() < SEARCH_INTERVAL) {
                return 0;
            }
            count(open.all)
        };
        if count == 0 {
            return 0;
        }
        let evicted = self.evict(project, count);
        if evicted == 0
            && let Some(none_idle_at) = self.open().none_idle_at(project)
        {
            *none_idle_at = Some(Instant::now());
        }
        evicted
    }

    /// Each connection that is closed takes the lock of `open`, so that neither it nor that of `pools` may be held.
    fn evict(&self, project: Option<ProjectId>, count: usize) -> usize {
        let pools: Vec<_> = {
            let pools = self.pools.lock_ignoring_poison();
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        pools.iter().fold(0, |evicted, pool| {
            if evicted < count {
                evicted + pool.evict(project, count - evicted)
            } else {
                evicted
            }
        })
    }
}

impl EvictIdle for Inner {
    fn evict_idle(&self) {
        let reserved = self
            .descriptors
            .as_ref()
            .map_or(0, DescriptorShare::reserved);
        // Those that are reserved would give nothing to others.
        self.search(None, |open| {
            (open / EVICTED_PART + 1).min(open.saturating_sub(reserved))
        });
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.budget.release(self.project);
    }
}

/// A socket, or a TLS stream over one, with its permit.
#[derive(Debug)]
pub struct UpstreamSocket<S> {
    stream: S,
    permit: UpstreamPermit,
}

impl<S> UpstreamSocket<S> {
    pub fn new(stream: S, permit: UpstreamPermit) -> Self {
        Self { stream, permit }
    }

    /// The project whose instance it leads to.
    pub fn project(&self) -> Option<ProjectId> {
        self.permit.project
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UpstreamSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UpstreamSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<S: AsFd> AsFd for UpstreamSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::DescriptorPool;

    #[expect(clippy::unnecessary_wraps, reason = "as permits name it")]
    fn project(number: u8) -> Option<ProjectId> {
        Some(ProjectId::from_bytes([number; 12]))
    }

    #[derive(Default)]
    struct Idle(Mutex<Vec<UpstreamPermit>>, AtomicU64);

    impl IdleConnections for Idle {
        fn evict(&self, project: Option<ProjectId>, count: usize) -> usize {
            self.1.fetch_add(1, Ordering::Relaxed);
            let mut idle = self.0.lock().unwrap();
            let before = idle.len();
            let mut left = count;
            idle.retain(|permit| {
                let goes = left > 0 && project.is_none_or(|it| permit.project == Some(it));
                left -= usize::from(goes);
                !goes
            });
            before - idle.len()
        }
    }

    #[test]
    fn one_project_leaves_a_part_to_others_and_all_have_a_limit() {
        let budget = UpstreamBudget::new(8, None);
        // More than its half, but no more than three quarters.
        let mut held: Vec<_> = (0..6)
            .map(|_| budget.acquire(project(1)).unwrap())
            .collect();
        assert!(budget.acquire(project(1)).is_none());
        held.push(budget.acquire(project(2)).unwrap());
        held.push(budget.acquire(None).unwrap());
        assert!(budget.acquire(project(3)).is_none());
        assert_eq!((budget.open(), budget.refused()), (8, 2));
        held.clear();
        assert_eq!(budget.open(), 0);
        assert!(budget.0.open().projects.is_empty());
    }

    #[test]
    fn idle_connections_make_room_for_new_ones() {
        let budget = UpstreamBudget::new(4, None);
        let idle = Arc::new(Idle::default());
        let pool: Weak<Idle> = Arc::downgrade(&idle);
        budget.register(pool);
        let keep = |number| {
            let permit = budget.acquire(project(number)).unwrap();
            idle.0.lock().unwrap().push(permit);
        };
        keep(1);
        keep(2);
        let _busy = (
            budget.acquire(project(2)).unwrap(),
            budget.acquire(project(3)).unwrap(),
        );
        // Its own makes room for a project that has its part.
        let _own = budget.acquire(project(2)).unwrap();
        assert_eq!(idle.0.lock().unwrap()[0].project, project(1));
        // The one of any connection, when all are taken.
        let _any = budget.acquire(project(4)).unwrap();
        assert!(idle.0.lock().unwrap().is_empty());
        assert_eq!((budget.open(), budget.refused()), (4, 0));
        assert!(budget.acquire(project(5)).is_none());
    }

    #[test]
    fn a_project_with_more_than_its_part_replaces_its_own() {
        let budget = UpstreamBudget::new(8, None);
        let idle = Arc::new(Idle::default());
        let pool: Weak<Idle> = Arc::downgrade(&idle);
        budget.register(pool);
        let mut held: Vec<_> = (0..6)
            .map(|_| budget.acquire(project(1)).unwrap())
            .collect();
        held.push(budget.acquire(project(2)).unwrap());
        idle.0.lock().unwrap().extend(held.drain(..1));
        held.push(budget.acquire(project(1)).unwrap());
        assert!(idle.0.lock().unwrap().is_empty());
        assert!(budget.acquire(project(1)).is_none());
        assert_eq!((budget.open(), budget.refused()), (7, 1));
    }

    #[test]
    fn who_is_refused_does_not_search_each_time() {
        let budget = UpstreamBudget::new(4, None);
        let idle = Arc::new(Idle::default());
        let pool: Weak<Idle> = Arc::downgrade(&idle);
        budget.register(pool);
        let mut held: Vec<_> = (0..3)
            .map(|_| budget.acquire(project(1)).unwrap())
            .collect();
        let searches = || idle.1.swap(0, Ordering::Relaxed);
        assert!((0..10_000).all(|_| budget.acquire(project(1)).is_none()));
        assert!((1..1000).contains(&searches()));
        // Others have not searched yet.
        held.push(budget.acquire(project(2)).unwrap());
        assert!((0..10_000).all(|_| budget.acquire(project(2)).is_none()));
        assert!((1..1000).contains(&searches()));
        idle.0.lock().unwrap().extend(held.drain(..1));
        std::thread::sleep(2 * SEARCH_INTERVAL);
        assert!(budget.acquire(project(1)).is_some());
        assert_eq!(searches(), 1);
    }

    #[test]
    fn sockets_take_the_descriptors_that_listeners_share() {
        let pool = DescriptorPool::new(3);
        let (clients, sockets) = (pool.share(1, 1), pool.share(1, 1));
        let budget = UpstreamBudget::new(100, Some(sockets));
        let held: Vec<_> = (0..4).map(|_| budget.acquire(None).unwrap()).collect();
        assert!(budget.acquire(None).is_none());
        assert!(clients.try_acquire(0), "its own");
        assert!(!clients.try_acquire(1));
        drop(held);
        assert!((1..4).all(|open| clients.try_acquire(open)));
        assert!(budget.acquire(None).is_some(), "its own");
    }

    #[test]
    fn one_project_leaves_a_part_of_the_descriptors_to_clients() {
        let pool = DescriptorPool::new(8);
        let (clients, sockets) = (pool.share(0, 1), pool.share(2, 1));
        let budget = UpstreamBudget::new(10, Some(sockets));
        assert!((0..4).all(|open| clients.try_acquire(open)));
        // Its own two, and three of the pool: then less than a quarter is left.
        let _held: Vec<_> = (0..5)
            .map(|_| budget.acquire(project(1)).unwrap())
            .collect();
        assert!(budget.acquire(project(1)).is_none());
        assert!(clients.try_acquire(4), "what it left");
    }

    #[test]
    fn idle_sockets_make_room_for_clients() {
        let pool = DescriptorPool::new(2);
        let (clients, sockets) = (pool.share(0, 1), pool.share(1, 1));
        let budget = UpstreamBudget::new(100, Some(sockets));
        let idle = Arc::new(Idle::default());
        let registered: Weak<Idle> = Arc::downgrade(&idle);
        budget.register(registered);
        for _ in 0..3 {
            let permit = budget.acquire(None).unwrap();
            idle.0.lock().unwrap().push(permit);
        }
        assert!(!clients.try_acquire(0));
        clients.evict_idle();
        assert!(clients.try_acquire(0));
        // What it has for itself stays.
        clients.evict_idle();
        clients.evict_idle();
        assert_eq!(budget.open(), 1);
    }

    #[test]
    fn what_is_reserved_is_not_evicted_for_clients() {
        let pool = DescriptorPool::new(10);
        let (clients, sockets) = (pool.share(0, 1), pool.share(999, 1));
        let budget = UpstreamBudget::new(10_000, Some(sockets));
        let idle = Arc::new(Idle::default());
        let registered: Weak<Idle> = Arc::downgrade(&idle);
        budget.register(registered);
        for _ in 0..1000 {
            let permit = budget.acquire(None).unwrap();
            idle.0.lock().unwrap().push(permit);
        }
        clients.evict_idle();
        assert_eq!(budget.open(), 999, "not a 256th of all");
    }
}
