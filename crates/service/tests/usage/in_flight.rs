//! Calls that are under way without being on record: what a server that is killed had of them is not lost.

use crate::node::{CallSource, Node, books, call, id, number, whole};
use crate::support::{Installation, on_both_backends};
use estrade_fixtures::eventually;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, CallId};
use estrade_service::ai::usage::Ledger;
use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

on_both_backends! {
    what_a_killed_server_had_in_flight_is_closed_at_what_it_took
    what_has_ended_is_in_flight_no_longer
    many_are_closed_too_and_only_once
}

/// What a relay would have under way.
type Relay = Arc<Mutex<Vec<Call>>>;

/// A server that keeps what is under way in a directory.
async fn start(at: &Installation, directory: &Path) -> (Node, Relay) {
    let relay = Relay::default();
    let asked = Arc::clone(&relay);
    let source = move || (asked.lock().unwrap().clone(), false);
    let node = Node::start_with(
        at,
        |_| {},
        async |ledger: &Ledger| {
            ledger.open_journal(directory, source).await.unwrap();
        },
    );
    (node.await, relay)
}

/// A call goes out, or has cost more by now.
fn goes_on(node: &Node, relay: &Relay, who: &CallSource, id: CallId, cost: Amount) {
    let mut calls = relay.lock().unwrap();
    calls.retain(|call| call.id != id);
    let mut call = call(who, id, node.core.now(), "model", cost);
    (call.status, call.partial) = (0, true);
    calls.push(call);
    drop(calls);
    node.ledger.notify_in_flight();
}

fn ends(node: &Node, relay: &Relay, who: &CallSource, id: CallId, cost: Amount) {
    node.close(who, id, BudgetReservation::NONE, cost);
    relay.lock().unwrap().retain(|call| call.id != id);
}

/// The newest of what is kept.
fn kept(directory: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    // After a hash comes a number that rises.
    files
        .max_by_key(|content| content.get(32..40).map(<[u8]>::to_vec))
        .unwrap_or_default()
}

/// Waits until something else is kept than before.
async fn until_kept(directory: &Path, before: &[u8]) -> Vec<u8> {
    let mut now = Vec::new();
    eventually("something else is kept", || {
        now = kept(directory);
        ready(now != before)
    })
    .await;
    now
}

/// Longer than it takes until nothing is written any more.
async fn a_while() {
    sleep(Duration::from_millis(400)).await;
}

async fn what_a_killed_server_had_in_flight_is_closed_at_what_it_took(at: &Installation) {
    let (who, place) = (CallSource::new(), TempDir::new().unwrap());
    let (node, relay) = start(at, place.path()).await;
    let ids = [id(), id(), id()];
    for id in ids {
        goes_on(&node, &relay, &who, id, whole(1));
    }
    let first = until_kept(place.path(), &[]).await;
    goes_on(&node, &relay, &who, ids[0], whole(5));
    until_kept(place.path(), &first).await;
    ends(&node, &relay, &who, ids[1], whole(10));
    node.ledger.flush().await;
    // As long as its end may not be on disk, one that has ended is kept as well.
    assert_eq!(books(&at.core, &who).await.0, 1);
    node.die().await;
    let (heir, _) = start(at, place.path()).await;
    until_closed(at, 2).await;
    // Five for the one that went on, ten for the one that had ended, one for the one that said nothing.
    let sum = whole(16).nanos();
    assert_eq!(books(&at.core, &who).await, (3, [sum, sum, 0]));
    let closed = "SELECT COUNT(*) FROM calls WHERE status = 500 AND partial AND NOT open";
    assert_eq!(number(&at.core, closed).await, 2);
    heir.stop().await;
    let (heir, _) = start(at, place.path()).await;
    a_while().await;
    assert_eq!(books(&at.core, &who).await, (3, [sum, sum, 0]));
    heir.stop().await;
}

/// Waits until so many were closed that were left.
async fn until_closed(at: &Installation, count: i64) {
    let closed = "SELECT COUNT(*) FROM calls WHERE status = 500 AND NOT open";
    eventually("what was left is closed", || async {
        number(&at.core, closed).await >= count
    })
    .await;
}

async fn what_has_ended_is_in_flight_no_longer(at: &Installation) {
    let (who, place) = (CallSource::new(), TempDir::new().unwrap());
    let (node, relay) = start(at, place.path()).await;
    let id = id();
    goes_on(&node, &relay, &who, id, whole(1));
    until_kept(place.path(), &[]).await;
    a_while().await;
    let quiet = kept(place.path());
    a_while().await;
    assert_eq!(kept(place.path()), quiet, "nothing had changed");
    relay.lock().unwrap().clear();
    a_while().await;
    // Its end was not reported, and nothing waits to be written: then it is not kept.
    node.die().await;
    let (heir, relay) = start(at, place.path()).await;
    assert_eq!(books(&at.core, &who).await.0, 0);
    goes_on(&heir, &relay, &who, id, whole(1));
    ends(&heir, &relay, &who, id, whole(2));
    heir.stop().await;
    let (heir, _) = start(at, place.path()).await;
    let sum = whole(2).nanos();
    assert_eq!(books(&at.core, &who).await, (1, [sum, sum, 0]));
    heir.stop().await;
}

async fn many_are_closed_too_and_only_once(at: &Installation) {
    let (who, place) = (CallSource::new(), TempDir::new().unwrap());
    let (node, relay) = start(at, place.path()).await;
    let calls = || Call {
        status: 0,
        ..call(&who, id(), node.core.now(), "model", whole(1))
    };
    let calls: Vec<Call> = std::iter::repeat_with(calls).take(1200).collect();
    relay.lock().unwrap().extend(calls.iter().cloned());
    node.ledger.notify_in_flight();
    until_kept(place.path(), &[]).await;
    // Half of them end, and nobody has written down yet that they did.
    for call in calls.iter().step_by(2) {
        node.close(&who, call.id, BudgetReservation::NONE, whole(2));
    }
    node.ledger.flush().await;
    node.die().await;
    for _ in 0..2 {
        let copy = TempDir::new().unwrap();
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        // The second time it is as if it had been killed before it could note that it is done.
        let (heir, _) = start(at, copy.path()).await;
        until_closed(at, 600).await;
        a_while().await;
        heir.stop().await;
        let sum = whole(1800).nanos();
        assert_eq!(books(&at.core, &who).await, (1200, [sum, sum, 0]));
    }
}

/// However long the database takes, what has ended is kept until it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_ends_while_nothing_can_be_written_is_not_lost() {
    let at = Installation::on_postgres().await;
    let (who, place) = (CallSource::new(), TempDir::new().unwrap());
    let (node, relay) = start(&at, place.path()).await;
    let [ended, goes_on_id] = [id(), id()];
    goes_on(&node, &relay, &who, ended, whole(1));
    goes_on(&node, &relay, &who, goes_on_id, whole(1));
    until_kept(place.path(), &[]).await;
    at.database().set_read_only(true).await;
    ends(&node, &relay, &who, ended, whole(3));
    a_while().await;
    goes_on(&node, &relay, &who, goes_on_id, whole(2));
    a_while().await;
    node.die().await;
    at.database().set_read_only(false).await;
    let (heir, _) = start(&at, place.path()).await;
    until_closed(&at, 2).await;
    heir.stop().await;
    // What its end would have said is lost, but not what was known before.
    let sum = whole(1 + 2).nanos();
    assert_eq!(books(&at.core, &who).await, (2, [sum, sum, 0]));
    at.remove().await;
}

/// A server is stopped while its database takes nothing, and gives up: the next one writes what it could not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_written_before_the_end_is_written_after_the_next_start() {
    let at = Installation::on_postgres().await;
    let (who, place) = (CallSource::new(), TempDir::new().unwrap());
    let (node, relay) = start(&at, place.path()).await;
    let [known, unknown] = [id(), id()];
    goes_on(&node, &relay, &who, known, whole(1));
    until_kept(place.path(), &[]).await;
    at.database().set_read_only(true).await;
    ends(&node, &relay, &who, known, whole(3));
    node.close(&who, unknown, BudgetReservation::NONE, whole(4));
    node.stop().await;
    at.database().set_read_only(false).await;
    assert_eq!(books(&at.core, &who).await.0, 0);
    let (heir, _) = start(&at, place.path()).await;
    // As they ended, and not as what a killed server leaves.
    let ended = "SELECT COUNT(*) FROM calls WHERE status = 200 AND NOT partial AND NOT open";
    eventually("both are written", || async {
        number(&at.core, ended).await >= 2
    })
    .await;
    heir.stop().await;
    let sum = whole(3 + 4).nanos();
    assert_eq!(books(&at.core, &who).await, (2, [sum, sum, 0]));
    at.remove().await;
}
