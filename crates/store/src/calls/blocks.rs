//! Calls that were never on record as open: written together, kept together.
//!
//! Layout of a block: a format byte, then the calls in the order of their ids; numbers are
//! big-endian and texts have their length (2 bytes) before them.

use super::{CallRow, ClosedSums, MIN_FAILED_STATUS};
use crate::manifest::take;
use crate::usage::{HourKey, Sums};
use crate::{Record, Row, StoreError, Tx, Value, value};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, CallId, Operation, Tokens};
use estrade_model::error::error_chain;
use estrade_model::{Id, KeyId, Timestamp, WorkspaceId};
use std::collections::HashSet;
use std::sync::Arc;

const FORMAT: u8 = 1;
/// What most calls fit into, with their texts.
pub(super) const TYPICAL_CALL_BYTES: usize = 128;
/// How far apart the first and the last call of a block may have begun: a look-up of a call reads the
/// blocks of this much time.
pub(super) const SPAN_MS: i64 = 60_000;
/// Blocks that one query reads to find calls by their ids.
const MAX_BLOCKS_PER_READ: u32 = 16;

/// Writes calls, sorted by workspace and id; returns for each whether it is new.
///
/// Calls that failed have blocks of their own, so that a search for them reads no others.
pub(super) async fn write<'c>(
    tx: &mut Tx,
    rows: &[&'c CallRow],
    sums: &mut ClosedSums<'c>,
) -> Result<Vec<bool>, StoreError> {
    let (failed, ended): (Vec<_>, Vec<_>) = rows.iter().copied().partition(|row| has_failed(row));
    let mut failed = write_alike(tx, &failed, true, sums).await?.into_iter();
    let mut ended = write_alike(tx, &ended, false, sums).await?.into_iter();
    let fresh = rows.iter().filter_map(|row| {
        let written = if has_failed(row) {
            &mut failed
        } else {
            &mut ended
        };
        written.next()
    });
    Ok(fresh.collect())
}

fn has_failed(row: &CallRow) -> bool {
    row.call.status >= MIN_FAILED_STATUS
}

/// Writes calls that all failed, or of which none did.
async fn write_alike<'c>(
    tx: &mut Tx,
    rows: &[&'c CallRow],
    failed: bool,
    sums: &mut ClosedSums<'c>,
) -> Result<Vec<bool>, StoreError> {
    let blocks: Vec<_> = rows
        .chunk_by(|a, b| together(a, b))
        .flat_map(split)
        .collect();
    let values: Vec<_> = blocks.iter().map(|block| values(block, failed)).collect();
    let touched = tx
        .execute_each(
            "INSERT INTO call_blocks (workspace_id, last_id, first_id, calls, cost_nanos, data, has_failed)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (workspace_id, last_id) DO NOTHING",
            &values,
        )
        .await?;
    let mut fresh = Vec::with_capacity(rows.len());
    for (block, touched) in blocks.into_iter().zip(touched) {
        fresh.extend(block.iter().map(|_| touched > 0));
        if touched > 0 {
            for row in block {
                sums.add(HourKey::of(&row.call), Sums::of(&row.call), row.slices);
            }
        }
    }
    Ok(fresh)
}

fn together(a: &CallRow, b: &CallRow) -> bool {
    a.call.workspace == b.call.workspace
}

/// Cuts the calls of a workspace where a block would span too much time.
fn split<'r, 'c>(mut calls: &'r [&'c CallRow]) -> Vec<&'r [&'c CallRow]> {
    let mut blocks = Vec::new();
    while let Some(first) = calls.first() {
        let end = first.call.id.millis().saturating_add(SPAN_MS);
        let count = calls.partition_point(|row| row.call.id.millis() < end);
        let (block, rest) = calls.split_at(count.max(1));
        blocks.push(block);
        calls = rest;
    }
    blocks
}

fn values(block: &[&CallRow], failed: bool) -> Vec<Value> {
    let ends = block.first().zip(block.last());
    let cost = block
        .iter()
        .fold(0_i64, |sum, row| sum.saturating_add(row.call.cost.nanos()));
    vec![
        ends.map(|(_, last)| last.call.workspace).into(),
        ends.map(|(_, last)| last.call.id).into(),
        ends.map(|(first, _)| first.call.id).into(),
        super::count(block.len() as u64),
        cost.into(),
        encode(block.iter().map(|row| &row.call)).into(),
        failed.into(),
    ]
}

pub(super) fn encode<'c>(calls: impl Iterator<Item = &'c Call>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + calls.size_hint().0 * TYPICAL_CALL_BYTES);
    encode_into(&mut out, calls);
    out
}

/// Adds a block to `out`.
pub(super) fn encode_into<'c>(out: &mut Vec<u8>, calls: impl Iterator<Item = &'c Call>) {
    out.push(FORMAT);
    for call in calls {
        out.extend_from_slice(call.id.as_bytes());
        out.extend_from_slice(call.key.as_bytes());
        out.extend_from_slice(&call.created_at.millis().to_be_bytes());
        let flags = [call.streamed, call.partial, call.estimated, call.cached];
        let flags = flags
            .iter()
            .rev()
            .fold(0, |all, flag| all << 1 | u8::from(*flag));
        out.extend_from_slice(&[number_of(call.operation), flags]);
        out.extend_from_slice(&call.status.to_be_bytes());
        out.extend_from_slice(&call.tokens.prompt.to_be_bytes());
        out.extend_from_slice(&call.tokens.completion.to_be_bytes());
        out.extend_from_slice(&call.cost.nanos().to_be_bytes());
        out.extend_from_slice(&call.latency_us.to_be_bytes());
        out.extend_from_slice(&call.ttfb_us.to_be_bytes());
        out.extend_from_slice(&call.attempts.to_be_bytes());
        put_text(out, &call.model);
        put_text(out, &call.provider);
    }
}

fn number_of(operation: Operation) -> u8 {
    match operation {
        Operation::Chat => 0,
        Operation::Embeddings => 1,
        Operation::Images => 2,
    }
}

/// Longer ones are cut; the names of models and providers are shorter.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The calls of a block, in the order of their ids.
pub(super) fn decode(workspace: WorkspaceId, bytes: &[u8]) -> Result<Vec<Call>, StoreError> {
    let mut calls: Vec<Call> = Vec::new();
    for_each(bytes, |encoded| {
        let call = encoded.decode(workspace, calls.last())?;
        calls.push(call);
        Some(())
    })?;
    Ok(calls)
}

/// Goes through the calls of a block, in the order of their ids. `visit` returns `None` for what is no call.
pub(super) fn for_each<'b>(
    bytes: &'b [u8],
    mut visit: impl FnMut(&EncodedCall<'b>) -> Option<()>,
) -> Result<(), StoreError> {
    let damaged = || StoreError::bug("a block of calls is damaged or of a newer version");
    let Some((&FORMAT, mut rest)) = bytes.split_first() else {
        return Err(damaged());
    };
    while !rest.is_empty() {
        let call = EncodedCall::take(&mut rest).ok_or_else(damaged)?;
        visit(&call).ok_or_else(damaged)?;
    }
    Ok(())
}

/// Behind the last id of every block that may have this call in it.
pub(super) fn last_around(id: CallId) -> Value {
    value::first_id_of(id.millis() + SPAN_MS + 1)
}

/// Finds a call in blocks.
pub(super) fn find(
    workspace: WorkspaceId,
    id: CallId,
    blocks: &[Vec<u8>],
) -> Result<Option<Call>, StoreError> {
    for block in blocks {
        let mut calls = decode(workspace, block)?;
        if let Ok(at) = calls.binary_search_by_key(&id, |call| call.id) {
            return Ok(Some(calls.swap_remove(at)));
        }
    }
    Ok(None)
}

/// Those of these calls, sorted by workspace and id, that are in a block.
pub(super) async fn those_in_blocks(
    tx: &mut Tx,
    calls: &[Call],
) -> Result<HashSet<CallId>, StoreError> {
    let mut found = HashSet::new();
    let near =
        |a: &Call, b: &Call| a.workspace == b.workspace && b.id.millis() - a.id.millis() < SPAN_MS;
    for together in calls.chunk_by(near) {
        let (Some(first), Some(last)) = (together.first(), together.last()) else {
            continue;
        };
        let wanted: HashSet<_> = together.iter().map(|call| call.id).collect();
        let mut from = Value::from(first.id);
        loop {
            let around: Vec<Block> = tx
                .query(
                    "SELECT last_id, data FROM call_blocks
                     WHERE workspace_id = $1 AND last_id >= $2 AND last_id < $3 AND first_id <= $4
                     ORDER BY last_id LIMIT $5",
                )
                .bind(first.workspace)
                .bind(from)
                .bind(last_around(last.id))
                .bind(last.id)
                .bind(MAX_BLOCKS_PER_READ)
                .fetch_all()
                .await?;
            for block in &around {
                found.extend(ids(first.workspace, block).filter(|id| wanted.contains(id)));
            }
            match around.last() {
                Some(block) if around.len() == MAX_BLOCKS_PER_READ as usize => {
                    // Ids have one length: this sorts right behind it.
                    from = Value::Text(format!("{}0", block.last));
                }
                _ => break,
            }
        }
    }
    Ok(found)
}

/// The calls of a block. A damaged block counts as empty: the look-up of one call must not fail because of others.
fn ids(workspace: WorkspaceId, block: &Block) -> impl Iterator<Item = CallId> {
    let calls = decode(workspace, &block.data).unwrap_or_else(|error| {
        tracing::error!(error = error_chain(&error), "cannot read a block of calls");
        Vec::new()
    });
    calls.into_iter().map(|call| call.id)
}

/// A block as it is read.
pub(super) struct Block {
    pub(super) last: CallId,
    pub(super) data: Vec<u8>,
}

impl Record for Block {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            last: row.take()?,
            data: row.take()?,
        })
    }
}

/// A call in a block: what a search asks for, and the rest as it was written.
pub(super) struct EncodedCall<'b> {
    pub(super) id: CallId,
    pub(super) key: KeyId,
    pub(super) created_at: Timestamp,
    pub(super) status: u16,
    pub(super) model: &'b str,
    provider: &'b str,
    /// The operation and the flags.
    kind: [u8; 2],
    /// Tokens, cost, latencies and attempts.
    numbers: [u8; 44],
}

impl<'b> EncodedCall<'b> {
    fn take(rest: &mut &'b [u8]) -> Option<Self> {
        Some(Self {
            id: CallId::from_bytes(take(rest)?),
            key: Id::from_bytes(take(rest)?),
            created_at: Timestamp::from_millis(i64::from_be_bytes(take(rest)?)),
            kind: take(rest)?,
            status: u16::from_be_bytes(take(rest)?),
            numbers: take(rest)?,
            model: take_text(rest)?,
            provider: take_text(rest)?,
        })
    }

    /// The whole call. Most calls have the same texts as the one before.
    pub(super) fn decode(&self, workspace: WorkspaceId, previous: Option<&Call>) -> Option<Call> {
        let [operation, flags] = self.kind;
        let operation = Operation::ALL
            .into_iter()
            .find(|one| number_of(*one) == operation)?;
        let flag = |number: u8| flags >> number & 1 == 1;
        let mut numbers = &self.numbers[..];
        Some(Call {
            id: self.id,
            workspace,
            key: self.key,
            created_at: self.created_at,
            operation,
            status: self.status,
            streamed: flag(0),
            partial: flag(1),
            estimated: flag(2),
            cached: flag(3),
            tokens: Tokens {
                prompt: u64::from_be_bytes(take(&mut numbers)?),
                completion: u64::from_be_bytes(take(&mut numbers)?),
            },
            cost: Amount::from_nanos(i64::from_be_bytes(take(&mut numbers)?)),
            latency_us: u64::from_be_bytes(take(&mut numbers)?),
            ttfb_us: u64::from_be_bytes(take(&mut numbers)?),
            attempts: u32::from_be_bytes(take(&mut numbers)?),
            model: shared(self.model, previous.map(|call| &call.model)),
            provider: shared(self.provider, previous.map(|call| &call.provider)),
        })
    }
}

fn take_text<'b>(rest: &mut &'b [u8]) -> Option<&'b str> {
    let length = u16::from_be_bytes(take(rest)?);
    std::str::from_utf8(rest.split_off(..usize::from(length))?).ok()
}

fn shared(text: &str, previous: Option<&Arc<str>>) -> Arc<str> {
    match previous {
        Some(previous) if **previous == *text => Arc::clone(previous),
        _ => text.into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use estrade_model::call::RowState;

    pub(in crate::calls) fn call(number: u64) -> Call {
        Call {
            id: Id::generate(1_790_000_000_000, number),
            workspace: Id::from_bytes([7; 12]),
            key: Id::from_bytes([8; 12]),
            created_at: Timestamp::from_millis(-5),
            operation: Operation::ALL[(number % 3) as usize],
            model: if number < 2 { "a" } else { "größer" }.into(),
            provider: "".into(),
            status: 499,
            streamed: number & 1 == 1,
            partial: number & 2 == 2,
            estimated: number & 4 == 4,
            cached: number & 8 == 8,
            tokens: Tokens {
                prompt: u64::MAX,
                completion: number,
            },
            cost: Amount::from_nanos(i64::MIN),
            latency_us: 1,
            ttfb_us: 2,
            attempts: u32::MAX,
        }
    }

    #[test]
    fn a_block_reads_back_and_damage_is_noticed() {
        let calls: Vec<_> = (0..16).map(call).collect();
        let bytes = encode(calls.iter());
        let read = decode(calls[0].workspace, &bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{calls:?}"));
        let one = encode(calls[..1].iter());
        for cut in 0..one.len() {
            // Cut right after the format byte, it is a block without calls.
            let read = decode(calls[0].workspace, &one[..cut]);
            assert_eq!(read.is_ok(), cut == 1, "{cut}");
        }
        decode(calls[0].workspace, &[FORMAT + 1]).unwrap_err();
    }

    #[test]
    fn a_block_never_spans_much_time() {
        let rows: Vec<_> = (0..9_u8)
            .map(|minutes| {
                let mut row = CallRow {
                    call: call(1),
                    slices: super::super::Slices::default(),
                    row_state: RowState::Absent,
                };
                let millis = i64::from(minutes) * SPAN_MS / 3;
                let text = format!("{millis:012x}000000000000");
                row.call.id = text.parse().unwrap();
                row
            })
            .collect();
        let rows: Vec<_> = rows.iter().collect();
        let blocks: Vec<_> = split(&rows).iter().map(|block| block.len()).collect();
        assert_eq!(blocks, [3, 3, 3]);
    }
}
