//! Calls: one row each, written in batches, and read page by page.
//!
//! A batch may be written again when nobody knows whether it was committed. Only rows that a
//! transaction really changed are counted, in that transaction: so the sums in `usage_hours` and
//! `budget_slices` equal those of the closed rows, whatever happens.

use crate::usage::{self, Sums};
use crate::{Db, Record, Row, StoreError, Tx, Value, budgets, value};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, CallId, LoggedCall, NodeId, Operation, SliceId, Tokens};
use estrade_model::{Id, KeyId, OwnerId, Timestamp, WorkspaceId};
use std::collections::BTreeMap;

/// The status of a call whose server died before it ended.
const STATUS_OF_LEFT: u16 = 500;
/// Totals of pages are counted up to here: more is nothing that anybody pages through.
const MOST_COUNTED: u32 = 10_000;

/// The slices that a call's cost is taken from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slices {
    /// Of the key's budget.
    pub key: Option<SliceId>,
    /// Of the workspace's budget.
    pub workspace: Option<SliceId>,
}

impl Slices {
    /// Those that there are.
    pub fn iter(self) -> impl Iterator<Item = SliceId> {
        self.key.into_iter().chain(self.workspace)
    }
}

/// A row to be written: the call as it is known, and where its cost is taken from.
#[derive(Debug, Clone)]
pub struct CallRow {
    /// The call.
    pub call: Call,
    /// What it is paid from.
    pub slices: Slices,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Written {
    /// Whether this server may still spend; if not, no call was opened.
    pub alive: bool,
    /// For each closed call whether it was written now, and not before by somebody else.
    pub closed: Vec<bool>,
}

/// Writes calls that go out and calls that have ended, in this order.
pub async fn write_calls(
    tx: &mut Tx,
    node: NodeId,
    open: &[CallRow],
    closed: &[CallRow],
) -> Result<Written, StoreError> {
    let alive = open.is_empty() || budgets::is_alive(tx, node).await?;
    if alive && !open.is_empty() {
        let rows: Vec<_> = open.iter().map(|row| open_values(node, row)).collect();
        tx.execute_each(
            "INSERT INTO calls (workspace_id, id, key_id, created_at, operation, model, provider, status,
                 streamed, partial, estimated, cached, prompt_tokens, completion_tokens, cost_nanos,
                 latency_us, ttfb_us, attempts, open, node, key_slice, workspace_slice)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                     TRUE, $19, $20, $21)
             ON CONFLICT (workspace_id, id) DO NOTHING",
            &rows,
        )
        .await?;
    }
    let rows: Vec<_> = closed.iter().map(|row| values(&row.call)).collect();
    let touched = tx
        .execute_each(
            "INSERT INTO calls (workspace_id, id, key_id, created_at, operation, model, provider, status,
                 streamed, partial, estimated, cached, prompt_tokens, completion_tokens, cost_nanos,
                 latency_us, ttfb_us, attempts, open)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, FALSE)
             ON CONFLICT (workspace_id, id) DO UPDATE SET
                 model = excluded.model, provider = excluded.provider, status = excluded.status,
                 streamed = excluded.streamed, partial = excluded.partial,
                 estimated = excluded.estimated, cached = excluded.cached,
                 prompt_tokens = excluded.prompt_tokens,
                 completion_tokens = excluded.completion_tokens, cost_nanos = excluded.cost_nanos,
                 latency_us = excluded.latency_us, ttfb_us = excluded.ttfb_us,
                 attempts = excluded.attempts, open = FALSE, node = NULL, key_slice = NULL,
                 workspace_slice = NULL
             WHERE calls.open",
            &rows,
        )
        .await?;
    let fresh: Vec<bool> = touched.iter().map(|count| *count > 0).collect();
    let new = closed.iter().zip(&fresh).filter(|(_, fresh)| **fresh);
    account(tx, new.map(|(row, _)| (&row.call, row.slices))).await?;
    Ok(Written {
        alive,
        closed: fresh,
    })
}

/// Closes up to `most` calls that a server left open, at what was set aside for them: they may have
/// reached the provider. Returns how many there were.
pub(crate) async fn close_left(tx: &mut Tx, node: NodeId, most: u32) -> Result<usize, StoreError> {
    let left: Vec<Left> = tx
        .query(concat!(
            "SELECT ",
            columns!(),
            ", c.key_slice, c.workspace_slice FROM calls c WHERE c.node = $1 AND c.open LIMIT $2"
        ))
        .bind(node)
        .bind(most)
        .fetch_all()
        .await?;
    let rows: Vec<_> = left
        .iter()
        .map(|left| {
            vec![
                Value::from(left.call.workspace),
                Value::from(left.call.id),
                Value::from(STATUS_OF_LEFT),
            ]
        })
        .collect();
    tx.execute_each(
        "UPDATE calls SET open = FALSE, node = NULL, key_slice = NULL, workspace_slice = NULL, status = $3
         WHERE workspace_id = $1 AND id = $2",
        &rows,
    )
    .await?;
    account(tx, left.iter().map(|left| (&left.call, left.slices))).await?;
    Ok(left.len())
}

/// Counts calls that were closed in this transaction: into their hours and their slices.
async fn account<'c>(
    tx: &mut Tx,
    calls: impl Iterator<Item = (&'c Call, Slices)>,
) -> Result<(), StoreError> {
    let mut hours: BTreeMap<usage::Place<'c>, Sums> = BTreeMap::new();
    let mut settled: BTreeMap<SliceId, i64> = BTreeMap::new();
    for (call, slices) in calls {
        hours.entry(usage::Place::of(call)).or_default().add(call);
        for slice in slices.iter() {
            let sum = settled.entry(slice).or_default();
            *sum = sum.saturating_add(call.cost.nanos());
        }
    }
    usage::add_to_hours(tx, &hours).await?;
    budgets::add_settled(tx, settled).await
}

fn count(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The columns of a call in the order of the statements above.
fn values(call: &Call) -> Vec<Value> {
    vec![
        call.workspace.into(),
        call.id.into(),
        call.key.into(),
        call.created_at.into(),
        call.operation.path().into(),
        (&*call.model).into(),
        (&*call.provider).into(),
        call.status.into(),
        call.streamed.into(),
        call.partial.into(),
        call.estimated.into(),
        call.cached.into(),
        count(call.tokens.prompt),
        count(call.tokens.completion),
        call.cost.nanos().into(),
        count(call.latency_us),
        count(call.ttfb_us),
        call.attempts.into(),
    ]
}

fn open_values(node: NodeId, row: &CallRow) -> Vec<Value> {
    let mut values = values(&row.call);
    values.extend([
        node.into(),
        row.slices.key.into(),
        row.slices.workspace.into(),
    ]);
    values
}

macro_rules! columns {
    () => {
        "c.workspace_id, c.id, c.key_id, c.created_at, c.operation, c.model, c.provider, c.status, \
         c.streamed, c.partial, c.estimated, c.cached, c.prompt_tokens, c.completion_tokens, \
         c.cost_nanos, c.latency_us, c.ttfb_us, c.attempts"
    };
}
use columns;

impl Record for Call {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: row.take()?,
            id: row.take()?,
            key: row.take()?,
            created_at: row.take()?,
            operation: row.parse::<Operation>()?,
            model: row.take::<String>()?.into(),
            provider: row.take::<String>()?.into(),
            status: row.take()?,
            streamed: row.take()?,
            partial: row.take()?,
            estimated: row.take()?,
            cached: row.take()?,
            tokens: Tokens {
                prompt: row.take()?,
                completion: row.take()?,
            },
            cost: Amount::from_nanos(row.take()?),
            latency_us: row.take()?,
            ttfb_us: row.take()?,
            attempts: row.take()?,
        })
    }
}

struct Left {
    call: Call,
    slices: Slices,
}

impl Record for Left {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            call: Call::from_row(row)?,
            slices: Slices {
                key: row.take()?,
                workspace: row.take()?,
            },
        })
    }
}

impl Record for LoggedCall {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self::from(&Call::from_row(row)?))
    }
}

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
    /// `$1` to `$7`: workspace, owner, the first id, the id behind the last, model, key, status.
    fn bind<'q>(
        &self,
        query: crate::Query<'q>,
        owner: OwnerId,
        workspace: WorkspaceId,
    ) -> crate::Query<'q> {
        let end = |to: Timestamp| value::first_id_of(to.millis().saturating_add(1));
        query
            .bind(workspace)
            .bind(owner)
            .bind(self.from.map_or(Value::Text(String::new()), |from| {
                value::first_id_of(from.millis())
            }))
            .bind(self.to.map_or_else(|| value::before::<()>(None), end))
            .bind(self.model.as_ref())
            .bind(self.key)
            .bind(self.status)
    }
}

macro_rules! matching {
    () => {
        " FROM calls c WHERE c.workspace_id = $1 AND c.id >= $3 AND c.id < $4 AND NOT c.open \
         AND EXISTS (SELECT 1 FROM workspaces w WHERE w.id = $1 AND w.owner_id = $2) \
         AND (CAST($5 AS TEXT) IS NULL OR c.model = $5) \
         AND (CAST($6 AS TEXT) IS NULL OR c.key_id = $6) \
         AND (CAST($7 AS BIGINT) IS NULL OR c.status = $7)"
    };
}

/// A page of a workspace's calls, newest first, and how many match (up to ten thousand).
pub async fn list_calls(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    filter: &CallFilter,
    most: u32,
    skip: u64,
) -> Result<(Vec<LoggedCall>, u64), StoreError> {
    let page = db.read(concat!(
        "SELECT ",
        columns!(),
        matching!(),
        " ORDER BY c.id DESC LIMIT $8 OFFSET $9"
    ));
    let page = filter.bind(page, owner, workspace);
    let skip = i64::try_from(skip).unwrap_or(i64::MAX);
    let calls = page.bind(most).bind(skip).fetch_all().await?;
    let total = db.read(concat!(
        "SELECT COUNT(*) FROM (SELECT 1",
        matching!(),
        " LIMIT $8) AS matching"
    ));
    let total = filter.bind(total, owner, workspace).bind(MOST_COUNTED);
    Ok((calls, total.fetch_one().await?))
}

/// One call of a workspace.
pub async fn read_call(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    id: CallId,
) -> Result<Option<LoggedCall>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM calls c JOIN workspaces w ON w.id = c.workspace_id
         WHERE c.workspace_id = $1 AND c.id = $2 AND w.owner_id = $3 AND NOT c.open"
    ))
    .bind(workspace)
    .bind(id)
    .bind(owner)
    .fetch_optional()
    .await
}

/// The next workspace that has calls, in the order of ids: a step from heap to heap, not a walk.
pub async fn next_workspace_with_calls(
    db: &Db,
    after: Option<WorkspaceId>,
) -> Result<Option<WorkspaceId>, StoreError> {
    db.read("SELECT MIN(workspace_id) FROM calls WHERE workspace_id > $1")
        .bind(after.map_or(Value::Text(String::new()), Value::from))
        .fetch_one::<Option<Id<_>>>()
        .await
}

/// Removes up to `most` closed calls of a workspace from before a moment; returns how many.
pub async fn prune_calls(
    db: &Db,
    workspace: WorkspaceId,
    before: Timestamp,
    most: u32,
) -> Result<u64, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            tx.query(
                "DELETE FROM calls WHERE workspace_id = $1 AND id IN
                 (SELECT id FROM calls WHERE workspace_id = $1 AND id < $2 AND NOT open
                  ORDER BY id LIMIT $3)",
            )
            .bind(workspace)
            .bind(value::first_id_of(before.millis()))
            .bind(most)
            .execute()
            .await
        })
    })
    .await
}
