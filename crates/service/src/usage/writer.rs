//! The one task that writes calls: what waits, in batches, until it is on disk.

use super::batch::Batch;
use super::ledger::Ledger;
use super::watch::Lookout;
use estrade_model::error::causes;
use estrade_store::StoreError;
use estrade_store::calls::{self, Writing, Written};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Entries that one transaction writes: other writers of the database wait no longer than that.
const CHUNK: usize = 2000;
/// How long to wait before a batch is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// For how long the last batch is tried when the server stops without a database.
const LAST_TRIES: Duration = Duration::from_secs(10);

/// Writes what is closed, opened and under way until `stop`, and then what is left.
pub(super) async fn run(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    let mut end = None;
    let mut lookout = Lookout::new();
    loop {
        let something = async {
            tokio::select! {
                () = rows(ledger) => {}
                () = lookout.due(&ledger.watch) => {}
            }
        };
        let stops = stop.run_until_cancelled(something).await.is_none();
        // First: what ends meanwhile is in both rather than in neither.
        let mut under_way = lookout.look(ledger, stops).await;
        let entries = ledger.queue.take();
        let is_last = stops && entries.is_empty();
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() || under_way.is_some() {
            let chunk: Vec<_> = entries.by_ref().take(CHUNK).collect();
            // With the last of them: what is under way no longer is in one of these.
            let under_way = under_way.take_if(|_| entries.peek().is_none());
            let batch = Batch::of(ledger, chunk, under_way);
            write_until_done(ledger, batch, stop, &mut end).await;
        }
        if is_last {
            return;
        }
    }
}

/// Returns when there are rows to write.
async fn rows(ledger: &Ledger) {
    let since = ledger.queue.some().await;
    // They wait for company, unless somebody waits for them. Those that came while others were written have
    // waited already.
    tokio::select! {
        () = sleep_until(since + ledger.settings().batch) => {}
        () = ledger.queue.urgent() => {}
    }
}

/// Writes a batch, however long it takes; when the server stops, only for a while.
async fn write_until_done(
    ledger: &Arc<Ledger>,
    batch: Batch,
    stop: &CancellationToken,
    end: &mut Option<Instant>,
) {
    let mut pause = FIRST_PAUSE;
    let mut waiting = vec![batch];
    while let Some(batch) = waiting.pop() {
        match write(ledger, &batch).await {
            Ok(written) => batch.finish(ledger, &written),
            // Something in it can never be written: halve it until that one is alone.
            Err(error) if error.is_about_values() => {
                if batch.len() > 1 {
                    waiting.extend(batch.halves());
                    continue;
                }
                tracing::error!(error = causes(&error), "a call cannot be written");
                let (batch, rest) = batch.without_under_way();
                waiting.extend(rest);
                batch.give_up(ledger);
            }
            // Everything else passes, or somebody mends it.
            Err(error) => {
                if stop.is_cancelled() {
                    let end = *end.get_or_insert_with(|| Instant::now() + LAST_TRIES);
                    if Instant::now() >= end {
                        let calls = batch.len();
                        tracing::error!(calls, "calls were not written: the database is not there");
                        batch.give_up(ledger);
                        continue;
                    }
                }
                tracing::warn!(
                    error = causes(&error),
                    calls = batch.len(),
                    "cannot write calls yet"
                );
                waiting.push(batch);
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn write(ledger: &Arc<Ledger>, batch: &Batch) -> Result<Written, StoreError> {
    if batch.is_empty() {
        return Ok(Written {
            alive: true,
            closed: Vec::new(),
        });
    }
    let rows = (Arc::clone(&batch.open), Arc::clone(&batch.closed));
    let (node, under_way) = (batch.node, batch.under_way.clone());
    let written = ledger.core.db.transact(move |tx| {
        let (open, closed) = (Arc::clone(&rows.0), Arc::clone(&rows.1));
        let under_way = under_way.clone();
        Box::pin(async move {
            let writing = Writing {
                node,
                open: &open,
                closed: &closed,
                under_way: under_way.as_deref(),
            };
            calls::write_calls(tx, writing).await
        })
    });
    written.await
}
