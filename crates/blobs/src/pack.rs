//! The pack that a staging is writing: small contents back to back, without a frame. What lies
//! where is said by the database alone. As long as it is short it has no object of its own: the storage puts it
//! together with those of others.

use std::io::{self, BufWriter, IntoInnerError, Write};

use tempfile::{NamedTempFile, TempPath};

use super::UniqueId;
use super::storage::ObjectStorage;

const BUFFER_BYTES: usize = 256 * 1024;

/// A pack that stays smaller than this becomes a part of one that others share.
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
    /// In a spool file.
    File(BufWriter<NamedTempFile>),
}

/// A pack to which nothing is added any more.
pub(super) enum Finished {
    /// It becomes a part of a pack that others share.
    Small(Vec<u8>),
    /// It is an object of its own.
    Sealed(TempPath),
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
    pub(super) fn append(
        &mut self,
        storage: &dyn ObjectStorage,
        content: &[u8],
    ) -> io::Result<u64> {
        self.refuse_if_torn()?;
        self.torn = true;
        self.write(storage, content)?;
        self.torn = false;
        let offset = self.length;
        self.length += content.len() as u64;
        Ok(offset)
    }

    fn write(&mut self, storage: &dyn ObjectStorage, content: &[u8]) -> io::Result<()> {
        match &mut self.body {
            Body::Memory(bytes) if bytes.len() + content.len() < MAX_MEMORY_PACK_BYTES => {
                bytes.extend_from_slice(content);
                Ok(())
            }
            Body::Memory(bytes) => {
                let mut file = BufWriter::with_capacity(BUFFER_BYTES, storage.create_spool()?);
                file.write_all(bytes)?;
                file.write_all(content)?;
                self.body = Body::File(file);
                Ok(())
            }
            Body::File(file) => file.write_all(content),
        }
    }

    /// How many bytes it has.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn finish(self, storage: &dyn ObjectStorage) -> io::Result<Finished> {
        self.refuse_if_torn()?;
        match self.body {
            Body::Memory(bytes) => Ok(Finished::Small(bytes)),
            Body::File(file) => Ok(Finished::Sealed(seal(storage, file)?)),
        }
    }

    /// Ends a pack that is full: an object of its own, however short it is.
    pub(super) fn seal(self, storage: &dyn ObjectStorage) -> io::Result<TempPath> {
        match self.finish(storage)? {
            Finished::Sealed(file) => Ok(file),
            Finished::Small(bytes) => {
                let mut file = storage.create_spool()?;
                file.write_all(&bytes)?;
                storage.seal_spool(file)
            }
        }
    }

    fn refuse_if_torn(&self) -> io::Result<()> {
        if self.torn {
            return Err(io::Error::other("an earlier write to this pack failed"));
        }
        Ok(())
    }
}

/// Ends a spool file that was written through a buffer.
pub(super) fn seal(
    storage: &dyn ObjectStorage,
    file: BufWriter<NamedTempFile>,
) -> io::Result<TempPath> {
    storage.seal_spool(file.into_inner().map_err(IntoInnerError::into_error)?)
}
