//! The pack that a staging is writing: small contents back to back, without a frame. What lies
//! where is said by the database alone.

use std::io::{self, BufWriter, IntoInnerError, Write};

use tempfile::{NamedTempFile, TempPath};

use super::{UniqueId, disk::Disk};

const BUFFER_BYTES: usize = 256 * 1024;

/// A pack that stays smaller than this has no file of its own.
const MAX_MEMORY_PACK_BYTES: usize = 1 << 20;

/// An unfinished pack.
#[derive(Debug)]
pub(super) struct PackWriter {
    id: UniqueId,
    body: Body,
    length: u64,
    /// Set while a write is under way: if it fails, nobody knows how much of it arrived, and
    /// every later offset would be wrong.
    torn: bool,
}

#[derive(Debug)]
enum Body {
    /// As long as it is small.
    Memory(Vec<u8>),
    /// Under `tmp/`.
    File(BufWriter<NamedTempFile>),
}

/// A pack to which nothing is added any more.
pub(super) enum Finished {
    /// It goes into the pack that small ones share.
    Small(Vec<u8>),
    /// It is durable, under its temporary name.
    Synced(TempPath),
}

impl PackWriter {
    pub(super) fn new(id: UniqueId) -> Self {
        Self {
            id,
            body: Body::Memory(Vec::new()),
            length: 0,
            torn: false,
        }
    }

    pub(super) const fn id(&self) -> UniqueId {
        self.id
    }

    /// Appends a content and returns the offset at which it begins.
    pub(super) fn append(&mut self, disk: &Disk, content: &[u8]) -> io::Result<u64> {
        self.refuse_if_torn()?;
        self.torn = true;
        self.write(disk, content)?;
        self.torn = false;
        let offset = self.length;
        self.length += content.len() as u64;
        Ok(offset)
    }

    fn write(&mut self, disk: &Disk, content: &[u8]) -> io::Result<()> {
        match &mut self.body {
            Body::Memory(bytes) if bytes.len() + content.len() < MAX_MEMORY_PACK_BYTES => {
                bytes.extend_from_slice(content);
                Ok(())
            }
            Body::Memory(bytes) => {
                let mut file = BufWriter::with_capacity(BUFFER_BYTES, disk.new_temporary()?);
                file.write_all(bytes)?;
                file.write_all(content)?;
                self.body = Body::File(file);
                Ok(())
            }
            Body::File(file) => file.write_all(content),
        }
    }

    /// Ends it.
    pub(super) fn finish(self) -> io::Result<Finished> {
        self.refuse_if_torn()?;
        match self.body {
            Body::Memory(bytes) => Ok(Finished::Small(bytes)),
            Body::File(file) => Ok(Finished::Synced(sync_temporary(file)?)),
        }
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
