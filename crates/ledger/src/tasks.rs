//! The background tasks of the ledger.

use crate::journal::{recovery, writer as journal_writer};
use crate::ledger::Ledger;
use crate::{leases, writer};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

impl Ledger {
    /// Writes rows, renews leases, settles dead nodes and recovers the journal until `stop`. Then drains the queue,
    /// writes the journal a last time, and returns what was leased: in this order, because a slice can only be
    /// returned when the rows of its calls are on disk.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let journal_task = journal_writer::start(&self.journal, &self.queue);
            tokio::join!(
                writer::run(&self, &stop),
                leases::run(&self, &stop),
                recovery::close_recovered(&self.journal, &self.context.db, &stop),
            );
            journal_task.end().await;
            leases::release_all(&self).await;
        })
    }
}
