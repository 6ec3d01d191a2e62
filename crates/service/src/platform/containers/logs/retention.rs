//! How much of the logs is kept.

use crate::settings::LOG_RETENTION;
use crate::{Core, Result};
use estrade_logs::nanos;
use estrade_store::log_blocks;
use tokio_util::sync::CancellationToken;

/// Blocks that one transaction removes: a backlog never holds up the writer for long.
const BATCH: u32 = 500;

/// A plan with more memory than this, in MB, keeps more.
const SMALL_MEMORY_MB: u64 = 1024;
/// What the logs of a project may take in the database, on a small plan and on others.
const MAX_SMALL_PLAN_BYTES: i64 = 16 << 20;
const MAX_LARGE_PLAN_BYTES: i64 = 64 << 20;

/// Removes what is too old, and of each project what is too much, until done or stopped.
pub async fn prune(core: &Core, stop: &CancellationToken) -> Result<()> {
    let (db, oldest) = (&core.db, nanos(core.now().before(LOG_RETENTION)));
    let mut last = None;
    while let Some(project) = log_blocks::next_logged_project(db, last).await? {
        let mut excess = project.size - room(core, &project.plan);
        while excess > 0 && !stop.is_cancelled() {
            let freed = log_blocks::prune_by_size(db, project.id, excess, BATCH).await?;
            if freed == 0 {
                break;
            }
            excess -= freed;
        }
        while log_blocks::prune_by_age(db, project.id, oldest, BATCH).await? == u64::from(BATCH) {
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        last = Some(project.id);
    }
    Ok(())
}

/// What the logs of a project on this plan may take; a plan that is gone counts as small.
fn room(core: &Core, plan: &str) -> i64 {
    match core.settings.plans.get(plan) {
        Some(plan) if plan.memory_mb > SMALL_MEMORY_MB => MAX_LARGE_PLAN_BYTES,
        _ => MAX_SMALL_PLAN_BYTES,
    }
}
