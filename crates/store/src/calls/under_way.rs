//! Calls that a server has under way and that are on record nowhere else, as one value that is replaced as
//! they go on: a row for each would have to be written again and again.
//!
//! Layout: a format byte, then, packed if that is worth it, for each workspace its id, the length of a block
//! (4 bytes) and the block.

use super::{CallRow, OPEN, Slices, blocks, open_values};
use crate::manifest::take;
use crate::{StoreError, Tx, Value};
use estrade_model::Id;
use estrade_model::call::{Call, NodeId, OnRecord};

const PLAIN: u8 = 1;
const PACKED: u8 = 2;
/// More than this is packed: it is written many times a second.
const WORTH_PACKING: usize = 16 * 1024;
/// Nobody has so much under way: what claims to be more is damaged.
const MOST_BYTES: usize = 1 << 30;

/// What a server has under way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnderWay(Vec<u8>);

impl UnderWay {
    /// These calls, at what they took so far.
    pub fn of(mut calls: Vec<Call>) -> Self {
        if calls.is_empty() {
            return Self::default();
        }
        calls.sort_unstable_by_key(|call| (call.workspace, call.id));
        let mut plain = vec![PLAIN];
        for together in calls.chunk_by(|a, b| a.workspace == b.workspace) {
            let block = blocks::encode(together.iter());
            plain.extend(together[0].workspace.as_bytes());
            plain.extend(u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes());
            plain.extend(block);
        }
        Self(pack(plain))
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn calls(&self) -> Option<Vec<Call>> {
        let plain;
        let mut rest = match self.0.split_first()? {
            (&PLAIN, rest) => rest,
            (&PACKED, packed) => {
                plain = unpack(packed)?;
                &plain
            }
            _ => return None,
        };
        let mut calls = Vec::new();
        while !rest.is_empty() {
            let workspace = Id::from_bytes(take(&mut rest)?);
            let length = u32::from_be_bytes(take(&mut rest)?);
            let block = rest.split_off(..usize::try_from(length).ok()?)?;
            calls.extend(blocks::decode(workspace, block).ok()?);
        }
        Some(calls)
    }

    fn value(&self) -> Value {
        if self.is_empty() {
            Value::Null
        } else {
            Value::from(self.0.clone())
        }
    }
}

fn pack(plain: Vec<u8>) -> Vec<u8> {
    if plain.len() <= WORTH_PACKING {
        return plain;
    }
    match zstd::bulk::compress(&plain[1..], 1) {
        Ok(packed) => [&[PACKED], &*packed].concat(),
        Err(_) => plain,
    }
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let size = zstd::bulk::Decompressor::upper_bound(packed)?;
    zstd::bulk::decompress(packed, size.min(MOST_BYTES)).ok()
}

/// Replaces what a server has under way; false when it was taken for dead.
pub(super) async fn keep(tx: &mut Tx, node: NodeId, calls: &UnderWay) -> Result<bool, StoreError> {
    let kept = tx
        .query("UPDATE ledger_nodes SET under_way = $2 WHERE id = $1 AND deadline > 0")
        .bind(node)
        .bind(calls.value())
        .execute()
        .await?;
    Ok(kept > 0)
}

/// Puts up to `most` of the calls that a server that died had under way on record as open, unless they were
/// closed since. Returns how many there were.
pub(crate) async fn open_under_way(
    tx: &mut Tx,
    node: NodeId,
    most: u32,
) -> Result<usize, StoreError> {
    let left = tx
        .query("SELECT under_way FROM ledger_nodes WHERE id = $1 AND under_way IS NOT NULL")
        .bind(node)
        .fetch_optional()
        .await?;
    let Some(left) = left.map(UnderWay) else {
        return Ok(0);
    };
    let mut calls = left.calls().unwrap_or_else(|| {
        // Budgets that this server has leased must not wait for ever for what nobody can read.
        tracing::error!("what a server that died had under way is damaged or of a newer version");
        Vec::new()
    });
    let rest = calls.split_off(calls.len().min(most as usize));
    let looked_at = calls.len();
    let closed = blocks::those_in_blocks(tx, &calls.iter().collect::<Vec<_>>()).await?;
    calls.retain(|call| !closed.contains(&call.id));
    let row = |call| CallRow {
        call,
        slices: Slices::default(),
        on_record: OnRecord::Open,
    };
    let rows = calls.into_iter().map(|call| open_values(node, &row(call)));
    let rows: Vec<_> = rows.collect();
    tx.execute_each(OPEN, &rows).await?;
    tx.query("UPDATE ledger_nodes SET under_way = $2 WHERE id = $1")
        .bind(node)
        .bind(UnderWay::of(rest).value())
        .execute()
        .await?;
    Ok(looked_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_reads_back_and_damage_is_noticed() {
        for count in [1, 3, 500] {
            let mut calls: Vec<_> = (0..count).map(blocks::tests::call).collect();
            for (number, call) in calls.iter_mut().enumerate() {
                call.workspace = Id::from_bytes([u8::try_from(number % 3).unwrap(); 12]);
            }
            let kept = UnderWay::of(calls.clone());
            assert_eq!(kept.0[0], if count < 100 { PLAIN } else { PACKED });
            calls.sort_by_key(|call| (call.workspace, call.id));
            assert_eq!(format!("{:?}", kept.calls().unwrap()), format!("{calls:?}"));
            assert!(
                UnderWay(kept.0[..kept.0.len() - 1].to_vec())
                    .calls()
                    .is_none()
            );
            assert!(UnderWay([&[9], &kept.0[1..]].concat()).calls().is_none());
        }
        assert!(UnderWay::of(Vec::new()).is_empty());
    }
}
