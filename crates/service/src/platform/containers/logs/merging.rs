//! Compaction: merges small blocks into large ones. An instance that always writes a little makes a block
//! every second, each of which has more overhead than lines.
//!
//! Only blocks that are old enough are merged: no lines are stored beside them any more, and followers are
//! past them. A follower that resumes after that long may get lines of a block again, but misses none.

use super::shared::ContainerLogs;
use crate::{Core, Result};
use estrade_logs::{join, nanos, small_runs};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_store::log_blocks::{self, BlockSize};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Blocks are left alone for so long.
const MIN_AGE: Duration = Duration::from_hours(1);
/// Blocks that are older stay as they are: there was time for them.
const MAX_AGE: Duration = Duration::from_hours(25);
/// Blocks of a project that are looked at in one go.
const MAX_BLOCKS: u32 = 10_000;

/// Merges the small blocks of all projects, until done or stopped.
pub async fn merge(core: &Core, logs: &ContainerLogs, stop: &CancellationToken) -> Result<()> {
    let mut last = None;
    while let Some(project) = log_blocks::next_logged_project(&core.db, last).await? {
        let now = core.now();
        let times = nanos(now.before(MAX_AGE))..nanos(now.before(MIN_AGE));
        let sizes = log_blocks::list_sizes(&core.db, project.id, times, MAX_BLOCKS).await?;
        for group in small_runs(&sizes) {
            if stop.is_cancelled() {
                return Ok(());
            }
            // One that cannot be read is no reason to leave out the others.
            if let Err(error) = merge_group(core, logs, project.id, group).await {
                let project = project.id;
                tracing::warn!(%project, error = error_chain(&error), "cannot merge blocks of logs");
            }
        }
        last = Some(project.id);
    }
    Ok(())
}

async fn merge_group(
    core: &Core,
    logs: &ContainerLogs,
    project: ProjectId,
    group: &[BlockSize],
) -> Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return Ok(());
    };
    let range = (first.number, last.number);
    let blocks = log_blocks::list_blocks_of(&core.db, project, &first.instance, range).await?;
    let mut merged = Vec::new();
    for (batch, number) in join(&blocks)? {
        let block = batch.seal_as(project, first.release, &first.instance)?;
        merged.extend(block.map(|block| (number, block)));
    }
    let count = blocks.len();
    if merged.len() == count {
        return Ok(());
    }
    let merged = Arc::new(merged);
    let _alone = logs.blocks.write().await;
    let replaced = core.db.transact(move |tx| {
        let merged = Arc::clone(&merged);
        Box::pin(async move { log_blocks::replace_blocks(tx, &merged, range, count).await })
    });
    Ok(replaced.await?)
}
