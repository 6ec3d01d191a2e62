//! Closes the calls that an earlier run left in the journal.

use super::{InFlightJournal, lock};
use estrade_model::call::Call;
use estrade_model::error::error_chain;
use estrade_store::calls::close_in_flight;
use estrade_store::{Db, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Calls per transaction. Small, because on PostgreSQL a transaction that conflicts with the writer is repeated.
const RECOVERY_BATCH: usize = 100;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Closes each recovered call at what it had used by its last snapshot; retries until the database has taken all.
pub(crate) async fn close_recovered(journal: &InFlightJournal, db: &Db, stop: &CancellationToken) {
    let mut count = 0;
    loop {
        let recovered: Arc<[Call]> = lock(&journal.recovered)
            .iter()
            .take(RECOVERY_BATCH)
            .cloned()
            .collect();
        if recovered.is_empty() {
            break;
        }
        match close(db, &recovered).await {
            Ok(closed) => {
                count += closed;
                lock(&journal.recovered).drain(..recovered.len());
                // Rewrites the files without them: once retention has removed their rows, a later start must not
                // bring them back.
                journal.wake();
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot close calls of an earlier run"
                );
                if stop.run_until_cancelled(sleep(RETRY_DELAY)).await.is_none() {
                    return;
                }
            }
        }
    }
    if count > 0 {
        tracing::warn!(count, "closed the in-flight calls of an earlier run");
    }
}

async fn close(db: &Db, calls: &Arc<[Call]>) -> Result<usize, StoreError> {
    let calls = Arc::clone(calls);
    let closed = db.transact(move |tx| {
        let calls = Arc::clone(&calls);
        Box::pin(async move { close_in_flight(tx, &calls).await })
    });
    closed.await
}
