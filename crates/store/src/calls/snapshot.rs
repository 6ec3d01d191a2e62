//! Serialises calls of several workspaces, for storage outside the database.
//!
//! Layout: for each workspace its id, the length of a block (4 bytes) and the block.

use super::blocks;
use crate::manifest::take;
use estrade_model::Id;
use estrade_model::call::Call;

/// Calls as they are at one moment, as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot(Vec<u8>);

impl Snapshot {
    /// Of these calls, sorted by workspace and id.
    pub fn of(calls: &[&Call]) -> Self {
        let mut bytes = Vec::with_capacity(calls.len() * blocks::TYPICAL_CALL_BYTES);
        for together in calls.chunk_by(|a, b| a.workspace == b.workspace) {
            let Some(first) = together.first() else {
                continue;
            };
            bytes.extend_from_slice(first.workspace.as_bytes());
            let length = bytes.len()..bytes.len() + size_of::<u32>();
            bytes.extend_from_slice(&[0; size_of::<u32>()]);
            blocks::encode_into(&mut bytes, together.iter().copied());
            let block = u32::try_from(bytes.len() - length.end).unwrap_or(u32::MAX);
            bytes[length].copy_from_slice(&block.to_be_bytes());
        }
        Self(bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The calls that bytes stand for, in the same order; none if they are damaged or of a newer version.
    pub fn calls(mut bytes: &[u8]) -> Option<Vec<Call>> {
        let mut calls = Vec::new();
        while !bytes.is_empty() {
            let workspace = Id::from_bytes(take(&mut bytes)?);
            let length = u32::from_be_bytes(take(&mut bytes)?);
            let block = bytes.split_off(..usize::try_from(length).ok()?)?;
            calls.extend(blocks::decode(workspace, block).ok()?);
        }
        Some(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_read_back_and_damage_is_noticed() {
        let mut calls: Vec<_> = (0..9).map(blocks::tests::call).collect();
        for (number, call) in calls.iter_mut().enumerate() {
            call.workspace = Id::from_bytes([u8::try_from(number / 3).unwrap(); 12]);
        }
        let snapshot = Snapshot::of(&calls.iter().collect::<Vec<_>>());
        let read = Snapshot::calls(snapshot.bytes()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{calls:?}"));
        let cut = &snapshot.bytes()[..snapshot.bytes().len() - 1];
        assert!(Snapshot::calls(cut).is_none());
        assert!(
            Snapshot::calls(Snapshot::of(&[]).bytes())
                .unwrap()
                .is_empty()
        );
    }
}
