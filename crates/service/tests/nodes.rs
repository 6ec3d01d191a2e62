//! Which nodes share a database, and which of them are alive.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_fixtures::eventually;
use estrade_model::node::{NodeAddresses, NodeId, NodeState};
use estrade_service::nodes::Membership;
use estrade_service::{Core, Services, Settings};
use estrade_store::changes::follow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Installation, on_both_backends};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    a_node_without_others_knows_that_it_is_alone
}

/// Longer than any node is silent and counts as alive.
const DETECTION: Duration = Duration::from_secs(10);

fn addresses(platform: &str) -> NodeAddresses {
    NodeAddresses {
        platform: platform.into(),
        ai: "127.0.0.1:2".into(),
        edge: "127.0.0.1:3".into(),
    }
}

/// A server of which only what concerns this runs.
struct RunningNode {
    core: Arc<Core>,
    nodes: Arc<Membership>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl RunningNode {
    fn new(core: Arc<Core>) -> Self {
        let nodes = Services::new(&core).unwrap().nodes;
        Self {
            core,
            nodes,
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        }
    }

    async fn start(core: Arc<Core>) -> Self {
        let mut node = Self::new(core);
        node.join().await;
        node
    }

    async fn join(&mut self) {
        self.nodes.join(addresses("127.0.0.1:1")).await;
        let nodes = Arc::clone(&self.nodes);
        self.tasks.spawn(nodes.run(self.stop.clone()));
        let db = self.core.db.clone();
        self.tasks.spawn(follow(db, self.stop.clone()));
    }

    /// As a server stops that was asked to.
    async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.core.db.close().unwrap();
    }

    /// As a process dies.
    async fn kill(mut self) -> NodeId {
        self.tasks.shutdown().await;
        self.core.db.close().unwrap();
        self.nodes.this()
    }

    fn state_of(&self, id: NodeId) -> Option<NodeState> {
        let list = self.nodes.list().into_iter();
        let mut found = list.filter(|node| node.id == id);
        found.next().map(|node| node.state)
    }

    async fn sees(&self, id: NodeId, state: Option<NodeState>) {
        eventually(&format!("{id} is {state:?}"), || async {
            self.state_of(id) == state
        })
        .await;
    }

    async fn is_alone(&self) {
        eventually("it is alone", || async { self.nodes.is_alone() }).await;
        assert_eq!(self.nodes.alive(), 1);
    }
}

async fn another(at: &Installation) -> Arc<Core> {
    at.another_core(Settings::default()).await
}

async fn a_node_without_others_knows_that_it_is_alone(at: &Installation) {
    let mut node = RunningNode::new(Arc::clone(&at.core));
    assert_eq!(node.nodes.alive(), 1);
    let is_sqlite = at.core.db.is_sqlite();
    assert_eq!(node.nodes.is_alone(), is_sqlite, "it has not looked yet");
    node.join().await;
    node.is_alone().await;
    let list = node.nodes.list();
    assert_eq!(list.len(), 1);
    assert!(list[0].is_this_node && list[0].is_alive());
    assert_eq!(list[0].id, node.nodes.this());
    assert_eq!(list[0].addresses, addresses("127.0.0.1:1"));
    assert_ne!(list[0].hostname, "");
    // One process owns a SQLite file: nothing is written, now and later.
    let rows = at.core.db.read("SELECT COUNT(*) FROM nodes");
    let rows: u64 = rows.fetch_one().await.unwrap();
    assert_eq!(rows, u64::from(!is_sqlite));
    node.stop.cancel();
    while node.tasks.join_next().await.is_some() {}
    let rows = at.core.db.read("SELECT COUNT(*) FROM nodes");
    let rows: u64 = rows.fetch_one().await.unwrap();
    assert_eq!(rows, 0, "it has left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_hear_of_each_other_at_once() {
    let at = Installation::on_postgres().await;
    let a = RunningNode::start(another(&at).await).await;
    a.is_alone().await;
    for _ in 0..2 {
        let mut b = RunningNode::new(another(&at).await);
        a.is_alone().await;
        b.join().await;
        let joined = Instant::now();
        assert!(!b.nodes.is_alone());
        assert_eq!(b.nodes.alive(), 2, "it knows of the first from the start");
        while a.nodes.is_alone() {
            sleep(Duration::from_millis(1)).await;
        }
        eprintln!("not alone any more after {:?}", joined.elapsed());
        assert!(joined.elapsed() < Duration::from_secs(1));
        a.sees(b.nodes.this(), Some(NodeState::Alive)).await;
        assert_eq!(a.nodes.alive(), 2);
        let id = b.nodes.this();
        b.stop().await;
        let left = Instant::now();
        a.sees(id, None).await;
        assert!(left.elapsed() < Duration::from_secs(1));
        assert_eq!(a.nodes.alive(), 1);
    }
    a.stop().await;
    at.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_alive_whatever_its_clock_says() {
    let at = Installation::on_postgres().await;
    let a = RunningNode::start(another(&at).await).await;
    let ahead = another(&at).await;
    ahead.clock.advance(Duration::from_hours(24 * 365));
    let b = RunningNode::start(ahead).await;
    a.sees(b.nodes.this(), Some(NodeState::Alive)).await;
    let started = Instant::now();
    while started.elapsed() < DETECTION + Duration::from_secs(2) {
        assert_eq!((a.nodes.alive(), b.nodes.alive()), (2, 2));
        assert!(!a.nodes.is_alone() && !b.nodes.is_alone());
        sleep(Duration::from_millis(100)).await;
    }
    for node in a.nodes.list() {
        // Of the database's clock.
        let age = at.core.now().millis() - node.started_at.millis();
        assert!((0..60_000).contains(&age), "{age}");
    }
    a.stop().await;
    b.stop().await;
    at.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_is_down_and_forgotten_an_hour_later() {
    let at = Installation::on_postgres().await;
    let a = RunningNode::start(another(&at).await).await;
    let b = RunningNode::start(another(&at).await).await;
    a.sees(b.nodes.this(), Some(NodeState::Alive)).await;
    let died = Instant::now();
    let b = b.kill().await;
    a.sees(b, Some(NodeState::Down)).await;
    let took = died.elapsed();
    eprintln!("a node that died was down after {took:?}");
    assert!(took > Duration::from_secs(4), "{took:?}");
    assert!(took < DETECTION + Duration::from_secs(2), "{took:?}");
    a.is_alone().await;
    // Whoever starts now does not take it for alive, but cannot be sure.
    let c = RunningNode::start(another(&at).await).await;
    assert_eq!((c.nodes.alive(), c.nodes.is_alone()), (2, false));
    c.sees(b, Some(NodeState::Down)).await;
    let id = c.nodes.this();
    c.stop().await;
    a.sees(id, None).await;
    at.database()
        .query("UPDATE nodes SET seen_at = seen_at - 3600000 WHERE seen_at < (SELECT MAX(seen_at) FROM nodes)")
        .await;
    a.sees(b, None).await;
    a.is_alone().await;
    a.stop().await;
    at.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_row_is_lost_adds_it_again() {
    let at = Installation::on_postgres().await;
    let a = RunningNode::start(another(&at).await).await;
    let b = RunningNode::start(another(&at).await).await;
    let (first, second) = (a.nodes.this(), b.nodes.this());
    a.sees(second, Some(NodeState::Alive)).await;
    at.database().query("DELETE FROM nodes").await;
    let lost = Instant::now();
    while lost.elapsed() < Duration::from_secs(6) {
        assert!(!a.nodes.is_alone() && !b.nodes.is_alone());
        sleep(Duration::from_millis(2)).await;
    }
    a.sees(second, Some(NodeState::Alive)).await;
    b.sees(first, Some(NodeState::Alive)).await;
    assert_eq!((a.nodes.alive(), b.nodes.alive()), (2, 2));
    a.stop().await;
    b.stop().await;
    at.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_database_the_count_stays_and_nobody_is_certain() {
    let at = Installation::on_postgres().await;
    let a = RunningNode::start(another(&at).await).await;
    let b = RunningNode::start(another(&at).await).await;
    a.sees(b.nodes.this(), Some(NodeState::Alive)).await;
    at.database().set_read_only(true).await;
    let began = Instant::now();
    while began.elapsed() < DETECTION + Duration::from_secs(2) {
        assert_eq!((a.nodes.alive(), b.nodes.alive()), (2, 2));
        assert!(!a.nodes.is_alone() && !b.nodes.is_alone());
        sleep(Duration::from_millis(100)).await;
    }
    at.database().set_read_only(false).await;
    let began = Instant::now();
    while began.elapsed() < DETECTION {
        assert_eq!((a.nodes.alive(), b.nodes.alive()), (2, 2));
        sleep(Duration::from_millis(100)).await;
    }
    b.stop().await;
    a.is_alone().await;
    at.database().set_read_only(true).await;
    eventually("it is not certain any more", || async {
        !a.nodes.is_alone()
    })
    .await;
    assert_eq!(a.nodes.alive(), 1);
    at.database().set_read_only(false).await;
    a.is_alone().await;
    a.stop().await;
    at.remove().await;
}
