//! A content that arrives piece by piece: kept in memory while it is small, on disk from then on.

use std::io::{self, BufWriter, Write};

use tempfile::NamedTempFile;

use super::{BlobError, Digest, LARGE_CONTENT, Staging};

/// Few, large writes: archives are unpacked in pieces of 8 KiB.
const BUFFER: usize = 256 * 1024;

/// Writes one content into a [`Staging`]; made by [`Staging::writer`].
///
/// An error of `write` says like any other `std::io::Write` that nothing of that piece was
/// taken; turned into a [`BlobError`] it tells [`BlobError::TooLarge`] from the rest.
pub struct ContentWriter<'s, 'k> {
    staging: &'s mut Staging<'k>,
    hasher: blake3::Hasher,
    size: u64,
    body: Body,
}

enum Body {
    Small(Vec<u8>),
    Large(BufWriter<NamedTempFile>),
}

impl<'s, 'k> ContentWriter<'s, 'k> {
    pub(super) fn new(staging: &'s mut Staging<'k>) -> Self {
        Self {
            staging,
            hasher: blake3::Hasher::new(),
            size: 0,
            body: Body::Small(Vec::new()),
        }
    }

    /// Ends the content and adds it to the staging; returns its digest and size.
    pub fn finish(self) -> Result<(Digest, u64), BlobError> {
        let digest = self.hasher.finalize().into();
        match self.body {
            Body::Small(content) => self.staging.take_small(digest, content)?,
            Body::Large(file) => self.staging.take_large(digest, self.size, |_| Ok(file))?,
        }
        Ok((digest, self.size))
    }

    /// Moves what was held in memory to a file of its own.
    fn spill(&mut self) -> io::Result<()> {
        if let Body::Small(content) = &mut self.body {
            let mut file = BufWriter::with_capacity(BUFFER, self.staging.disk.new_temporary()?);
            file.write_all(content)?;
            self.body = Body::Large(file);
        }
        Ok(())
    }
}

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let size = self.size + piece.len() as u64;
        self.staging.check_room(size)?;
        if size >= LARGE_CONTENT {
            self.spill()?;
        }
        let taken = match &mut self.body {
            Body::Small(content) => content.write(piece)?,
            Body::Large(file) => file.write(piece)?,
        };
        self.hasher.update(&piece[..taken]);
        self.size += taken as u64;
        Ok(taken)
    }

    /// Nothing to do: a content counts once it is finished.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
