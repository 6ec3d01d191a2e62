//! Leases of this server's node: renewal, return of idle slices, and settlement of dead nodes.
//!
//! A node that stops renewing its deadline is settled by any other server: its open rows are closed at their
//! reservations and its slices are dissolved. Invariant: a settled node can open no call any more, which the database
//! checks in the transaction that opens calls. So a node that was only slow may lose its slices, but never spends
//! money that was given to another; it goes on as a new node.

use crate::error::LedgerError;
use crate::ledger::Ledger;
use estrade_model::Timestamp;
use estrade_model::call::LedgerNodeId;
use estrade_model::error::error_chain;
use estrade_store::budgets::{self, LedgerNode};
use estrade_store::failure_detector::FailureDetector;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Calls or slices per transaction of a settlement.
const SETTLE_BATCH: u32 = 500;
/// Slices per transaction of a return: bounds how long a caller waits that needs one of them.
const RETURN_BATCH: usize = 100;
/// A node without calls for so long is removed, so that an idle server writes nothing.
const DEREGISTER_DELAY: Duration = Duration::from_secs(30);

pub(crate) async fn run(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    // Concurrently: a long settlement must not delay the renewal of our own deadline.
    tokio::join!(renew_until(ledger, stop), reclaim_until(ledger, stop));
}

fn poll_interval(ledger: &Ledger) -> Duration {
    let often = ledger.settings().deadline / 4;
    MAX_POLL_INTERVAL.min(often).max(Duration::from_millis(10))
}

fn ticker(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Renews the deadline at a third of its duration; a failure is retried at the next tick.
async fn renew_until(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    let (deadline, every) = (ledger.settings().deadline, poll_interval(ledger));
    let (mut ticks, mut renewed) = (ticker(every), Instant::now());
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = Instant::now();
        if now - renewed + every >= deadline / 3 {
            let kept = renew(ledger).await;
            if kept.is_ok() {
                renewed = now;
            }
            report("keep what was leased of budgets", kept);
        }
    }
}

/// Returns idle slices and settles dead nodes.
async fn reclaim_until(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    let mut ticks = ticker(poll_interval(ledger));
    let mut detector = FailureDetector::default();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let idle = ledger.context.now().before(ledger.settings().idle);
        report(
            "give back parts of budgets",
            return_idle_slices(ledger, idle).await,
        );
        let settled = settle_dead_nodes(ledger, &mut detector).await;
        if settled.is_err() {
            detector = FailureDetector::default();
        }
        report("settle what a server left", settled);
    }
}

/// Returns all slices and removes the node. Slices of calls that are still open are settled after the deadline.
pub(crate) async fn release_all(ledger: &Arc<Ledger>) {
    let given = return_idle_slices(ledger, ledger.context.now()).await;
    report("give back parts of budgets", given);
    report("leave the ledger", deregister(ledger).await);
}

async fn renew(ledger: &Arc<Ledger>) -> Result<(), LedgerError> {
    let now = ledger.context.now();
    let (node, unused) = {
        let slices = ledger.slices();
        if !slices.registered {
            return Ok(());
        }
        (slices.node, slices.active.after(DEREGISTER_DELAY) < now)
    };
    if unused && is_idle(ledger) {
        return deregister(ledger).await;
    }
    let deadline = now.after(ledger.settings().deadline);
    let renewed = ledger
        .context
        .db
        .transact(move |tx| Box::pin(async move { budgets::renew_node(tx, node, deadline).await }));
    if !renewed.await? {
        tracing::warn!("this server was taken for dead; what it had leased is settled");
        replace_node(ledger, node)?;
    }
    Ok(())
}

/// Removes the node, if it has neither slices nor open calls.
async fn deregister(ledger: &Arc<Ledger>) -> Result<(), LedgerError> {
    if !is_idle(ledger) {
        return Ok(());
    }
    let node = ledger.slices().node;
    // First, so that a call that comes now registers the new node and does not use the removed one.
    replace_node(ledger, node)?;
    let removed = ledger
        .context
        .db
        .transact(move |tx| Box::pin(async move { budgets::remove_node(tx, node).await }));
    Ok(removed.await?)
}

fn is_idle(ledger: &Ledger) -> bool {
    ledger.open_calls() == 0 && ledger.slices().is_empty()
}

fn replace_node(ledger: &Ledger, node: LedgerNodeId) -> Result<(), LedgerError> {
    let new = ledger.context.new_id()?;
    ledger.slices().replace_node(node, new);
    Ok(())
}

async fn return_idle_slices(
    ledger: &Arc<Ledger>,
    unused_since: Timestamp,
) -> Result<(), LedgerError> {
    loop {
        let now = ledger.context.now();
        let idle = ledger
            .slices()
            .begin_return(unused_since, now, RETURN_BATCH);
        if idle.slices.is_empty() {
            return Ok(());
        }
        let ids = Arc::new(idle.slices.clone());
        let returned = ledger.context.db.transact(move |tx| {
            let ids = Arc::clone(&ids);
            Box::pin(async move { budgets::return_slices(tx, &ids).await })
        });
        returned.await?;
        ledger.slices().remove(&idle.slices);
    }
}

async fn settle_dead_nodes(
    ledger: &Arc<Ledger>,
    detector: &mut FailureDetector<LedgerNodeId, Timestamp>,
) -> Result<(), LedgerError> {
    let (db, now) = (&ledger.context.db, ledger.context.now());
    let own = ledger.slices().node;
    let mut nodes = budgets::list_nodes(db).await?;
    nodes.retain(|node| node.id != own);
    if nodes.iter().any(|node| node.deadline < now) {
        budgets::touch_ended(db, now).await?;
    }
    let markers = nodes.iter().map(|node| (node.id, node.deadline));
    let dead = detector.observe(markers, ledger.settings().deadline, Instant::now());
    let is_dead = |node: &LedgerNode| dead.contains(&node.id) && node.deadline < now;
    for node in nodes.into_iter().filter(is_dead) {
        let settle = || {
            db.transact(move |tx| {
                Box::pin(async move { budgets::settle_node(tx, node, now, SETTLE_BATCH).await })
            })
        };
        while !settle().await? {}
        tracing::info!("settled what a server that died had leased");
    }
    Ok(())
}

/// Logs a failure; the work is repeated at the next tick.
fn report(what: &'static str, result: Result<(), LedgerError>) {
    if let Err(error) = result {
        tracing::warn!(error = error_chain(&error), "cannot {what}");
    }
}
