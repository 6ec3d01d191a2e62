//! Looks after calls that are under way and on record nowhere else: what they took so far is written down again
//! and again, so that a server that dies loses no more than a moment of them.

use super::ledger::{Ledger, bound};
use estrade_model::call::{Call, NodeId};
use estrade_store::calls::UnderWay;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long what happens to a call may be known to nobody else. With the time that writing takes it is less
/// than the 100 ms that are promised.
const LOOK_EVERY: Duration = Duration::from_millis(80);
/// Who writes anyway looks before that, but not with each of many small writes.
const LOOK_EARLIER: Duration = Duration::from_millis(40);
/// How long nobody looks when this server could not be made known.
const PAUSE: Duration = Duration::from_secs(1);

type Source = Box<dyn Fn(NodeId) -> Vec<Call> + Send + Sync>;

/// Knows whom to ask, and whether that is worth it.
#[derive(Default)]
pub(super) struct Watch {
    source: OnceLock<Source>,
    /// Whether a call may be under way.
    awake: AtomicBool,
    /// Whether one was when somebody last looked.
    busy: AtomicBool,
    woken: Notify,
}

impl Watch {
    /// Says whom to ask; the first one that is said is asked.
    pub(super) fn over(&self, source: Source) {
        let _ = self.source.set(source);
    }

    /// A call is under way, and whoever is asked knows it already.
    pub(super) fn wake(&self) {
        if !self.is_awake() {
            self.awake.store(true, Ordering::Relaxed);
            self.woken.notify_one();
        }
    }

    fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
    }

    /// Returns when a call may be under way.
    async fn awake(&self) {
        while !self.is_awake() {
            self.woken.notified().await;
        }
    }

    fn look(&self, node: NodeId) -> Vec<Call> {
        // First: a call that comes while we look wakes us again.
        self.awake.store(false, Ordering::Relaxed);
        let calls = self.source.get().map_or_else(Vec::new, |ask| ask(node));
        self.busy.store(!calls.is_empty(), Ordering::Relaxed);
        if !calls.is_empty() {
            self.awake.store(true, Ordering::Relaxed);
        }
        calls
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_awake() && !self.busy.load(Ordering::Relaxed)
    }
}

/// What was written down last.
pub(super) struct Lookout {
    node: Option<NodeId>,
    kept: Arc<UnderWay>,
    next: Instant,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self {
            node: None,
            kept: Arc::default(),
            next: Instant::now(),
        }
    }

    /// Returns when it is time to look again.
    pub(super) async fn due(&self, watch: &Watch) {
        watch.awake().await;
        sleep_until(self.next).await;
    }

    /// What is under way now, and whose it is, if that has to be written. Not too often, unless it is the
    /// `last` time.
    pub(super) async fn look(
        &mut self,
        ledger: &Ledger,
        last: bool,
    ) -> Option<(NodeId, Arc<UnderWay>)> {
        let now = Instant::now();
        let is_early = now + LOOK_EARLIER < self.next && !last;
        if is_early || (ledger.watch.is_idle() && self.kept.is_empty()) {
            return None;
        }
        // First, so that whoever is on record as this server's is so because the database knows it. Somebody
        // has to, to notice that it is gone.
        let Ok(node) = ledger.register().await else {
            self.next = now + PAUSE;
            return None;
        };
        self.next = now + LOOK_EVERY;
        let mut calls = ledger.watch.look(node);
        calls.iter_mut().for_each(bound);
        let calls = UnderWay::of(calls);
        let is_other = self.node != Some(node);
        if *self.kept == calls && (calls.is_empty() || !is_other) {
            return None;
        }
        self.node = Some(node);
        self.kept = Arc::new(calls);
        Some((node, Arc::clone(&self.kept)))
    }
}
