//! Reading contents back.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures_util::Stream;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::{BlobError, BlobStore, Digest, MIN_LARGE_BYTES, ObjectId, StoredBlob};

/// The size of the pieces of [`BlobStore::stream`].
const CHUNK_BYTES: usize = 64 * 1024;

impl BlobStore {
    /// Opens a pack or file, for who reads parts of it at will; it is fetched to this node's disk first if need be.
    pub fn open_object(&self, id: ObjectId) -> Result<File, BlobError> {
        self.inner.storage.open(id).map_err(read_error)
    }

    /// The same, if it lies on this node's disk; none if it would have to be fetched. Quick enough for an async
    /// worker.
    pub fn open_local(&self, id: ObjectId) -> Result<Option<File>, BlobError> {
        self.inner.storage.open_local(id).map_err(read_error)
    }

    /// Reads a small content (below [`MIN_LARGE_BYTES`]) into memory; [`BlobError::Damaged`] if it is not what its hash
    /// says, since a range of an object comes without a checksum.
    pub fn read(&self, blob: &StoredBlob) -> Result<Bytes, BlobError> {
        let max = MIN_LARGE_BYTES - 1;
        let size = match usize::try_from(blob.size) {
            Ok(size) if blob.size <= max => size,
            _ => return Err(BlobError::TooLarge { max }),
        };
        let (id, offset) = (blob.location.object(), blob.location.offset());
        let content = self.inner.storage.read_range(id, offset, size);
        let content = content.map_err(read_error)?;
        if Digest::of(&content) == blob.digest {
            Ok(content)
        } else {
            Err(BlobError::Damaged)
        }
    }

    /// Opens a content of any size; the reader ends where the content ends.
    pub fn open_reader(&self, blob: &StoredBlob) -> Result<impl Read + Send + use<>, BlobError> {
        Ok(self.open_positioned(blob)?.take(blob.size))
    }

    /// Opens a content of any size for reading anywhere in it.
    pub fn open_random(&self, blob: &StoredBlob) -> Result<RandomReader, BlobError> {
        Ok(RandomReader {
            file: self.open_positioned(blob)?,
            start: blob.location.offset(),
            size: blob.size,
        })
    }

    /// Streams a content of any size in pieces of 64 KiB, without checking the hash.
    ///
    /// That the content is missing is told at once and not by the first piece, so that it can
    /// still become the status of a response.
    pub async fn stream(
        &self,
        blob: &StoredBlob,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, BlobError> {
        let (store, blob) = (self.clone(), *blob);
        let file = tokio::task::spawn_blocking(move || store.open_positioned(&blob))
            .await
            .map_err(io::Error::other)??;
        let content = tokio::fs::File::from_std(file).take(blob.size);
        Ok(ReaderStream::with_capacity(content, CHUNK_BYTES))
    }

    /// Reads a content and compares its hash; [`BlobError::Damaged`] if they differ.
    pub fn verify(&self, blob: &StoredBlob) -> Result<(), BlobError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(self.open_reader(blob)?)?;
        if Digest::from(hasher.finalize()) == blob.digest {
            Ok(())
        } else {
            Err(BlobError::Damaged)
        }
    }

    /// Opens the file and goes to where the content begins.
    ///
    /// Published objects never shrink or change, so one look at the length here is enough to promise that
    /// a reader does not end early.
    fn open_positioned(&self, blob: &StoredBlob) -> Result<File, BlobError> {
        let mut file = self.open_object(blob.location.object())?;
        let offset = blob.location.offset();
        let end = offset.checked_add(blob.size).ok_or(BlobError::Damaged)?;
        if file.metadata()?.len() < end {
            return Err(BlobError::Damaged);
        }
        file.seek(SeekFrom::Start(offset))?;
        Ok(file)
    }
}

fn read_error(error: io::Error) -> BlobError {
    match error.kind() {
        ErrorKind::NotFound => BlobError::Missing,
        ErrorKind::UnexpectedEof => BlobError::Damaged,
        _ => error.into(),
    }
}

/// A content that is read anywhere; made by [`BlobStore::open_random`].
#[derive(Debug)]
pub struct RandomReader {
    file: File,
    start: u64,
    size: u64,
}

impl RandomReader {
    /// How long the content is.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The part of the content from `start`, of `length` bytes or to its end if that is nearer.
    pub fn part(&self, start: u64, length: u64) -> Part<'_> {
        let start = start.min(self.size);
        Part {
            file: &self.file,
            at: self.start + start,
            left: length.min(self.size - start),
        }
    }
}

/// A part of a content, read from front to back.
#[derive(Debug)]
pub struct Part<'r> {
    file: &'r File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
