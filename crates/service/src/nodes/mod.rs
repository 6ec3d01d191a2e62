//! Membership: which nodes share the database, and which of them are alive.
//!
//! Each node has a row that it renews (`heartbeat`); [`View`] tells from a series of looks at all rows who is down. On
//! SQLite one process owns the file: there is no row, nothing is written, and nobody else to look for.
//!
//! A node that joins or leaves notes it in the change feed, so that the others look at once; so does one that was
//! silent for so long that it may have been taken for dead. Death itself is found by looking.

mod heartbeat;
mod view;

use crate::{Caller, Core, Result};
use estrade_model::node::{Node, NodeAddresses, NodeId, NodeState};
use estrade_model::sync::MutexExt;
use estrade_store::nodes::NodeRow;
use estrade_store::{Change, ChangeKind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use view::{PROOF_LIFETIME, View};

/// An engine that does not answer within this time counts as none.
const ENGINE_TIMEOUT: Duration = Duration::from_millis(1500);

/// The nodes of this installation, as this one sees them.
pub struct Membership {
    core: Arc<Core>,
    this: NodeId,
    started: Instant,
    shared: Arc<Shared>,
    state: Mutex<State>,
    has_engine: AtomicBool,
}

/// What callers on hot paths read and the change feed writes.
struct Shared {
    /// This node and the others that are alive.
    alive: AtomicUsize,
    /// Milliseconds after the start of this node until which it is proved that there is no other; 0: it is not.
    alone_until: AtomicU64,
    /// Counts changes of the list. Held while `alone_until` is written, so that a look that began before a change
    /// cannot prove anything after it.
    changes: Mutex<u64>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    addresses: NodeAddresses,
    /// When the row was renewed last; none: it was not added yet, or it is gone.
    renewed: Option<Instant>,
    view: View,
    rows: Vec<NodeRow>,
}

impl Membership {
    /// A node that others do not know yet: [`Self::join`] introduces it.
    pub(crate) fn new(core: &Arc<Core>) -> Result<Self> {
        let is_shared = !core.db.is_sqlite();
        let shared = Arc::new(Shared {
            alive: AtomicUsize::new(1),
            alone_until: AtomicU64::new(if is_shared { 0 } else { u64::MAX }),
            changes: Mutex::new(0),
            changed: Notify::new(),
        });
        if is_shared {
            let shared = Arc::clone(&shared);
            core.db
                .changes()
                .on_change(move |change| shared.on_change(change));
        }
        Ok(Self {
            core: Arc::clone(core),
            this: core.new_id()?,
            started: Instant::now(),
            shared,
            state: Mutex::default(),
            has_engine: AtomicBool::new(false),
        })
    }

    /// This run of this server.
    pub fn this(&self) -> NodeId {
        self.this
    }

    /// How many nodes are alive, this one included. While the database is away it stays what it was.
    pub fn alive(&self) -> usize {
        self.shared.alive.load(Ordering::Relaxed)
    }

    /// Whether it is certain that no other node is alive: this one has added its row, and has read the list since and
    /// lately. False as soon as the change feed tells that a node has joined, and while the database is away.
    pub fn is_alone(&self) -> bool {
        match self.shared.alone_until.load(Ordering::Acquire) {
            0 => false,
            u64::MAX => true,
            until => self.millis_at(Instant::now()) < until,
        }
    }

    /// Whether this node has no container engine while another one that is alive has: releases that need one are built and
    /// run there.
    pub(crate) fn leaves_containers_to_others(&self) -> bool {
        if self.has_engine.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state();
        let others = state.rows.iter().filter(|row| row.id != self.this);
        others
            .filter(|row| state.view.is_alive(row.id))
            .any(|row| row.has_engine)
    }

    /// Every node that is alive, or went down lately; newest first.
    pub fn list(&self) -> Vec<Node> {
        let state = self.state();
        let mut nodes: Vec<_> = state
            .rows
            .iter()
            .map(|row| self.describe(row, &state.view))
            .collect();
        if !nodes.iter().any(|node| node.is_this_node) {
            nodes.insert(0, self.describe_this(state.addresses.clone()));
        }
        nodes
    }

    /// The same for an administrator, and asks the engine of this node whether it answers.
    pub async fn list_nodes(&self, caller: &Caller) -> Result<Vec<Node>> {
        caller.require_admin_to_read()?;
        let has_engine = has_engine(&self.core).await;
        let mut nodes = self.list();
        for node in nodes.iter_mut().filter(|node| node.is_this_node) {
            node.has_engine = has_engine;
        }
        Ok(nodes)
    }

    fn describe(&self, row: &NodeRow, view: &View) -> Node {
        let is_this_node = row.id == self.this;
        let is_alive = is_this_node || view.is_alive(row.id);
        Node {
            id: row.id,
            hostname: row.hostname.clone(),
            version: row.version.clone(),
            started_at: row.started_at,
            last_seen_at: row.seen_at,
            state: if is_alive {
                NodeState::Alive
            } else {
                NodeState::Down
            },
            is_this_node,
            addresses: row.addresses.clone(),
            has_engine: row.has_engine,
        }
    }

    /// This node without its row.
    fn describe_this(&self, addresses: NodeAddresses) -> Node {
        let now = self.core.now();
        Node {
            id: self.this,
            hostname: hostname(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now.before(self.started.elapsed()),
            last_seen_at: now,
            state: NodeState::Alive,
            is_this_node: true,
            addresses,
            has_engine: self.has_engine.load(Ordering::Relaxed),
        }
    }

    /// Takes a list that was read at `now`, after `changes` changes.
    fn apply(&self, rows: Vec<NodeRow>, changes: u64, now: Instant) {
        let mut state = self.state();
        state.view.observe(self.this, &rows, now);
        let has_row = rows.iter().any(|row| row.id == self.this);
        let is_alone = has_row && state.view.is_certainly_alone(now);
        let alive = 1 + state.view.alive();
        state.rows = rows;
        drop(state);
        self.shared.alive.store(alive, Ordering::Relaxed);
        let until = self.millis_at(now + PROOF_LIFETIME);
        self.shared.prove_alone(is_alone.then_some(until), changes);
    }

    /// Milliseconds from the start of this node to a moment; never 0 and never the value that stands for always.
    fn millis_at(&self, at: Instant) -> u64 {
        let millis = at.duration_since(self.started).as_millis();
        u64::try_from(millis)
            .unwrap_or(u64::MAX)
            .clamp(1, u64::MAX - 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_ignoring_poison()
    }
}

impl Shared {
    /// How many changes there were.
    fn changes(&self) -> u64 {
        *self.changes.lock_ignoring_poison()
    }

    fn prove_alone(&self, until: Option<u64>, changes: u64) {
        let counted = self.changes.lock_ignoring_poison();
        if *counted == changes {
            self.alone_until
                .store(until.unwrap_or(0), Ordering::Release);
        }
    }

    fn on_change(&self, change: &Change) {
        if matches!(change.kind, ChangeKind::Node | ChangeKind::Everything) {
            let mut counted = self.changes.lock_ignoring_poison();
            *counted += 1;
            self.alone_until.store(0, Ordering::Release);
            drop(counted);
            self.changed.notify_one();
        }
    }
}

/// The name of this machine.
fn hostname() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Whether the engine of this node answers.
async fn has_engine(core: &Core) -> bool {
    let pinged = timeout(ENGINE_TIMEOUT, core.image_builder.ping()).await;
    matches!(pinged, Ok(Ok(())))
}
