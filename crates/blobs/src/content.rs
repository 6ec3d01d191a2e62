//! A content that arrives piece by piece: kept in memory while it is small, on disk from then on.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::shared::Shared;
use super::{Digest, MIN_LARGE_BYTES};

/// Few, large writes: archives are unpacked in pieces of 8 KiB.
const BUFFER_BYTES: usize = 256 * 1024;

/// A content on its way in that belongs to no staging yet; made by
/// [`BlobStore::receive`](super::BlobStore::receive), ended by
/// [`Staging::adopt`](super::Staging::adopt).
///
/// It can be handed from thread to thread between two writes, so that a slow sender holds none.
/// Dropped, it leaves nothing behind.
pub struct Content {
    store: Arc<Shared>,
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
    pub(super) fn new(store: Arc<Shared>) -> Self {
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
