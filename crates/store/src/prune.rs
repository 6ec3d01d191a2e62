//! Removing what has ended, a bounded piece at a time, so that no backlog holds up the writer.
//!
//! Each table's `prune_…` is in the file of its noun; this is what they share.

use crate::{Db, StoreError};
use estrade_model::Timestamp;

/// Runs one `DELETE` of at most `most` (`$2`) rows from before a moment (`$1`).
pub(crate) async fn prune(
    db: &Db,
    sql: &'static str,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move { tx.query(sql).bind(before).bind(limit).execute().await })
    })
    .await
}
