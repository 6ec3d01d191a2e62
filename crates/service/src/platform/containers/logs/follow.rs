//! Following the lines of a project as they are stored.

use super::notifier::LogSubscription;
use super::read::{BLOCKS, LogQuery, MAX_SCANNED_BYTES};
use super::shared::ContainerLogs;
use super::stored::find;
use crate::{Core, Result, Scope, platform::projects};
use estrade_logs::{Cursor, LineFilter, StoredLine};
use estrade_model::ProjectId;
use estrade_store::log_blocks;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Blocks that a follower is given at once.
const BLOCKS_AT_ONCE: u32 = 4;

/// Follows the lines of a project in the order in which they are stored: those after a line that was seen, or
/// else the newest that a query without following would give, and then those that come.
pub async fn follow_logs(
    core: &Arc<Core>,
    logs: &ContainerLogs,
    scope: &Scope,
    project: &str,
    query: &LogQuery,
    after: Option<Cursor>,
) -> Result<LogFollower> {
    let notifier = logs.notifier.subscribe();
    let project = projects::find_project(core, scope, project).await?.id;
    let filter = Arc::new(query.filter());
    let after = match after {
        Some(after) => after,
        None => before_newest(core, project, &filter, query.count()).await?,
    };
    Ok(LogFollower {
        core: Arc::clone(core),
        scope: scope.clone(),
        project,
        filter,
        after,
        notifier,
    })
}

/// The place before the newest so many lines.
async fn before_newest(
    core: &Core,
    project: ProjectId,
    filter: &Arc<LineFilter>,
    count: u32,
) -> Result<Cursor> {
    let (mut top, mut place) = (i64::MAX, None);
    let (mut missing, mut scanned_bytes) = (count as usize, 0);
    loop {
        let blocks = log_blocks::list_blocks_below(&core.db, project, top, BLOCKS).await?;
        let newest = blocks.first().map(|block| Cursor::end_of(block.number));
        let place = place.get_or_insert(newest.unwrap_or(Cursor::START));
        let is_last = blocks.len() < BLOCKS as usize;
        top = blocks.last().map_or(top, |block| block.number);
        let (found, bytes) = find(blocks, filter, Cursor::START).await?;
        scanned_bytes += bytes;
        for lines in found {
            let wanted = lines.len().min(missing);
            missing -= wanted;
            if let Some(first) = lines.len().checked_sub(wanted).and_then(|at| lines.get(at)) {
                *place = first.cursor.previous();
            }
        }
        if is_last || missing == 0 || scanned_bytes >= MAX_SCANNED_BYTES {
            return Ok(*place);
        }
    }
}

/// Reads the lines of one project as they are stored.
pub struct LogFollower {
    core: Arc<Core>,
    scope: Scope,
    project: ProjectId,
    filter: Arc<LineFilter>,
    after: Cursor,
    notifier: LogSubscription,
}

impl LogFollower {
    /// Waits for the next lines, at least one; an error once the project is gone or the caller may not
    /// see it any more.
    ///
    /// A call that is dropped while it waits loses nothing.
    pub fn next_lines(&mut self) -> BoxFuture<'_, Result<Vec<StoredLine>>> {
        Box::pin(async move {
            loop {
                // A member who was removed from the team since the stream began gets no more lines.
                self.scope = self.scope.renew(&self.core).await?;
                let project = self.project.to_string();
                projects::find_project(&self.core, &self.scope, &project).await?;
                let found = self.read().await?;
                match found {
                    Some(lines) if lines.is_empty() => {}
                    Some(lines) => return Ok(lines),
                    None => self.notifier.wait(self.project).await,
                }
            }
        })
    }

    /// The wanted lines of the next blocks; none: there are no blocks.
    async fn read(&mut self) -> Result<Option<Vec<StoredLine>>> {
        let whole = self.after.index == u32::MAX;
        let above = self.after.block.saturating_sub(i64::from(!whole));
        let db = &self.core.db;
        let blocks = log_blocks::list_blocks_above(db, self.project, above, BLOCKS_AT_ONCE).await?;
        let Some(last) = blocks.last().map(|block| block.number) else {
            return Ok(None);
        };
        let (found, _) = find(blocks, &self.filter, self.after).await?;
        self.after = Cursor::end_of(last);
        Ok(Some(found.into_iter().flatten().collect()))
    }
}
