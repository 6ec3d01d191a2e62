//! So that a billion calls do not fill a disk: old calls go, their sums stay.

use crate::context::LedgerContext;
use estrade_model::call::HOUR_MS;
use estrade_model::{Timestamp, WorkspaceId};
use estrade_store::{StoreError, budgets, calls, usage};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Rows that one transaction removes.
const DELETE_BATCH: u32 = 1000;
/// Hours that are older than this become days.
const HOUR_RETENTION: Duration = Duration::from_hours(90 * 24);
/// What was spent in a period is kept this long after it began.
const PERIOD_RETENTION: Duration = Duration::from_hours(400 * 24);

/// A call that ends so late is not corrected in its budget any more.
const SETTLED_RETENTION: Duration = Duration::from_hours(7 * 24);

/// Removes calls that are too old or too many, and sums up what is old, until done or stopped.
pub async fn prune(context: &LedgerContext, stop: &CancellationToken) -> Result<(), StoreError> {
    let (db, now) = (&context.db, context.now());
    let settings = &context.settings;
    let days = u64::from(settings.keep_days);
    let oldest = now.before(Duration::from_hours(days.saturating_mul(24)));
    let share = share(
        usage::calls_by_workspace(db, oldest).await?,
        settings.keep_calls,
    );
    let mut last = None;
    while let Some(workspace) = calls::next_workspace_with_calls(db, last).await? {
        let before = match share {
            Some(share) => cutoff(context, workspace, oldest, share).await?,
            None => oldest,
        };
        while calls::prune_calls(db, workspace, before, DELETE_BATCH).await? {
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        last = Some(workspace);
    }
    let old = now.before(HOUR_RETENTION).start_of_day();
    while !stop.is_cancelled() && usage::roll_up_day(db, old).await? {}
    let old = now.before(PERIOD_RETENTION);
    while !stop.is_cancelled() && budgets::prune_budgets(db, old, DELETE_BATCH).await? > 0 {}
    let old = now.before(SETTLED_RETENTION);
    while !stop.is_cancelled() && budgets::prune_settled(db, old, DELETE_BATCH).await? > 0 {}
    Ok(())
}

/// How many calls a workspace may keep when not all can be: who has little keeps all of it, and who
/// has most gives first. Otherwise one of them could push out the calls of all others.
fn share(mut counts: Vec<u64>, mut room: u64) -> Option<u64> {
    counts.sort_unstable();
    let mut left = counts.len() as u64;
    for count in counts {
        let each = room / left;
        if count > each {
            return Some(each);
        }
        room -= count;
        left -= 1;
    }
    None
}

/// The moment before which the calls of a workspace go: because of their age, or because so many
/// came since.
async fn cutoff(
    context: &LedgerContext,
    workspace: WorkspaceId,
    oldest: Timestamp,
    mut room: u64,
) -> Result<Timestamp, StoreError> {
    let now = context.now();
    for (hour, count) in usage::calls_by_hour(&context.db, workspace, oldest).await? {
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

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn who_has_most_gives_first() {
        assert_eq!(share(vec![], 10), None);
        assert_eq!(share(vec![4, 6], 10), None);
        assert_eq!(share(vec![7, 6], 10), Some(5));
        assert_eq!(share(vec![1000, 3, 2], 10), Some(5));
        assert_eq!(share(vec![9, 9, 1], 11), Some(5));
        assert_eq!(share(vec![1, 1], 0), Some(0));
    }
}
