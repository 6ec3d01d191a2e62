//! Which installation a blob store belongs to: a file in its root says so, and nobody else removes anything there.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::BlobError;
use super::disk::{Disk, naming, sync_directory};

/// Holds the name of the installation.
const OWNER_FILE: &str = "installation";

/// Makes sure that the store in `root` belongs to `installation`. A store without an owner becomes its own.
pub(super) fn claim(disk: &Disk) -> Result<(), BlobError> {
    let (root, installation) = (disk.root(), disk.installation());
    if check(root, installation)? {
        return Ok(());
    }
    let path = root.join(OWNER_FILE);
    let mut file = disk.new_temporary()?;
    file.write_all(installation.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(sync_directory(root)?),
        // Another process of an installation was quicker; perhaps of this one.
        Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {
            check(root, installation).map(drop)
        }
        Err(refused) => Err(naming(&path)(refused.error).into()),
    }
}

/// Whether the store in `root` says that it belongs to `installation`; an error if to another one.
pub(super) fn check(root: &Path, installation: &str) -> Result<bool, BlobError> {
    let path = root.join(OWNER_FILE);
    match fs::read_to_string(&path) {
        Ok(owner) if owner.trim() == installation => Ok(true),
        Ok(owner) => Err(BlobError::OtherInstallation {
            owner: owner.trim().chars().take(64).collect(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(naming(&path)(error).into()),
    }
}

/// Whether an installation has used the store in `root`: it has an owner, or contents.
pub(super) fn is_in_use(root: &Path) -> Result<bool, BlobError> {
    for directory in ["packs", "files"] {
        let directory = root.join(directory);
        let is_empty = match fs::read_dir(&directory) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(naming(&directory)(error).into()),
        };
        if !is_empty {
            return Ok(true);
        }
    }
    Ok(root.join(OWNER_FILE).try_exists()?)
}
