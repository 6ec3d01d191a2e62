//! Copying one object, unless it is there.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;

use super::Migration;
use crate::storage::Checksum;
use crate::{BlobError, Digest, ObjectId, StoredBlob};

/// How much of an object is in memory at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// What became of an object, as far as its rows need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It was copied: so many bytes.
    Copied(u64),
    /// It was there.
    Present,
    /// These contents are missing in the source, or are not what their hashes say. Nothing was copied, unless that was
    /// asked for.
    Damaged { contents: Vec<Digest>, copied: u64 },
}

impl Migration {
    /// Makes sure that the target has an object with the contents of these rows, which were read before this call.
    /// With `accept_damaged` a pack of which a part is damaged is copied for the sake of the rest.
    pub fn copy_object(
        &self,
        id: ObjectId,
        rows: &[StoredBlob],
        accept_damaged: bool,
    ) -> Result<CopyOutcome, BlobError> {
        let there = self.target.storage.checksum(id)?;
        let end = rows.iter().map(end_of).max().unwrap_or_default();
        // A shorter one was copied before a pack had grown.
        let candidate = there.filter(|there| there.length >= end);
        if let Some(there) = candidate
            && self.is_known_copy(id, rows, there)?
        {
            return Ok(CopyOutcome::Present);
        }
        let source = match self.source.storage.open(id) {
            Ok(file) => file,
            Err(error) => return self.give_up(id, rows, there, error),
        };
        if let Some(there) = candidate
            && matches!(id, ObjectId::Pack(_))
            && there.hash.is_some()
            && hash_range(&source, 0, there.length).ok() == there.hash
        {
            let damaged = find_damaged(&source, rows);
            if damaged.is_empty() {
                return Ok(CopyOutcome::Present);
            }
            // An earlier run copied it for the sake of the rest.
            return Ok(CopyOutcome::Damaged {
                contents: damaged,
                copied: 0,
            });
        }
        self.copy(id, rows, end, &source, there, accept_damaged)
    }

    /// Whether the hashes beside the objects say that the target has the bytes of the source.
    fn is_known_copy(
        &self,
        id: ObjectId,
        rows: &[StoredBlob],
        there: Checksum,
    ) -> Result<bool, BlobError> {
        match id {
            ObjectId::File(_) => {
                let is_it =
                    |row: &StoredBlob| row.size == there.length && Some(row.digest) == there.hash;
                Ok(rows.iter().all(is_it))
            }
            ObjectId::Pack(_) if self.source.is_bucket => {
                let here = self.source.storage.checksum(id)?;
                Ok(there.hash.is_some() && here == Some(there))
            }
            ObjectId::Pack(_) => Ok(false),
        }
    }

    /// A snapshot of the object is compared with the rows, and exactly that is put: a pack may grow meanwhile.
    fn copy(
        &self,
        id: ObjectId,
        rows: &[StoredBlob],
        end: u64,
        source: &File,
        there: Option<Checksum>,
        accept_damaged: bool,
    ) -> Result<CopyOutcome, BlobError> {
        let mut spool = self.target.storage.create_spool()?;
        if let ReadOutcome::Failed(error) = copy_bytes(source, end, spool.as_file_mut())? {
            tracing::warn!(object = %id, %error, "cannot read all of an object");
            spool.as_file().set_len(0)?;
            copy_contents(source, rows, spool.as_file())?;
        }
        let damaged = find_damaged(spool.as_file(), rows);
        if !damaged.is_empty() {
            if there.is_some() && self.has_contents(id, rows)? {
                return Ok(CopyOutcome::Present);
            }
            if !accept_damaged || damaged.len() == rows.len() {
                return Ok(CopyOutcome::Damaged {
                    contents: damaged,
                    copied: 0,
                });
            }
        }
        let copied = spool.as_file().metadata()?.len();
        let sealed = self.target.storage.seal_spool(spool)?;
        // A put to a bucket replaces the object as a whole; a file is not overwritten.
        if there.is_some() && !self.target.is_bucket {
            self.target.storage.delete(id)?;
        }
        self.target.storage.put(vec![(id, sealed)])?;
        if damaged.is_empty() {
            return Ok(CopyOutcome::Copied(copied));
        }
        Ok(CopyOutcome::Damaged {
            contents: damaged,
            copied,
        })
    }

    /// The source cannot be opened. Its copy may be good.
    fn give_up(
        &self,
        id: ObjectId,
        rows: &[StoredBlob],
        there: Option<Checksum>,
        error: io::Error,
    ) -> Result<CopyOutcome, BlobError> {
        let is_missing = error.kind() == ErrorKind::NotFound;
        match BlobError::from(error) {
            BlobError::Damaged => {}
            _ if is_missing => {}
            other => return Err(other),
        }
        if there.is_some() && self.has_contents(id, rows)? {
            return Ok(CopyOutcome::Present);
        }
        Ok(CopyOutcome::Damaged {
            contents: rows.iter().map(|row| row.digest).collect(),
            copied: 0,
        })
    }

    /// Reads an object of the target and compares it with its rows.
    fn has_contents(&self, id: ObjectId, rows: &[StoredBlob]) -> Result<bool, BlobError> {
        match self.target.storage.open(id) {
            Ok(file) => Ok(find_damaged(&file, rows).is_empty()),
            Err(error) => match BlobError::from(error) {
                unavailable @ BlobError::Unavailable { .. } => Err(unavailable),
                _ => Ok(false),
            },
        }
    }
}

fn end_of(row: &StoredBlob) -> u64 {
    row.location.offset().saturating_add(row.size)
}

/// Whether a source could be read. What fails with the copy is an error.
enum ReadOutcome {
    Complete,
    Failed(io::Error),
}

/// Copies the first bytes of a file, up to its end if that is nearer.
fn copy_bytes(source: &File, length: u64, copy: &mut File) -> io::Result<ReadOutcome> {
    let mut buffer = buffer(length);
    let mut at = 0;
    while at < length {
        let most = usize::try_from(length - at).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        match source.read_at(&mut buffer[..most], at) {
            Ok(0) => break,
            Ok(count) => {
                copy.write_all(&buffer[..count])?;
                at += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Ok(ReadOutcome::Failed(error)),
        }
    }
    Ok(ReadOutcome::Complete)
}

/// Copies those contents that can be read, each to its place.
fn copy_contents(source: &File, rows: &[StoredBlob], copy: &File) -> io::Result<()> {
    for row in rows {
        let (start, mut done) = (row.location.offset(), 0);
        let mut buffer = buffer(row.size);
        while done < row.size {
            let most = usize::try_from(row.size - done).unwrap_or(usize::MAX);
            let most = most.min(buffer.len());
            let Ok(count @ 1..) = source.read_at(&mut buffer[..most], start + done) else {
                break;
            };
            copy.write_all_at(&buffer[..count], start + done)?;
            done += count as u64;
        }
    }
    Ok(())
}

/// The contents that are not in a file where their rows say. What cannot be read is damaged.
fn find_damaged(file: &File, rows: &[StoredBlob]) -> Vec<Digest> {
    let is_damaged = |row: &&StoredBlob| {
        let found = hash_range(file, row.location.offset(), row.size);
        found.ok() != Some(row.digest)
    };
    rows.iter()
        .filter(is_damaged)
        .map(|row| row.digest)
        .collect()
}

fn hash_range(file: &File, start: u64, length: u64) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = buffer(length);
    let mut done = 0;
    while done < length {
        let most = usize::try_from(length - done).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        file.read_exact_at(&mut buffer[..most], start + done)?;
        hasher.update(&buffer[..most]);
        done += most as u64;
    }
    Ok(hasher.finalize().into())
}

fn buffer(length: u64) -> Vec<u8> {
    vec![0; usize::try_from(length.min(BUFFER_BYTES)).unwrap_or_default()]
}
