//! So that a billion calls do not fill a disk: old calls go, their sums stay.

use crate::{Core, Result};
use estrade_model::Timestamp;
use estrade_model::call::HOUR_MS;
use estrade_store::{budgets, calls, usage};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Rows that one transaction removes.
const BATCH: u32 = 1000;
/// Hours that are older than this become days.
const HOURS_KEPT: Duration = Duration::from_hours(90 * 24);
/// What was spent in a period is kept this long after it began.
const PERIODS_KEPT: Duration = Duration::from_hours(400 * 24);

/// A call that ends so late is not corrected in its budget any more.
const SETTLED_KEPT: Duration = Duration::from_hours(7 * 24);

/// Removes calls that are too old or too many, and sums up what is old, until done or stopped.
pub async fn prune(core: &Core, stop: &CancellationToken) -> Result<()> {
    let (db, now) = (&core.db, core.now());
    let before = cutoff(core, now).await?;
    let mut last = None;
    while let Some(workspace) = calls::next_workspace_with_calls(db, last).await? {
        let mut gone = u64::from(BATCH);
        while gone == u64::from(BATCH) {
            if stop.is_cancelled() {
                return Ok(());
            }
            gone = calls::prune_calls(db, workspace, before, BATCH).await?;
        }
        last = Some(workspace);
    }
    let old = now.before(HOURS_KEPT).start_of_day();
    while !stop.is_cancelled() && usage::roll_up_day(db, old).await? {}
    let old = now.before(PERIODS_KEPT);
    while !stop.is_cancelled() && budgets::prune_budgets(db, old, BATCH).await? > 0 {}
    let old = now.before(SETTLED_KEPT);
    while !stop.is_cancelled() && budgets::prune_settled(db, old, BATCH).await? > 0 {}
    Ok(())
}

/// The moment before which calls go: by their age, or by how many came since.
async fn cutoff(core: &Core, now: Timestamp) -> Result<Timestamp> {
    let settings = &core.settings.usage;
    let days = u64::from(settings.keep_days);
    let oldest = now.before(Duration::from_hours(days.saturating_mul(24)));
    let mut room = settings.keep_calls;
    for (hour, count) in usage::calls_by_hour(&core.db, oldest).await? {
        if count > room {
            // As if they came evenly over the hour.
            let end = (hour.millis() + HOUR_MS).min(now.millis());
            let length = i128::from((end - hour.millis()).max(0));
            let kept = length * i128::from(room) / i128::from(count);
            let kept = i64::try_from(kept).unwrap_or(0);
            return Ok(Timestamp::from_millis(end - kept).max(oldest));
        }
        room -= count;
    }
    Ok(oldest)
}
