//! Calls: written in batches, and read page by page.
//!
//! A call that goes out on record has a row from then on; all others are kept in blocks.
//! Writes are idempotent: a batch whose commit is in doubt is written again. Only rows that a
//! transaction really changed are counted, in that transaction: so the sums in `usage_hours` and
//! `budget_slices` always equal those of the closed rows.

mod blocks;
mod reading;
mod snapshot;

pub use reading::{
    CallFilter, CallPage, FoundCalls, list_calls, next_workspace_with_calls, prune_calls, read_call,
};
pub use snapshot::Snapshot;

use crate::usage::{self, HourKey, Sums};
use crate::{Record, Row, StoreError, Tx, Value, budgets};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, LedgerNodeId, Operation, RowState, SliceId, Tokens};
use std::collections::BTreeMap;

/// The status of a call whose server died before it ended.
const ABANDONED_STATUS: u16 = 500;

/// From here on a call counts as failed; the indexes of migration 24 have the same number.
const MIN_FAILED_STATUS: u16 = 400;

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
    pub call: Call,
    /// What it is paid from.
    pub slices: Slices,
    /// What there is of it already.
    pub row_state: RowState,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Written {
    /// Whether this server may still spend; if not, no call was opened.
    pub alive: bool,
    /// For each closed call, whether this write closed it, and not an earlier one.
    pub closed: Vec<bool>,
}

const OPEN: &str = "
    INSERT INTO calls (workspace_id, id, key_id, created_at, operation, model, provider, status,
        streamed, partial, estimated, cached, prompt_tokens, completion_tokens, cost_nanos,
        latency_us, ttfb_us, attempts, open, node, key_slice, workspace_slice)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
            TRUE, $19, $20, $21)
    ON CONFLICT (workspace_id, id) DO NOTHING";

const CLOSE: &str = "
    INSERT INTO calls (workspace_id, id, key_id, created_at, operation, model, provider, status,
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
    WHERE calls.open";

/// Writes calls that go out and calls that have ended, in this order; sorted by workspace and id.
pub async fn write_calls(
    tx: &mut Tx,
    node: LedgerNodeId,
    open: &[CallRow],
    closed: &[CallRow],
) -> Result<Written, StoreError> {
    let alive = open.is_empty() || budgets::is_alive(tx, node).await?;
    if alive && !open.is_empty() {
        let rows: Vec<_> = open.iter().map(|row| open_values(node, row)).collect();
        tx.execute_each(OPEN, &rows).await?;
    }
    let mut fresh = close(tx, closed).await?;
    for (row, fresh) in closed.iter().zip(&mut fresh) {
        if row.row_state == RowState::Open && !*fresh && reopen(tx, &row.call).await? {
            close(tx, std::slice::from_ref(row)).await?;
            *fresh = true;
        }
    }
    Ok(Written {
        alive,
        closed: fresh,
    })
}

/// Writes calls that have ended and counts them; returns for each whether it was open until now.
async fn close(tx: &mut Tx, closed: &[CallRow]) -> Result<Vec<bool>, StoreError> {
    // Those that have, or may have, a row of their own: closing such a call twice counts once.
    let is_alone = |row: &CallRow| row.row_state != RowState::Absent;
    let (alone, together): (Vec<_>, Vec<_>) = closed.iter().partition(|row| is_alone(row));
    let mut sums = ClosedSums::default();
    let rows: Vec<_> = alone.iter().map(|row| values(&row.call)).collect();
    let touched = tx.execute_each(CLOSE, &rows).await?;
    let mut alone_fresh = touched.iter().map(|count| *count > 0);
    let mut together_fresh = blocks::write(tx, &together, &mut sums).await?.into_iter();
    let mut fresh = Vec::with_capacity(closed.len());
    for row in closed {
        if !is_alone(row) {
            fresh.extend(together_fresh.next());
            continue;
        }
        let is_fresh = alone_fresh.next() == Some(true);
        if is_fresh {
            sums.add(HourKey::of(&row.call), Sums::of(&row.call), row.slices);
        }
        fresh.push(is_fresh);
    }
    sums.write(tx).await?;
    Ok(fresh)
}

/// Closes calls that a server had under way when it died, or that had ended and that it could not write, unless they
/// were closed before; sorted by workspace and id. Returns how many were not.
pub async fn close_in_flight(tx: &mut Tx, calls: &[Call]) -> Result<usize, StoreError> {
    let closed = blocks::those_in_blocks(tx, calls).await?;
    let left = calls.iter().filter(|call| !closed.contains(&call.id));
    let row = |call: &Call| CallRow {
        call: Call {
            status: if call.status == 0 {
                ABANDONED_STATUS
            } else {
                call.status
            },
            ..call.clone()
        },
        slices: Slices::default(),
        row_state: RowState::Unknown,
    };
    let rows: Vec<_> = left.map(row).collect();
    let fresh = close(tx, &rows).await?;
    Ok(fresh.into_iter().filter(|fresh| *fresh).count())
}

/// Undoes that another server closed a call whose own server was not dead after all; false when it
/// was its own that did.
async fn reopen(tx: &mut Tx, call: &Call) -> Result<bool, StoreError> {
    let left: Option<UnclosedCall> = tx
        .query(concat!(
            "SELECT ",
            columns!(),
            ", c.key_slice, c.workspace_slice FROM calls c
             WHERE c.workspace_id = $1 AND c.id = $2 AND NOT c.open AND c.node IS NOT NULL"
        ))
        .bind(call.workspace)
        .bind(call.id)
        .fetch_optional()
        .await?;
    let Some(left) = left else { return Ok(false) };
    tx.query("UPDATE calls SET open = TRUE WHERE workspace_id = $1 AND id = $2")
        .bind(call.workspace)
        .bind(call.id)
        .execute()
        .await?;
    let mut sums = ClosedSums::default();
    let negative = Sums::of(&left.call).negative();
    sums.add(HourKey::of_left(&left.call), negative, left.slices);
    sums.write(tx).await?;
    Ok(true)
}

/// Closes up to `most` calls that a server left open, at what was set aside for them: they may have
/// reached the provider. Returns how many there were.
///
/// They keep the server and the slices that they are of, so that [`reopen`] knows them.
pub(crate) async fn close_left(
    tx: &mut Tx,
    node: LedgerNodeId,
    most: u32,
) -> Result<usize, StoreError> {
    let left: Vec<UnclosedCall> = tx
        .query(concat!(
            "SELECT ",
            columns!(),
            ", c.key_slice, c.workspace_slice FROM calls c WHERE c.node = $1 AND c.open LIMIT $2"
        ))
        .bind(node)
        .bind(most)
        .fetch_all()
        .await?;
    let mut sums = ClosedSums::default();
    let mut rows = Vec::with_capacity(left.len());
    for left in &left {
        sums.add(
            HourKey::of_left(&left.call),
            Sums::of(&left.call),
            left.slices,
        );
        rows.push(vec![
            Value::from(left.call.workspace),
            Value::from(left.call.id),
            Value::from(ABANDONED_STATUS),
        ]);
    }
    let close = "UPDATE calls SET open = FALSE, status = $3 WHERE workspace_id = $1 AND id = $2";
    tx.execute_each(close, &rows).await?;
    sums.write(tx).await?;
    Ok(left.len())
}

/// Sums of the calls that are closed in one transaction, by hour and by slice.
#[derive(Default)]
struct ClosedSums<'c> {
    hours: BTreeMap<HourKey<'c>, Sums>,
    slices: BTreeMap<SliceId, i64>,
}

impl<'c> ClosedSums<'c> {
    fn add(&mut self, hour: HourKey<'c>, sums: Sums, slices: Slices) {
        self.hours.entry(hour).or_default().add(sums);
        for slice in slices.iter() {
            let sum = self.slices.entry(slice).or_default();
            *sum = sum.saturating_add(sums.cost);
        }
    }

    async fn write(self, tx: &mut Tx) -> Result<(), StoreError> {
        usage::add_to_hours(tx, &self.hours).await?;
        budgets::add_settled(tx, self.slices).await
    }
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

fn open_values(node: LedgerNodeId, row: &CallRow) -> Vec<Value> {
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

struct UnclosedCall {
    call: Call,
    slices: Slices,
}

impl Record for UnclosedCall {
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
