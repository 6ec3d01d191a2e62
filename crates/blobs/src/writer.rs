//! A content that arrives piece by piece: kept in memory while it is small, on disk from then on.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::{BlobError, Digest, Inner, MIN_LARGE_BYTES, Staging};

/// Few, large writes: archives are unpacked in pieces of 8 KiB.
const BUFFER_BYTES: usize = 256 * 1024;

/// A content on its way in that belongs to no staging yet; made by
/// [`BlobStore::receive`](super::BlobStore::receive), ended by [`Staging::adopt`].
///
/// It can be handed from thread to thread between two writes, so that a slow sender holds none.
/// Dropped, it leaves nothing behind.
pub struct Content {
    store: Arc<Inner>,
    /// Boxed: it is 2 KiB, and contents are handed around between awaits.
    hasher: Box<blake3::Hasher>,
    size: u64,
    body: Body,
}

pub(super) enum Body {
    Small(Vec<u8>),
    Large(BufWriter<NamedTempFile>),
}

impl Content {
    pub(super) fn new(store: Arc<Inner>) -> Self {
        Self {
            store,
            hasher: Box::default(),
            size: 0,
            body: Body::Small(Vec::new()),
        }
    }

    /// How many bytes have come.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The hash of what has come.
    pub fn digest(&self) -> Digest {
        self.hasher.finalize().into()
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }

    /// Moves what was held in memory to a file of its own.
    fn spill(&mut self) -> io::Result<()> {
        if let Body::Small(content) = &mut self.body {
            let mut file =
                BufWriter::with_capacity(BUFFER_BYTES, self.store.storage.create_spool()?);
            file.write_all(content)?;
            self.body = Body::Large(file);
        }
        Ok(())
    }
}

impl Write for Content {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.size + piece.len() as u64 >= MIN_LARGE_BYTES {
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

/// Writes one content into a [`Staging`]; made by [`Staging::writer`].
///
/// An error of `write` says like any other `std::io::Write` that nothing of that piece was
/// taken; turned into a [`BlobError`] it tells [`BlobError::TooLarge`] from the rest.
pub struct ContentWriter<'s, 'k> {
    staging: &'s mut Staging<'k>,
    content: Content,
}

impl<'s, 'k> ContentWriter<'s, 'k> {
    pub(super) fn new(staging: &'s mut Staging<'k>) -> Self {
        let content = Content::new(Arc::clone(&staging.store));
        Self { staging, content }
    }

    /// Ends the content and adds it to the staging; returns its digest and size.
    pub fn finish(self) -> Result<(Digest, u64), BlobError> {
        self.staging.adopt(self.content)
    }
}

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let size = self.content.size() + piece.len() as u64;
        self.staging.check_room(size)?;
        self.content.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
