//! Reading lines that were stored.

use super::shared::ContainerLogs;
use super::stored::find;
use crate::{Core, Result, Scope, platform::projects};
use estrade_logs::{Cursor, LineFilter, SelectedLines, StoredLine};
use estrade_model::ReleaseId;
use estrade_model::log::{Direction, Since};
use estrade_store::log_blocks::{self, BlockRange, LogBlock};
use std::sync::Arc;

/// Default number of lines of one response.
pub(super) const LINES: u32 = 1000;
/// The most that can be requested.
const MAX_LINES: u32 = 5000;
/// Blocks that one query reads.
pub(super) const BLOCKS: u32 = 16;
/// Bytes that one request looks through. Lines that repeat compress so well that what a project may keep
/// can be much more than that.
pub(super) const MAX_SCANNED_BYTES: usize = 512 << 20;

const SECOND: i64 = 1_000_000_000;

/// A query for lines of a project.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// From this second on.
    pub start: Option<i64>,
    /// Up to this second, which is included.
    pub end: Option<i64>,
    /// In which order, and from which end.
    pub direction: Direction,
    /// Only those with this text in them, in whatever case.
    pub search: Option<String>,
    /// Only those of this release.
    pub release: Option<ReleaseId>,
    /// Only those of this instance, as the engine calls it.
    pub instance: Option<String>,
    /// The newest so many of them, whatever the order.
    pub last_lines: Option<u32>,
}

impl LogQuery {
    pub(super) fn filter(&self) -> LineFilter {
        let start = self.start.map_or(i64::MIN, |at| at.saturating_mul(SECOND));
        let end = self.end.map_or(i64::MAX, |at| {
            at.saturating_add(1)
                .saturating_mul(SECOND)
                .saturating_sub(1)
        });
        let mut filter = LineFilter::new(start, end, self.release, self.search.as_deref());
        filter.instance.clone_from(&self.instance);
        filter
    }

    pub(super) fn count(&self) -> u32 {
        self.last_lines.unwrap_or(LINES).min(MAX_LINES)
    }
}

/// Reads lines of a project. Every role that sees the project may read them.
pub async fn read_logs(
    core: &Core,
    logs: &ContainerLogs,
    scope: &Scope,
    project: &str,
    query: &LogQuery,
) -> Result<Vec<StoredLine>> {
    let forward = query.direction == Direction::Forward;
    let newest = !forward || query.last_lines.is_some();
    let selected = pick(
        core,
        logs,
        scope,
        project,
        query.filter(),
        query.count(),
        newest,
    )
    .await?;
    Ok(if forward {
        selected.into_lines().collect()
    } else {
        selected.into_lines().rev().collect()
    })
}

/// The lines of a project since a moment, oldest first; without one the newest. The next are those after the
/// last of them.
pub async fn read_logs_since(
    core: &Core,
    logs: &ContainerLogs,
    scope: &Scope,
    project: &str,
    since: Option<Since>,
) -> Result<Vec<StoredLine>> {
    let start = since.map_or(i64::MIN, |Since(first)| first);
    let filter = LineFilter::new(start, i64::MAX, None, None);
    let selected = pick(core, logs, scope, project, filter, LINES, since.is_none()).await?;
    Ok(selected.into_lines().collect())
}

async fn pick(
    core: &Core,
    logs: &ContainerLogs,
    scope: &Scope,
    project: &str,
    filter: LineFilter,
    count: u32,
    newest: bool,
) -> Result<SelectedLines> {
    let project = projects::find_project(core, scope, project).await?.id;
    let range = BlockRange {
        project,
        release: filter.release,
        start: filter.start,
        end: filter.end,
    };
    let filter = Arc::new(filter);
    let mut selected = SelectedLines::new(count as usize, newest);
    // Blocks that are merged between two pages would be missing in both.
    let _still = logs.blocks.read().await;
    let (mut last, mut scanned_bytes) = (None, 0);
    while scanned_bytes < MAX_SCANNED_BYTES {
        let mut blocks = if newest {
            log_blocks::list_blocks_backward(&core.db, &range, last, BLOCKS).await?
        } else {
            log_blocks::list_blocks_forward(&core.db, &range, last, BLOCKS).await?
        };
        let is_last = blocks.len() < BLOCKS as usize;
        last = blocks.last().map(|block| place(block, newest));
        let done = blocks
            .iter()
            .position(|block| selected.is_done_before(block));
        blocks.truncate(done.unwrap_or(blocks.len()));
        let (found, bytes) = find(blocks, &filter, Cursor::START).await?;
        found
            .into_iter()
            .flatten()
            .for_each(|line| selected.add(line));
        scanned_bytes += bytes;
        if is_last || done.is_some() {
            break;
        }
    }
    Ok(selected)
}

/// Where the next page begins.
fn place(block: &LogBlock, newest: bool) -> (i64, i64) {
    let at = if newest {
        block.last_at
    } else {
        block.first_at
    };
    (at, block.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_seconds_are_included() {
        let filter = |start, end| {
            let query = LogQuery {
                start,
                end,
                ..LogQuery::default()
            };
            let filter = query.filter();
            (filter.start, filter.end)
        };
        assert_eq!(filter(Some(5), Some(5)), (5_000_000_000, 5_999_999_999));
        assert_eq!(filter(None, None), (i64::MIN, i64::MAX));
        assert_eq!(filter(Some(i64::MIN), Some(i64::MAX)).0, i64::MIN);
    }

    #[test]
    fn more_than_the_most_is_the_most() {
        let count = |last_lines| {
            let query = LogQuery {
                last_lines,
                ..LogQuery::default()
            };
            query.count()
        };
        assert_eq!(
            [count(None), count(Some(7)), count(Some(u32::MAX))],
            [1000, 7, 5000]
        );
    }
}
