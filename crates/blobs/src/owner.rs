//! Which installation a blob store belongs to: a record of the storage says so, and nobody else removes anything there.

use super::BlobError;
use super::storage::{ObjectStorage, Record};

/// Makes sure that a storage belongs to `installation`. One without an owner becomes its own.
pub(super) fn claim(storage: &dyn ObjectStorage, installation: &str) -> Result<(), BlobError> {
    if check(storage, installation)? {
        return Ok(());
    }
    if !storage.create_record(Record::Owner, installation.as_bytes())? {
        // Another process of an installation was quicker; perhaps of this one.
        check(storage, installation)?;
    }
    Ok(())
}

/// Makes sure that a storage is `installation`'s own already.
pub(super) fn require(storage: &dyn ObjectStorage, installation: &str) -> Result<(), BlobError> {
    if check(storage, installation)? {
        Ok(())
    } else {
        Err(BlobError::NeverUsed)
    }
}

/// Whether a storage says that it belongs to `installation`; an error if to another one.
pub(super) fn check(storage: &dyn ObjectStorage, installation: &str) -> Result<bool, BlobError> {
    let Some(owner) = storage.read_record(Record::Owner)? else {
        return Ok(false);
    };
    let owner = String::from_utf8_lossy(&owner);
    if owner.trim() == installation {
        return Ok(true);
    }
    Err(BlobError::OtherInstallation {
        owner: owner.trim().chars().take(64).collect(),
    })
}
