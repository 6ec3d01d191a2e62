//! The ledger: every call once, whatever the database does.

use crate::node::{
    CallSource, Node, books, call, id, kept, number, total, until_none, whole, workspace,
};
use crate::support::{Installation, on_both_backends};
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, LoggedCall, RowState};
use estrade_service::ai::usage::list_calls;
use estrade_store::StoreError;
use estrade_store::calls::{CallFilter, CallRow, Slices, write_calls};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Far above what a flush takes once the database is back: a limit for one that never ends.
const FLUSH_TIMEOUT: Duration = Duration::from_mins(1);

on_both_backends! {
    a_batch_that_is_written_twice_counts_once
    a_row_that_cannot_be_written_costs_no_other
    no_sum_is_too_large
    in_strict_mode_a_call_is_on_disk_before_its_end
    calls_wait_for_a_ledger_that_is_full
}

async fn a_batch_that_is_written_twice_counts_once(at: &Installation) {
    let who = CallSource::new();
    let row = |_| CallRow {
        call: call(&who, id(), at.core.now(), "model", whole(1)),
        slices: Slices::default(),
        row_state: RowState::Absent,
    };
    let rows: Arc<Vec<_>> = Arc::new((0..50).map(row).collect());
    for fresh in [true, false] {
        let rows = Arc::clone(&rows);
        let written = at.core.db.transact(move |tx| {
            let rows = Arc::clone(&rows);
            Box::pin(async move { write_calls(tx, id(), &[], &rows).await })
        });
        let written: Result<_, StoreError> = written.await;
        assert_eq!(written.unwrap().closed, [fresh; 50]);
    }
    let (calls, [ledger, hours, _]) = books(&at.core, &who).await;
    assert_eq!(
        (calls, ledger, hours),
        (50, whole(50).nanos(), whole(50).nanos())
    );
}

async fn a_row_that_cannot_be_written_costs_no_other(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let who = CallSource {
        workspace,
        key: id(),
    };
    let node = Node::start(at, |_| {}).await;
    for number in 0..9 {
        let mut call = call(&who, id(), at.core.now(), "mo\0del", whole(1));
        if number == 4 {
            call.latency_us = u64::MAX;
            call.provider = "\0".into();
        }
        let reservation = BudgetReservation {
            row_state: if number == 4 {
                RowState::Open
            } else {
                RowState::Absent
            },
            ..BudgetReservation::NONE
        };
        drop(node.ledger.close(reservation, call));
    }
    let all = CallFilter::default();
    let written = list_calls(&node.core, &node.ledger, &scope, workspace, &all, 9, 0).await;
    let written = written.unwrap().logs;
    let fine = |call: &&LoggedCall| call.provider == "local" && call.model == "model";
    assert_eq!(written.iter().filter(fine).count(), 8);
    node.stop().await;
}

async fn no_sum_is_too_large(at: &Installation) {
    let who = CallSource::new();
    let node = Node::start(at, |_| {}).await;
    let row = |sql| {
        at.core
            .db
            .transact(move |tx| Box::pin(tx.query(sql).execute()))
    };
    node.close(&who, id(), BudgetReservation::NONE, whole(1));
    node.ledger.flush().await;
    for (nearly, rows) in [
        ("UPDATE usage_hours SET cost_nanos = 9223372036854775800", 1),
        (
            "UPDATE usage_models SET cost_nanos = 9223372036854775800",
            2,
        ),
        ("UPDATE usage_keys SET cost_nanos = 9223372036854775800", 3),
    ] {
        let changed: Result<u64, StoreError> = row(nearly).await;
        assert_eq!(changed.unwrap(), rows);
    }
    node.close(&who, id(), BudgetReservation::NONE, whole(1));
    node.stop().await;
    let (calls, [_, hours, _]) = books(&at.core, &who).await;
    assert_eq!((calls, hours), (2, i64::MAX));
}

/// As after a failover to a server that still follows another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_costs_no_call() {
    let at = Installation::on_postgres().await;
    let (who, budget) = (CallSource::new(), total(10));
    let node = Node::start(&at, |_| {}).await;
    let (paid, reservation) = node.admit(&who, Some(&budget)).await.unwrap();
    at.database().set_read_only(true).await;
    node.close(&who, paid, reservation, whole(1));
    node.close(&who, id(), BudgetReservation::NONE, whole(1));
    sleep(Duration::from_millis(500)).await;
    at.database().set_read_only(false).await;
    let written = timeout(FLUSH_TIMEOUT, node.ledger.flush());
    written.await.unwrap();
    node.stop().await;
    let (calls, [ledger, hours, spent]) = books(&at.core, &who).await;
    assert_eq!(
        (calls, ledger, hours, spent),
        (2, whole(2).nanos(), whole(2).nanos(), whole(1).nanos())
    );
    at.remove().await;
}

async fn in_strict_mode_a_call_is_on_disk_before_its_end(at: &Installation) {
    let who = CallSource::new();
    let node = Node::start(at, |usage| {
        usage.strict = true;
        usage.deadline = Duration::from_millis(600);
    })
    .await;
    let (id, reservation) = node.admit(&who, None).await.unwrap();
    assert_eq!(reservation.row_state, RowState::Open);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await,
        1
    );
    let call = call(&who, id, at.core.now(), "model", whole(1));
    node.ledger.close(reservation, call).unwrap().await;
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE NOT open").await,
        1
    );
    // What is open when the server dies is closed by another.
    node.admit(&who, None).await.unwrap();
    node.die().await;
    let heir = Node::start(at, |usage| usage.deadline = Duration::from_millis(600)).await;
    until_none(&at.core, "SELECT COUNT(*) FROM ledger_nodes").await;
    heir.stop().await;
    assert_eq!(
        number(
            &at.core,
            "SELECT COUNT(*) FROM calls WHERE status = 500 AND partial"
        )
        .await,
        1
    );
}

async fn calls_wait_for_a_ledger_that_is_full(at: &Installation) {
    let who = CallSource::new();
    let node = Node::start(at, |usage| {
        usage.queue = 3;
        usage.batch = Duration::from_hours(1);
    })
    .await;
    for _ in 0..3 {
        let (id, reservation) = node.admit(&who, None).await.unwrap();
        node.close(&who, id, reservation, whole(1));
    }
    assert_eq!(
        node.admit(&who, None).await,
        Err(AdmissionError::Unavailable)
    );
    // Refusals come without end, and none of them costs anything.
    for _ in 0..5 {
        node.close(&who, id(), BudgetReservation::NONE, Amount::ZERO);
    }
    assert_eq!((node.ledger.unwritten(), node.ledger.unrecorded()), (3, 5));
    node.close(&who, id(), BudgetReservation::NONE, whole(1));
    assert_eq!(node.ledger.unwritten(), 4);
    node.ledger.flush().await;
    node.admit(&who, None).await.unwrap();
    node.close(&who, id(), BudgetReservation::NONE, Amount::ZERO);
    node.stop().await;
    assert_eq!(kept(&at.core).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_call_waits_for_a_silent_database_only_so_long() {
    let at = Installation::on_postgres().await;
    let who = CallSource::new();
    let node = Node::start(&at, |usage| usage.strict = true).await;
    let (id, reservation) = node.admit(&who, None).await.unwrap();
    let silence = "DO $$ BEGIN LOCK TABLE calls; PERFORM pg_sleep(10); END $$";
    let closes = async {
        sleep(Duration::from_millis(300)).await;
        let call = call(&who, id, at.core.now(), "model", whole(1));
        let on_disk = node.ledger.close(reservation, call).unwrap();
        let on_disk = timeout(Duration::from_secs(8), on_disk).await;
        assert_eq!(on_disk, Ok(false), "it says so before the database does");
    };
    tokio::join!(at.database().query(silence), closes);
    // It is written all the same, and the next one does not wait.
    node.ledger.flush().await;
    let written = "SELECT COUNT(*) FROM calls WHERE NOT open";
    assert_eq!(number(&at.core, written).await, 1);
    let (id, reservation) = node.admit(&who, None).await.unwrap();
    let call = call(&who, id, at.core.now(), "model", whole(1));
    assert!(node.ledger.close(reservation, call).unwrap().await);
    node.stop().await;
    at.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_database_that_says_nothing() {
    let at = Installation::on_postgres().await;
    let (who, budget) = (CallSource::new(), total(10));
    let node = Node::start(&at, |usage| usage.strict = true).await;
    let silence = "DO $$ BEGIN LOCK TABLE ledger_nodes; PERFORM pg_sleep(20); END $$";
    let asks = async {
        sleep(Duration::from_millis(300)).await;
        let refused = timeout(Duration::from_secs(18), node.admit(&who, Some(&budget))).await;
        assert_eq!(refused.unwrap().unwrap_err(), AdmissionError::Unavailable);
        // Refusals do not even wait in strict mode.
        let refused = call(&who, id(), at.core.now(), "model", Amount::ZERO);
        assert!(
            node.ledger
                .close(BudgetReservation::NONE, refused)
                .is_none()
        );
    };
    tokio::join!(at.database().query(silence), asks);
    let (id, reservation) = node.admit(&who, Some(&budget)).await.unwrap();
    node.close(&who, id, reservation, whole(1));
    node.stop().await;
    assert_eq!(books(&at.core, &who).await.1, [whole(1).nanos(); 3]);
    at.remove().await;
}
