//! Keeps what this server has leased, gives back what it does not use, and settles what servers
//! that died have left.

use super::failure_detector::FailureDetector;
use super::ledger::Ledger;
use crate::{Error, Result};
use estrade_model::Timestamp;
use estrade_model::call::NodeId;
use estrade_model::error::error_chain;
use estrade_store::budgets;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

/// How often to look at least.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Calls or slices that one transaction settles.
const SETTLE_BATCH: u32 = 500;
/// Slices that one transaction gives back: who needs one of them waits no longer than that.
const RETURN_BATCH: usize = 100;
/// After this time without a call that needs it, a server needs no deadline.
const DEREGISTER_DELAY: Duration = Duration::from_secs(30);

/// Looks after leases until `stop`.
pub(super) async fn run(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    // Beside each other: whoever has much to tidy up keeps what it has meanwhile.
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

/// Renews the deadline; what fails is tried again at the next look.
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

/// Gives back what this server does not use, and settles what others left.
async fn reclaim_until(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    let mut ticks = ticker(poll_interval(ledger));
    let mut detector = FailureDetector::default();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let idle = ledger.core.now().before(ledger.settings().idle);
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

/// Gives everything back; what calls still hold is settled after the deadline.
pub(super) async fn release_all(ledger: &Arc<Ledger>) {
    let given = return_idle_slices(ledger, ledger.core.now()).await;
    report("give back parts of budgets", given);
    report("leave the ledger", deregister(ledger).await);
}

async fn renew(ledger: &Arc<Ledger>) -> Result<()> {
    let now = ledger.core.now();
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
    let renewed = ledger.core.db.transact(move |tx| {
        Box::pin(async move { Ok::<_, Error>(budgets::renew_node(tx, node, deadline).await?) })
    });
    if !renewed.await? {
        tracing::warn!("this server was taken for dead; what it had leased is settled");
        replace_node(ledger, node)?;
    }
    Ok(())
}

/// Goes on as a server that has nothing, when it has nothing.
async fn deregister(ledger: &Arc<Ledger>) -> Result<()> {
    if !is_idle(ledger) {
        return Ok(());
    }
    let node = ledger.slices().node;
    // First, so that who comes now begins as the new one.
    replace_node(ledger, node)?;
    let removed = ledger.core.db.transact(move |tx| {
        Box::pin(async move { Ok::<_, Error>(budgets::remove_node(tx, node).await?) })
    });
    removed.await
}

fn is_idle(ledger: &Ledger) -> bool {
    ledger.open_calls() == 0 && ledger.slices().is_empty()
}

fn replace_node(ledger: &Ledger, node: NodeId) -> Result<()> {
    let new = ledger.core.new_id()?;
    ledger.slices().replace_node(node, new);
    Ok(())
}

async fn return_idle_slices(ledger: &Arc<Ledger>, unused_since: Timestamp) -> Result<()> {
    loop {
        let now = ledger.core.now();
        let idle = ledger
            .slices()
            .begin_return(unused_since, now, RETURN_BATCH);
        if idle.slices.is_empty() {
            return Ok(());
        }
        let ids = Arc::new(idle.slices.clone());
        let returned = ledger.core.db.transact(move |tx| {
            let ids = Arc::clone(&ids);
            Box::pin(async move { Ok::<_, Error>(budgets::return_slices(tx, &ids).await?) })
        });
        returned.await?;
        ledger.slices().remove(&idle.slices);
    }
}

async fn settle_dead_nodes(ledger: &Arc<Ledger>, detector: &mut FailureDetector) -> Result<()> {
    let (db, now) = (&ledger.core.db, ledger.core.now());
    let own = ledger.slices().node;
    let mut nodes = budgets::list_nodes(db).await?;
    nodes.retain(|node| node.id != own);
    if nodes.iter().any(|node| node.deadline < now) {
        budgets::touch_ended(db, now).await?;
    }
    let mut dead = detector.observe(&nodes, ledger.settings().deadline, Instant::now());
    dead.retain(|node| node.deadline < now);
    for node in dead {
        let settle = || {
            db.transact(move |tx| {
                Box::pin(async move {
                    Ok::<_, Error>(budgets::settle_node(tx, node, now, SETTLE_BATCH).await?)
                })
            })
        };
        while !settle().await? {}
        tracing::info!("settled what a server that died had leased");
    }
    Ok(())
}

/// What fails is done again at the next look; the log says so.
fn report(what: &'static str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(error = error_chain(&error), "cannot {what}");
    }
}
