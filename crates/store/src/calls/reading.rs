//! Calls are read page by page, newest first, from both places where they are kept.

use super::blocks::{self, BLOCKS_AT_ONCE, Block};
use super::columns;
use crate::{Db, StoreError, Value, value};
use estrade_model::call::{Call, CallId, LoggedCall};
use estrade_model::{Id, KeyId, OwnerId, Timestamp, WorkspaceId};
use std::collections::BTreeMap;

/// Totals of pages are counted up to here: more is nothing that anybody pages through.
const MOST_COUNTED: u64 = 10_000;
/// Rows that one query reads.
const ROWS_AT_ONCE: u32 = 1000;

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
}

impl CallFilter {
    fn shows(&self, call: &Call) -> bool {
        self.model
            .as_deref()
            .is_none_or(|model| *call.model == *model)
            && self.key.is_none_or(|key| call.key == key)
            && self.status.is_none_or(|status| call.status == status)
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

/// A page of a workspace's calls, newest first, and how many match (up to ten thousand).
pub async fn list_calls(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    filter: &CallFilter,
    shown: CallPage,
) -> Result<(Vec<LoggedCall>, u64), StoreError> {
    let mut newest = Newest::new(db, owner, workspace, filter.range());
    let (mut page, mut matching) = (Vec::new(), 0);
    for _ in 0..shown.within {
        let Some(call) = newest.next().await? else {
            break;
        };
        if !filter.shows(&call) {
            continue;
        }
        if matching >= shown.skip && page.len() < shown.count as usize {
            page.push(LoggedCall::from(&call));
        }
        matching += 1;
        let is_full = page.len() == shown.count as usize || matching <= shown.skip;
        if matching >= MOST_COUNTED && is_full {
            break;
        }
    }
    Ok((page, matching.min(MOST_COUNTED)))
}

/// The calls of a workspace, newest first.
struct Newest<'db> {
    db: &'db Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    /// The milliseconds that are looked at.
    range: (i64, i64),
    rows: Side,
    blocks: Side,
}

/// One of the two places.
struct Side {
    /// What was read ahead.
    read: BTreeMap<CallId, Call>,
    /// Below this id nothing was read; `None` when everything was.
    next: Option<Value>,
}

impl Side {
    fn from(top: Value) -> Self {
        Self {
            read: BTreeMap::new(),
            next: Some(top),
        }
    }

    /// Whether the newest that is left may not have been read yet.
    fn wants_more(&self) -> bool {
        let Some(Value::Text(next)) = &self.next else {
            return false;
        };
        self.read
            .last_key_value()
            .is_none_or(|(id, _)| id.to_string() < *next)
    }
}

impl<'db> Newest<'db> {
    fn new(db: &'db Db, owner: OwnerId, workspace: WorkspaceId, range: (i64, i64)) -> Self {
        // A block that ends a little later may have begun before.
        let last_end = range.1.saturating_add(blocks::SPAN_MS);
        Self {
            db,
            owner,
            workspace,
            range,
            rows: Side::from(top(range.1)),
            blocks: Side::from(top(last_end)),
        }
    }

    async fn next(&mut self) -> Result<Option<Call>, StoreError> {
        while self.rows.wants_more() {
            self.read_rows().await?;
        }
        while self.blocks.wants_more() {
            self.read_blocks().await?;
        }
        let newest = |side: &Side| side.read.last_key_value().map(|(id, _)| *id);
        let side = if newest(&self.rows) > newest(&self.blocks) {
            &mut self.rows
        } else {
            &mut self.blocks
        };
        Ok(side.read.pop_last().map(|(_, call)| call))
    }

    async fn read_rows(&mut self) -> Result<(), StoreError> {
        let rows = self.db.read(concat!(
            "SELECT ",
            columns!(),
            " FROM calls c JOIN workspaces w ON w.id = c.workspace_id
             WHERE c.workspace_id = $1 AND w.owner_id = $2 AND c.id >= $3 AND c.id < $4
                 AND NOT c.open
             ORDER BY c.id DESC LIMIT $5"
        ));
        let rows = rows.bind(self.workspace).bind(self.owner);
        let rows = rows.bind(value::first_id_of(self.range.0));
        let rows = rows.bind(self.rows.next.take().unwrap_or(Value::Null));
        let rows: Vec<Call> = rows.bind(ROWS_AT_ONCE).fetch_all().await?;
        if rows.len() == ROWS_AT_ONCE as usize {
            self.rows.next = rows.last().map(|call| call.id.into());
        }
        let calls = rows.into_iter().map(|call| (call.id, call));
        self.rows.read.extend(calls);
        Ok(())
    }

    async fn read_blocks(&mut self) -> Result<(), StoreError> {
        let found = self.db.read(
            "SELECT b.last_id, b.data FROM call_blocks b
             JOIN workspaces w ON w.id = b.workspace_id
             WHERE b.workspace_id = $1 AND w.owner_id = $2 AND b.last_id >= $3 AND b.last_id < $4
                 AND b.first_id < $5
             ORDER BY b.last_id DESC LIMIT $6",
        );
        let found = found.bind(self.workspace).bind(self.owner);
        let found = found.bind(value::first_id_of(self.range.0));
        let found = found.bind(self.blocks.next.take().unwrap_or(Value::Null));
        let found = found.bind(top(self.range.1)).bind(BLOCKS_AT_ONCE);
        let found: Vec<Block> = found.fetch_all().await?;
        if found.len() == BLOCKS_AT_ONCE as usize {
            self.blocks.next = found.last().map(|block| block.last.into());
        }
        for block in found {
            let calls = blocks::decode(self.workspace, &block.data)?;
            let wanted = self.range.0..self.range.1;
            let calls = calls
                .into_iter()
                .filter(|call| wanted.contains(&call.id.millis()));
            self.blocks.read.extend(calls.map(|call| (call.id, call)));
        }
        Ok(())
    }
}

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
