//! Group commit: one task writes the rows of all calls, many per transaction.
//!
//! Closed rows wait up to the batch delay for others; a row that a caller waits for (open rows, strict mode, flushes)
//! ends the wait. While a batch is being committed the next one fills, so throughput does not depend on the latency of
//! a commit. A batch is repeated until it is on disk, which is safe because only rows that a transaction really
//! changed are counted; an outage of the database loses nothing and blocks only admission.

use crate::batch::Batch;
use crate::ledger::Ledger;
use estrade_model::error::error_chain;
use estrade_store::StoreError;
use estrade_store::calls::{self, Written};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Entries per transaction: bounds how long other writers of the database wait.
const MAX_BATCH_ROWS: usize = 2000;
/// Exponential backoff between tries of a batch.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long batches are tried when the server stops while the database is away.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes until `stop`, and then what is left.
pub(crate) async fn run(ledger: &Arc<Ledger>, stop: &CancellationToken) {
    let mut end = None;
    loop {
        if let Some(since) = stop.run_until_cancelled(ledger.queue.not_empty()).await {
            // The delay counts from the oldest entry: rows that came during the last commit have waited already.
            tokio::select! {
                () = sleep_until(since + ledger.settings().batch) => {}
                () = ledger.queue.urgent() => {}
                () = stop.cancelled() => {}
            }
        }
        let entries = ledger.queue.take();
        if entries.is_empty() && stop.is_cancelled() {
            return;
        }
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let chunk: Vec<_> = entries.by_ref().take(MAX_BATCH_ROWS).collect();
            write_until_done(ledger, Batch::new(ledger, chunk), stop, &mut end).await;
        }
        ledger.queue.finish_round();
    }
}

/// Retries a batch until it is on disk; after `stop` only until [`SHUTDOWN_TIMEOUT`].
async fn write_until_done(
    ledger: &Arc<Ledger>,
    batch: Batch,
    stop: &CancellationToken,
    end: &mut Option<Instant>,
) {
    let mut delay = MIN_RETRY_DELAY;
    let mut waiting = vec![batch];
    while let Some(batch) = waiting.pop() {
        match write(ledger, &batch).await {
            Ok(written) => batch.complete(ledger, &written),
            // Some row can never be written: bisect until it is alone, so that it costs no other row.
            Err(error) if error.is_about_values() => {
                if batch.len() > 1 {
                    waiting.extend(batch.split());
                    continue;
                }
                tracing::error!(error = error_chain(&error), "a call cannot be written");
                batch.abandon(ledger);
            }
            // Everything else is transient, or an administrator repairs it.
            Err(error) => {
                if stop.is_cancelled() {
                    let end = *end.get_or_insert_with(|| Instant::now() + SHUTDOWN_TIMEOUT);
                    if Instant::now() >= end {
                        let calls = batch.len();
                        let kept = batch.defer_to_next_start(ledger);
                        tracing::error!(
                            calls,
                            kept,
                            "calls were not written, some are kept for the next start: \
                             the database is not there"
                        );
                        continue;
                    }
                }
                tracing::warn!(
                    error = error_chain(&error),
                    calls = batch.len(),
                    "cannot write calls yet"
                );
                waiting.push(batch);
                sleep(delay).await;
                delay = (delay * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

async fn write(ledger: &Arc<Ledger>, batch: &Batch) -> Result<Written, StoreError> {
    if batch.len() == 0 {
        return Ok(Written {
            alive: true,
            closed: Vec::new(),
        });
    }
    let rows = (Arc::clone(&batch.open), Arc::clone(&batch.closed));
    let node = batch.node;
    let written = ledger.context.db.transact(move |tx| {
        let (open, closed) = (Arc::clone(&rows.0), Arc::clone(&rows.1));
        Box::pin(async move { calls::write_calls(tx, node, &open, &closed).await })
    });
    written.await
}
