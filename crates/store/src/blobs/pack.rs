//! The pack that a staging is writing: small contents back to back, without a frame. What lies
//! where is said by the database alone.

use std::io::{self, BufWriter, IntoInnerError, Write};

use tempfile::{NamedTempFile, TempPath};

use super::{UniqueId, disk::Disk};

const BUFFER: usize = 256 * 1024;

/// An unfinished pack under `tmp/`.
#[derive(Debug)]
pub(super) struct PackWriter {
    id: UniqueId,
    file: BufWriter<NamedTempFile>,
    length: u64,
    /// Set while a write is under way: if it fails, nobody knows how much of it arrived, and
    /// every later offset would be wrong.
    torn: bool,
}

impl PackWriter {
    pub(super) fn create(disk: &Disk, id: UniqueId) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, disk.new_temporary()?);
        Ok(Self {
            id,
            file,
            length: 0,
            torn: false,
        })
    }

    pub(super) const fn id(&self) -> UniqueId {
        self.id
    }

    /// Appends a content and returns the offset at which it begins.
    pub(super) fn append(&mut self, content: &[u8]) -> io::Result<u64> {
        self.refuse_if_torn()?;
        self.torn = true;
        self.file.write_all(content)?;
        self.torn = false;
        let offset = self.length;
        self.length += content.len() as u64;
        Ok(offset)
    }

    /// Makes the bytes durable; the pack still has its temporary name.
    pub(super) fn finish(self) -> io::Result<TempPath> {
        self.refuse_if_torn()?;
        sync_temporary(self.file)
    }

    fn refuse_if_torn(&self) -> io::Result<()> {
        if self.torn {
            return Err(io::Error::other("an earlier write to this pack failed"));
        }
        Ok(())
    }
}

/// Makes a temporary file durable and closes it: a staging of many large contents would run out
/// of file descriptors otherwise.
pub(super) fn sync_temporary(file: BufWriter<NamedTempFile>) -> io::Result<TempPath> {
    let file = file.into_inner().map_err(IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}
