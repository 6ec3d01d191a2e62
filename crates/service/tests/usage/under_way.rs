//! Calls that are under way without being on record: what a server that dies had of them is not lost.

use crate::node::{Node, PATIENCE, Who, books, bury_all, call, id, number, until_none, whole};
use crate::support::{Installation, on_both_engines};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, CallId, NodeId, OnRecord, Ticket};
use estrade_store::calls::{CallRow, Slices, UnderWay, Writing, write_calls};
use estrade_store::{StoreError, budgets};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};

on_both_engines! {
    what_a_dead_server_had_under_way_is_settled_at_what_it_took
    a_server_that_was_taken_for_dead_corrects_what_was_settled
    what_has_ended_is_under_way_no_longer
    many_are_settled_while_another_server_has_many_under_way
    a_batch_that_is_written_again_after_a_settlement_counts_once
}

const COUNT_KEPT: &str = "SELECT COUNT(*) FROM ledger_nodes WHERE under_way IS NOT NULL";

/// What a relay would have under way.
#[derive(Default)]
struct Relay {
    calls: Mutex<Vec<Call>>,
    node: Mutex<Option<NodeId>>,
}

impl Relay {
    fn beside(node: &Node) -> Arc<Self> {
        let relay = Arc::new(Self::default());
        let asked = Arc::clone(&relay);
        node.ledger.watch(move |node| {
            let calls = asked.calls.lock().unwrap().clone();
            if !calls.is_empty() {
                asked.node.lock().unwrap().get_or_insert(node);
            }
            calls
        });
        relay
    }

    /// A call goes out, or has cost more by now.
    fn goes_on(&self, node: &Node, who: &Who, id: CallId, cost: Amount) {
        let mut calls = self.calls.lock().unwrap();
        calls.retain(|call| call.id != id);
        let mut call = call(who, id, node.core.now(), "model", cost);
        call.partial = true;
        calls.push(call);
        drop(calls);
        node.ledger.goes_out();
    }

    /// It ends.
    fn ends(&self, node: &Node, who: &Who, id: CallId, cost: Amount) {
        let on_record = self.node.lock().unwrap();
        let ticket = Ticket {
            on_record: on_record.map_or(OnRecord::No, OnRecord::UnderWay),
            ..Ticket::NONE
        };
        node.close(who, id, ticket, cost);
        self.calls.lock().unwrap().retain(|call| call.id != id);
    }
}

async fn until_kept(node: &Node) {
    let kept = async {
        while number(&node.core, COUNT_KEPT).await == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, kept).await.unwrap();
}

/// Longer than it may take until something is written.
async fn a_while() {
    sleep(Duration::from_millis(400)).await;
}

async fn what_a_dead_server_had_under_way_is_settled_at_what_it_took(at: &Installation) {
    let who = Who::new();
    let deadline = Duration::from_secs(2);
    let node = Node::start(at, |usage| usage.deadline = deadline).await;
    let relay = Relay::beside(&node);
    let ids = [id(), id(), id()];
    for id in ids {
        relay.goes_on(&node, &who, id, whole(1));
    }
    until_kept(&node).await;
    relay.goes_on(&node, &who, ids[0], whole(5));
    relay.ends(&node, &who, ids[1], whole(10));
    a_while().await;
    node.die().await;
    assert_eq!(books(&at.core, &who).await.1[0], whole(10).nanos());
    let heir = Node::start(at, |usage| usage.deadline = deadline).await;
    until_none(&at.core, "SELECT COUNT(*) FROM ledger_nodes").await;
    heir.stop().await;
    // Five for the one that went on, ten for the one that had ended, one for the one that said nothing.
    let sum = whole(16).nanos();
    assert_eq!(books(&at.core, &who).await, (3, [sum, sum, 0]));
    let settled = "SELECT COUNT(*) FROM calls WHERE status = 500 AND partial AND NOT open";
    assert_eq!(number(&at.core, settled).await, 2);
}

async fn a_server_that_was_taken_for_dead_corrects_what_was_settled(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |_| {}).await;
    let relay = Relay::beside(&node);
    let [ended, goes_on] = [id(), id()];
    relay.goes_on(&node, &who, ended, whole(1));
    relay.goes_on(&node, &who, goes_on, whole(1));
    until_kept(&node).await;
    a_while().await;
    bury_all(&at.core).await;
    assert_eq!(books(&at.core, &who).await.0, 2);
    relay.ends(&node, &who, ended, whole(3));
    node.ledger.flush().await;
    let sum = whole(4).nanos();
    assert_eq!(books(&at.core, &who).await, (2, [sum, sum, 0]));
    relay.ends(&node, &who, goes_on, whole(7));
    node.stop().await;
    let sum = whole(10).nanos();
    assert_eq!(books(&at.core, &who).await, (2, [sum, sum, 0]));
}

async fn what_has_ended_is_under_way_no_longer(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |_| {}).await;
    let relay = Relay::beside(&node);
    let id = id();
    relay.goes_on(&node, &who, id, whole(1));
    until_kept(&node).await;
    relay.ends(&node, &who, id, whole(2));
    until_none(&at.core, COUNT_KEPT).await;
    // It is kept with others, as those are that never were under way for long.
    assert_eq!(number(&at.core, "SELECT COUNT(*) FROM calls").await, 0);
    node.stop().await;
    let sum = whole(2).nanos();
    assert_eq!(books(&at.core, &who).await, (1, [sum, sum, 0]));
    until_none(&at.core, "SELECT COUNT(*) FROM ledger_nodes").await;
}

async fn many_are_settled_while_another_server_has_many_under_way(at: &Installation) {
    let who = Who::new();
    let deadline = Duration::from_secs(2);
    let node = Node::start(at, |usage| usage.deadline = deadline).await;
    let relay = Relay::beside(&node);
    {
        let mut calls = relay.calls.lock().unwrap();
        calls.extend((0..1200).map(|_| call(&who, id(), node.core.now(), "model", whole(1))));
    }
    node.ledger.goes_out();
    until_kept(&node).await;
    let heir = Node::start(at, |usage| usage.deadline = deadline).await;
    let others = Relay::beside(&heir);
    let running = id();
    others.goes_on(&heir, &who, running, whole(1));
    node.die().await;
    let settled = "SELECT COUNT(*) FROM calls WHERE NOT open";
    let all = async {
        for cost in 2.. {
            others.goes_on(&heir, &who, running, whole(cost));
            others.ends(&heir, &who, id(), Amount::ZERO);
            if number(&at.core, settled).await == 1200 {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    others.ends(&heir, &who, running, whole(7));
    heir.stop().await;
    let sum = whole(1207).nanos();
    assert_eq!(books(&at.core, &who).await.1, [sum, sum, 0]);
}

/// The answer to a commit may be lost, and the server be taken for dead before it tries again.
async fn a_batch_that_is_written_again_after_a_settlement_counts_once(at: &Installation) {
    let who = Who::new();
    let node: NodeId = id();
    let row = |on_record| CallRow {
        call: call(&who, id(), at.core.now(), "model", whole(1)),
        slices: Slices::default(),
        on_record,
    };
    let under_way = OnRecord::UnderWay(node);
    let rows = [OnRecord::No, under_way, OnRecord::No, under_way].map(row);
    let kept = UnderWay::of(vec![rows[1].call.clone(), rows[3].call.clone()]);
    let (rows, kept) = (Arc::new(rows), Arc::new(kept));
    let now = at.core.now();
    let added = at
        .core
        .db
        .transact(move |tx| Box::pin(async move { budgets::add_node(tx, node, now).await }));
    Result::<_, StoreError>::unwrap(added.await);
    for fresh in [true, false] {
        let (rows, kept) = (Arc::clone(&rows), Arc::clone(&kept));
        let written = at.core.db.transact(move |tx| {
            let (rows, kept) = (Arc::clone(&rows), Arc::clone(&kept));
            Box::pin(async move {
                let writing = Writing {
                    node,
                    open: &[],
                    closed: &*rows,
                    under_way: Some(&kept),
                };
                write_calls(tx, writing).await
            })
        });
        let written = Result::<_, StoreError>::unwrap(written.await);
        assert_eq!((written.closed, written.alive), (vec![fresh; 4], fresh));
        bury_all(&at.core).await;
        let sum = whole(4).nanos();
        assert_eq!(books(&at.core, &who).await, (4, [sum, sum, 0]));
    }
}
