//! Whether a file is what its name says.

use std::fs::File;
use std::io;

/// Reads a whole file and compares.
pub(super) fn is_intact(file: &File, size: u64, hash: blake3::Hash) -> io::Result<bool> {
    if file.metadata()?.len() != size {
        return Ok(false);
    }
    Ok(hash_file(file)?.0 == hash)
}

/// The hash of a file, and how many bytes it has.
pub(in crate::s3) fn hash_file(file: &File) -> io::Result<(blake3::Hash, u64)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok((hasher.finalize(), hasher.count()))
}
