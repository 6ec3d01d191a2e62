//! Calls are read page by page, newest first, from both places where they are kept.

use super::blocks::{self, Block, EncodedCall};
use super::{MIN_FAILED_STATUS, columns};
use crate::{Db, Query, Record, Row, StoreError, Value, value};
use estrade_model::call::{Call, CallId, LoggedCall};
use estrade_model::{Id, KeyId, OwnerId, Timestamp, WorkspaceId};

/// Matching calls are counted up to here, and pages by number reach as far; cursors reach everything.
const MAX_COUNTED: u64 = 10_000;
/// Rows that one query reads: the first one about a page, so that a page of what is newest costs no more; each further
/// one more, so that a long search asks seldom.
const FIRST_ROWS_PER_READ: u32 = 64;
const MAX_ROWS_PER_READ: u32 = 1000;
/// The same of rows that are only counted, which are short.
const MAX_COUNTED_ROWS_PER_READ: u32 = 5000;
/// The same of blocks, of which each has up to two thousand calls: one, and the next to see that it does not overlap.
/// A search of twenty thousand calls comes to the last number only where blocks are short.
const FIRST_BLOCKS_PER_READ: u32 = 2;
const MAX_BLOCKS_PER_READ: u32 = 64;
/// How many times as many the next query reads, of rows and of blocks. Blocks of calls that failed lie between the
/// others and overlap them, so that the first two often do not suffice where four do.
const ROW_READ_GROWTH: u32 = 8;
const BLOCK_READ_GROWTH: u32 = 2;

/// Which calls to show.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// Not before this moment.
    pub from: Option<Timestamp>,
    /// Not after this moment.
    pub to: Option<Timestamp>,
    /// Of this model.
    pub model: Option<String>,
    /// Made with this key.
    pub key: Option<KeyId>,
    /// With this status.
    pub status: Option<u16>,
    /// Older than this call: the cursor of keyset paging, which need not exist.
    pub before: Option<CallId>,
}

impl CallFilter {
    fn shows(&self, key: KeyId, status: u16, model: &str) -> bool {
        self.key.is_none_or(|wanted| key == wanted)
            && self.status.is_none_or(|wanted| status == wanted)
            && self.model.as_deref().is_none_or(|wanted| model == wanted)
    }

    /// The status, if only calls that failed have it: these have indexes of their own.
    fn failed_status(&self) -> Option<u16> {
        self.status.filter(|status| *status >= MIN_FAILED_STATUS)
    }

    /// The first millisecond, and the one behind the last.
    fn range(&self) -> (i64, i64) {
        (
            self.from.map_or(0, Timestamp::millis),
            self.to.map_or(i64::MAX, |to| to.millis().saturating_add(1)),
        )
    }
}

/// Which calls of those that match.
#[derive(Debug, Clone, Copy)]
pub struct CallPage {
    /// How many to give.
    pub count: u32,
    /// How many to skip.
    pub skip: u64,
    /// How many of the newest calls to look at, whether they match or not.
    pub within: u32,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct FoundCalls {
    /// The page, newest first.
    pub calls: Vec<LoggedCall>,
    /// How many match among those that were looked at.
    pub matching: u64,
    /// The oldest call that was looked at, when older ones were not.
    pub stopped_at: Option<(CallId, Timestamp)>,
    /// The page that follows is of calls older than this; `None` when nothing can follow.
    pub next: Option<CallId>,
}

/// A page of a workspace's calls, newest first, and how many match. It ends where everything was looked at, or `within`
/// calls, or enough of them for the page and the count; with a cursor only the page is counted.
pub async fn list_calls(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    filter: &CallFilter,
    page: CallPage,
) -> Result<FoundCalls, StoreError> {
    let mut newest = Newest::new(db, owner, workspace, filter);
    let max_counted = match filter.before {
        Some(_) => 0,
        None => MAX_COUNTED,
    };
    let mut found = FoundCalls::default();
    let mut scanned = 0;
    let mut last = None;
    while let Some(call) = newest.next().await? {
        let is_full = found.calls.len() == page.count as usize;
        let is_counted = found.matching >= max_counted;
        let is_out_of_reach = page.skip >= MAX_COUNTED && found.matching >= MAX_COUNTED;
        if scanned == page.within || (is_full && is_counted) || is_out_of_reach {
            found.stopped_at = last;
            break;
        }
        scanned += 1;
        last = Some((call.id, call.created_at));
        match call.matching {
            Matching::No => continue,
            Matching::Counted => {}
            Matching::Whole(shown) => {
                if found.matching >= page.skip && !is_full {
                    found.calls.push(LoggedCall::from(&*shown));
                    newest.only_counts = found.calls.len() == page.count as usize;
                }
            }
        }
        found.matching += 1;
    }
    let shown = page.skip.saturating_add(found.calls.len() as u64);
    found.next = match (found.calls.last(), found.stopped_at) {
        (Some(last), _) if found.matching > shown => Some(last.id),
        (Some(last), Some(_)) if found.calls.len() == page.count as usize => Some(last.id),
        (_, stopped_at) => stopped_at.map(|(id, _)| id),
    };
    Ok(found)
}

/// A call that was looked at.
struct LookedAt {
    id: CallId,
    created_at: Timestamp,
    matching: Matching,
}

/// What there is of a call that was looked at. Of twenty thousand calls a search shows a page: to build all of them, and to
/// fetch all of their columns from a server, took most of its time.
enum Matching {
    /// The filter does not show it.
    No,
    /// It was read when the page was full.
    Counted,
    Whole(Box<Call>),
}

impl LookedAt {
    fn whole(&self) -> Option<&Call> {
        match &self.matching {
            Matching::Whole(call) => Some(call),
            Matching::No | Matching::Counted => None,
        }
    }
}

impl Record for LookedAt {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            created_at: row.take()?,
            matching: Matching::counted(row.take()?),
        })
    }
}

impl Matching {
    fn counted(is_matching: bool) -> Self {
        if is_matching { Self::Counted } else { Self::No }
    }
}

/// The calls of a workspace, newest first.
struct Newest<'db> {
    db: &'db Db,
    filter: &'db CallFilter,
    owner: OwnerId,
    workspace: WorkspaceId,
    /// The milliseconds that are looked at.
    range: (i64, i64),
    /// Only calls with smaller ids are.
    end: Value,
    before: Option<CallId>,
    /// Only calls that failed with this status are looked at, and others that share a block with them.
    failed_status: Option<u16>,
    /// Whether what is read from now on is only counted.
    only_counts: bool,
    rows: Side,
    blocks: Side,
}

/// One of the two places.
struct Side {
    /// What was read ahead: runs in the order of ids, none of them empty. A search looks at twenty thousand calls;
    /// merging the few runs that overlap costs less than sorting them into a map.
    read: Vec<Vec<LookedAt>>,
    /// Below this id nothing was read; `None` when everything was.
    next: Option<Value>,
    /// The same id, once something was read.
    last_read: Option<CallId>,
    /// What the next query reads at most.
    limit: u32,
    growth: u32,
}

impl Side {
    fn new(top: Value, limit: u32, growth: u32) -> Self {
        Self {
            read: Vec::new(),
            next: Some(top),
            last_read: None,
            limit,
            growth,
        }
    }

    fn push(&mut self, run: Vec<LookedAt>) {
        if !run.is_empty() {
            self.read.push(run);
        }
    }

    fn newest(&self) -> Option<CallId> {
        let newest = |run: &Vec<LookedAt>| run.last().map(|call| call.id);
        self.read.iter().filter_map(newest).max()
    }

    /// Takes a call, from each run that has it.
    fn pop(&mut self, id: CallId) -> Option<LookedAt> {
        let mut taken = None;
        self.read.retain_mut(|run| {
            if let Some(call) = run.pop_if(|call| call.id == id) {
                taken = Some(call);
            }
            !run.is_empty()
        });
        taken
    }

    /// A query of `limit` found `count`, the oldest of them `last`.
    fn advance(&mut self, count: usize, last: Option<CallId>, max_limit: u32) {
        if count == self.limit as usize {
            self.next = last.map(Value::from);
            self.last_read = last;
        }
        self.limit = self.limit.saturating_mul(self.growth).min(max_limit);
    }

    /// Whether the newest that is left may not have been read yet.
    fn wants_more(&self) -> bool {
        self.next.is_some() && (self.read.is_empty() || self.newest() < self.last_read)
    }
}

impl<'db> Newest<'db> {
    fn new(db: &'db Db, owner: OwnerId, workspace: WorkspaceId, filter: &'db CallFilter) -> Self {
        let range = filter.range();
        let before = filter.before.filter(|before| before.millis() < range.1);
        let end = before.map_or_else(|| top(range.1), Value::from);
        // A block that ends a little later may have begun before.
        let end_millis = before.map_or(range.1, |before| before.millis() + 1);
        let last_end = end_millis.saturating_add(blocks::SPAN_MS);
        Self {
            db,
            filter,
            owner,
            workspace,
            range,
            rows: Side::new(end.clone(), FIRST_ROWS_PER_READ, ROW_READ_GROWTH),
            blocks: Side::new(top(last_end), FIRST_BLOCKS_PER_READ, BLOCK_READ_GROWTH),
            end,
            before,
            failed_status: filter.failed_status(),
            only_counts: false,
        }
    }

    async fn next(&mut self) -> Result<Option<LookedAt>, StoreError> {
        while self.rows.wants_more() {
            self.read_rows().await?;
        }
        while self.blocks.wants_more() {
            self.read_blocks().await?;
        }
        let Some(newest) = self.rows.newest().max(self.blocks.newest()) else {
            return Ok(None);
        };
        let row = self.rows.pop(newest);
        Ok(self.blocks.pop(newest).or(row))
    }

    async fn read_rows(&mut self) -> Result<(), StoreError> {
        let mut rows = if self.only_counts {
            self.count_rows().await?
        } else {
            self.whole_rows().await?
        };
        let last = rows.last().map(|call| call.id);
        let max_limit = if self.only_counts {
            MAX_COUNTED_ROWS_PER_READ
        } else {
            MAX_ROWS_PER_READ
        };
        self.rows.advance(rows.len(), last, max_limit);
        if last.is_some_and(|last| last.millis() < self.range.0) {
            self.rows.next = None;
            rows.retain(|call| call.id.millis() >= self.range.0);
        }
        rows.reverse();
        self.rows.push(rows);
        Ok(())
    }

    async fn whole_rows(&mut self) -> Result<Vec<LookedAt>, StoreError> {
        let calls: Vec<Call> = self.query_rows(ROWS, FAILED_ROWS).fetch_all().await?;
        let look_at = |call: Call| LookedAt {
            id: call.id,
            created_at: call.created_at,
            matching: if self.filter.shows(call.key, call.status, &call.model) {
                Matching::Whole(Box::new(call))
            } else {
                Matching::No
            },
        };
        Ok(calls.into_iter().map(look_at).collect())
    }

    async fn count_rows(&mut self) -> Result<Vec<LookedAt>, StoreError> {
        let filter = self.filter;
        let rows = self.query_rows(COUNTED_ROWS, COUNTED_FAILED_ROWS);
        let rows = rows.bind(filter.key).bind(filter.status);
        rows.bind(filter.model.as_deref()).fetch_all().await
    }

    /// The next rows, by the statement for all or the one for those that failed.
    fn query_rows(&mut self, all: &'static str, failed: &'static str) -> Query<'db> {
        let end = self.rows.next.take().unwrap_or(Value::Null);
        let rows = match self.failed_status {
            None => self.db.read(all).bind(value::first_id_of(self.range.0)),
            Some(status) => self.db.read(failed).bind(status),
        };
        let rows = rows.bind(self.workspace).bind(self.owner).bind(end);
        rows.bind(self.rows.limit)
    }

    /// The calls of a block that are within the range and before the cursor.
    fn look_through(&self, block: &Block) -> Result<Vec<LookedAt>, StoreError> {
        let wanted = self.range.0..self.range.1;
        let mut calls: Vec<LookedAt> = Vec::new();
        // Where the texts of the next one are shared from.
        let mut last_shown = None;
        blocks::for_each(&block.data, |call: &EncodedCall<'_>| {
            let is_wanted = wanted.contains(&call.id.millis())
                && self.before.is_none_or(|before| call.id < before);
            if !is_wanted {
                return Some(());
            }
            let is_matching = self.filter.shows(call.key, call.status, call.model);
            let mut matching = Matching::counted(is_matching);
            if is_matching && !self.only_counts {
                let previous = last_shown.and_then(|at: usize| calls.get(at)?.whole());
                matching = Matching::Whole(Box::new(call.decode(self.workspace, previous)?));
                last_shown = Some(calls.len());
            }
            calls.push(LookedAt {
                id: call.id,
                created_at: call.created_at,
                matching,
            });
            Some(())
        })?;
        Ok(calls)
    }

    async fn read_blocks(&mut self) -> Result<(), StoreError> {
        let found = self.db.read(match self.failed_status {
            None => BLOCKS,
            Some(_) => FAILED_BLOCKS,
        });
        let found = found.bind(self.workspace).bind(self.owner);
        let found = found.bind(value::first_id_of(self.range.0));
        let found = found.bind(self.blocks.next.take().unwrap_or(Value::Null));
        let found = found.bind(self.end.clone()).bind(self.blocks.limit);
        let found: Vec<Block> = found.fetch_all().await?;
        let last = found.last().map(|block| block.last);
        self.blocks.advance(found.len(), last, MAX_BLOCKS_PER_READ);
        for block in found {
            let calls = self.look_through(&block)?;
            self.blocks.push(calls);
        }
        Ok(())
    }
}

macro_rules! from_rows {
    () => {
        " FROM calls c JOIN workspaces w ON w.id = c.workspace_id
     WHERE c.id >= $1 AND c.workspace_id = $2 AND w.owner_id = $3 AND c.id < $4 AND NOT c.open
     ORDER BY c.id DESC LIMIT $5"
    };
}

/// Without a smallest id: with one, SQLite walks the table and not the index `calls_failed`. What is below it ends the
/// reading. The second condition on the status is that of the index.
macro_rules! from_failed_rows {
    () => {
        " FROM calls c JOIN workspaces w ON w.id = c.workspace_id
     WHERE c.status = $1 AND c.status >= 400
         AND c.workspace_id = $2 AND w.owner_id = $3 AND c.id < $4 AND NOT c.open
     ORDER BY c.id DESC LIMIT $5"
    };
}

/// The columns of a row that is only counted: [`CallFilter::shows`] is the third.
macro_rules! counted_columns {
    () => {
        "c.id, c.created_at, (CAST($6 AS TEXT) IS NULL OR c.key_id = $6)
         AND (CAST($7 AS BIGINT) IS NULL OR c.status = $7) AND (CAST($8 AS TEXT) IS NULL OR c.model = $8)"
    };
}

const ROWS: &str = concat!("SELECT ", columns!(), from_rows!());
const FAILED_ROWS: &str = concat!("SELECT ", columns!(), from_failed_rows!());
const COUNTED_ROWS: &str = concat!("SELECT ", counted_columns!(), from_rows!());
const COUNTED_FAILED_ROWS: &str = concat!("SELECT ", counted_columns!(), from_failed_rows!());

const BLOCKS: &str = "
    SELECT b.last_id, b.data FROM call_blocks b JOIN workspaces w ON w.id = b.workspace_id
    WHERE b.workspace_id = $1 AND w.owner_id = $2 AND b.last_id >= $3 AND b.last_id < $4
        AND b.first_id < $5
    ORDER BY b.last_id DESC LIMIT $6";

/// `has_failed` is the condition of the index `call_blocks_failed`.
const FAILED_BLOCKS: &str = "
    SELECT b.last_id, b.data FROM call_blocks b JOIN workspaces w ON w.id = b.workspace_id
    WHERE b.workspace_id = $1 AND w.owner_id = $2 AND b.last_id >= $3 AND b.last_id < $4
        AND b.first_id < $5 AND b.has_failed
    ORDER BY b.last_id DESC LIMIT $6";

/// Sorts behind every id from before a moment.
fn top(millis: i64) -> Value {
    if millis == i64::MAX {
        value::before::<()>(None)
    } else {
        value::first_id_of(millis)
    }
}

/// One call of a workspace.
pub async fn read_call(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    id: CallId,
) -> Result<Option<LoggedCall>, StoreError> {
    let alone: Option<Call> = db
        .read(concat!(
            "SELECT ",
            columns!(),
            " FROM calls c JOIN workspaces w ON w.id = c.workspace_id
             WHERE c.workspace_id = $1 AND c.id = $2 AND w.owner_id = $3 AND NOT c.open"
        ))
        .bind(workspace)
        .bind(id)
        .bind(owner)
        .fetch_optional()
        .await?;
    if let Some(call) = alone {
        return Ok(Some(LoggedCall::from(&call)));
    }
    let around: Vec<Vec<u8>> = db
        .read(
            "SELECT b.data FROM call_blocks b JOIN workspaces w ON w.id = b.workspace_id
             WHERE b.workspace_id = $1 AND w.owner_id = $2 AND b.last_id >= $3 AND b.last_id < $4
                 AND b.first_id <= $3",
        )
        .bind(workspace)
        .bind(owner)
        .bind(id)
        .bind(blocks::last_around(id))
        .fetch_all()
        .await?;
    let found = blocks::find(workspace, id, &around)?;
    Ok(found.as_ref().map(LoggedCall::from))
}

/// The next workspace that has calls, in the order of ids: a step from heap to heap, not a walk.
pub async fn next_workspace_with_calls(
    db: &Db,
    after: Option<WorkspaceId>,
) -> Result<Option<WorkspaceId>, StoreError> {
    db.read(
        "SELECT MIN(next) FROM (
             SELECT MIN(workspace_id) AS next FROM calls WHERE workspace_id > $1
             UNION ALL SELECT MIN(workspace_id) FROM call_blocks WHERE workspace_id > $1) AS found",
    )
    .bind(after.map_or(Value::Text(String::new()), Value::from))
    .fetch_one::<Option<Id<_>>>()
    .await
}

/// Removes up to `most` closed calls, and as many blocks of calls, of a workspace from before a
/// moment; returns whether there may be more of them.
pub async fn prune_calls(
    db: &Db,
    workspace: WorkspaceId,
    before: Timestamp,
    most: u32,
) -> Result<bool, StoreError> {
    let removed = db.transact(move |tx| {
        Box::pin(async move {
            let calls = "DELETE FROM calls WHERE workspace_id = $1 AND id IN
                 (SELECT id FROM calls WHERE workspace_id = $1 AND id < $2 AND NOT open
                  ORDER BY id LIMIT $3)";
            let blocks = "DELETE FROM call_blocks WHERE workspace_id = $1 AND last_id IN
                 (SELECT last_id FROM call_blocks WHERE workspace_id = $1 AND last_id < $2
                  ORDER BY last_id LIMIT $3)";
            let mut removed = 0;
            for sql in [calls, blocks] {
                let gone = tx.query(sql).bind(workspace);
                let gone = gone.bind(value::first_id_of(before.millis())).bind(most);
                removed = gone.execute().await?.max(removed);
            }
            Ok::<_, StoreError>(removed)
        })
    });
    Ok(removed.await? >= u64::from(most))
}
