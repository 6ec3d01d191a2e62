//! How a migration is to be done, what is going on in it, and what it did.

use estrade_blobs::{Digest, ObjectId};
use estrade_store::blob_storage::StoredTotal;

/// How a migration is to be done.
#[derive(Debug, Clone, Copy)]
pub struct MigrationOptions {
    /// Objects that are copied at a time.
    pub parallel: usize,
    /// Whether servers shall use the target from now on.
    pub finish: bool,
    /// Whether contents that are damaged in the source are left behind.
    pub accept_damaged: bool,
}

/// What is going on.
#[derive(Debug, Clone, Copy)]
pub enum MigrationEvent {
    /// A switch that an earlier run left was taken back.
    SwitchCancelled,
    PassBegan {
        number: u32,
        total: StoredTotal,
    },
    /// So many bytes of contents are there, or were found to be damaged.
    Checked {
        bytes: u64,
    },
    /// From now on servers refuse new contents.
    SwitchBegan,
}

/// What a migration did.
#[derive(Debug, Clone, Default)]
pub struct MigrationReport {
    pub passes: u32,
    /// Objects and bytes that were sent.
    pub copied_objects: u64,
    pub copied_bytes: u64,
    /// What is stored in all, at the beginning of the last pass.
    pub total: StoredTotal,
    pub damaged: Vec<DamagedContent>,
    /// Whether servers use the target from now on.
    pub is_finished: bool,
}

/// A content that is missing in the source, or is not what its hash says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedContent {
    pub digest: Digest,
    /// Where it should be.
    pub object: ObjectId,
}
