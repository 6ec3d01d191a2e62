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

type Source = Box<dyn Fn(NodeId) -> Vec<Call> + Send + Sync>;

/// Knows whom to ask, and whether that is worth it.
#[derive(Default)]
pub(super) struct Watch {
    source: OnceLock<Source>,
    /// Whether a call may be under way.
    awake: AtomicBool,
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

    pub(super) fn is_awake(&self) -> bool {
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
        if !calls.is_empty() {
            self.awake.store(true, Ordering::Relaxed);
        }
        calls
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

    /// What is under way now, and whose it is, if that has to be written.
    pub(super) async fn look(&mut self, ledger: &Ledger) -> Option<(NodeId, Arc<UnderWay>)> {
        self.next = Instant::now() + LOOK_EVERY;
        if !ledger.watch.is_awake() && self.kept.is_empty() {
            return None;
        }
        let node = ledger.slices().node;
        let mut calls = ledger.watch.look(node);
        calls.iter_mut().for_each(bound);
        let calls = UnderWay::of(calls);
        let is_other = self.node != Some(node);
        if *self.kept == calls && (calls.is_empty() || !is_other) {
            return None;
        }
        // Somebody has to know that this server is there, to notice that it is not.
        if !calls.is_empty() && ledger.register().await != Ok(node) {
            return None;
        }
        self.node = Some(node);
        self.kept = Arc::new(calls);
        Some((node, Arc::clone(&self.kept)))
    }
}
