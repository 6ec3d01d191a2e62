//! What a storage says about a migration, in a record of its own.
//!
//! A storage that is being filled, or whose contents have moved elsewhere, is not opened by any server. So at no time
//! two places of one installation can be served from.

use crate::BlobError;
use crate::storage::{ObjectStorage, Record};

/// Whether contents are moving, or have moved, as far as one storage is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MigrationState {
    /// Neither: what belongs to the installation is here, or will be.
    Settled,
    /// Contents are being copied here from another place, and may not be complete.
    Filling { from: String },
    /// They are in another place now, or are about to be.
    Moved { to: String },
}

impl MigrationState {
    pub(crate) fn read(storage: &dyn ObjectStorage) -> Result<Self, BlobError> {
        let record = storage.read_record(Record::Migration)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&record);
        // No name of a place is longer; whoever wrote more is not this program.
        let place = |text: &str| text.trim().chars().take(1024).collect();
        match text.split_once(' ') {
            Some(("filling", from)) => Ok(Self::Filling { from: place(from) }),
            Some(("moved", to)) => Ok(Self::Moved { to: place(to) }),
            _ if text.trim().is_empty() => Ok(Self::Settled),
            // Of a later version, perhaps: it must not be taken for a storage that is complete.
            _ => Err(BlobError::Filling {
                from: "an unknown place".into(),
            }),
        }
    }

    /// Durable on return.
    pub(crate) fn write(&self, storage: &dyn ObjectStorage) -> Result<(), BlobError> {
        let text = match self {
            Self::Settled => String::new(),
            Self::Filling { from } => format!("filling {from}\n"),
            Self::Moved { to } => format!("moved {to}\n"),
        };
        Ok(storage.replace_record(Record::Migration, text.as_bytes())?)
    }
}

/// Fails unless servers may use the storage.
pub(crate) fn check_settled(storage: &dyn ObjectStorage) -> Result<(), BlobError> {
    match MigrationState::read(storage)? {
        MigrationState::Settled => Ok(()),
        MigrationState::Filling { from } => Err(BlobError::Filling { from }),
        MigrationState::Moved { to } => Err(BlobError::Moved { to }),
    }
}
