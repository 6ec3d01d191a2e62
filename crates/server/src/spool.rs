//! Bodies that may be large, such as the files of a release.
//!
//! A small one stays in memory, and so does a larger one if it has a `Content-Length` and there is a permit
//! for it. Others go to an unnamed temporary file, which the system removes when it is closed, also
//! when the process dies. Only so many of these exist at once.

use crate::api_error::ApiError;
use crate::body_budget::{BodyReservation, Client};
use crate::body_reader::{BodyLimits, BodyReader};
use crate::fair_slots::{FairSlots, Slot};
use crate::strict_json;
use axum::body::Body;
use axum::http::Request;
use blake3::{Hash, Hasher};
use bytes::Bytes;
use estrade_service::Error;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What any body may hold in memory; also the size of each write to a file.
const MAX_IN_MEMORY: usize = 1024 * 1024;
/// What a body may hold in memory that has a permit: most releases. To write it to a file and to read it
/// again takes as long as to store its files.
const MAX_PERMITTED_IN_MEMORY: usize = 8 * 1024 * 1024;
/// Bodies that have a permit at once: as many as are parsed at once.
const MEMORY_PERMITS: usize = 2;
/// A body on disk up to this size is read whole to be parsed: from a file that takes several times
/// as long. Only a few are parsed at once.
const MAX_READ_WHOLE: u64 = 16 * 1024 * 1024;
/// JSON up to this size is parsed where it is; more would hold up other requests.
const MAX_PARSED_INLINE: u64 = 64 * 1024;

/// The place where large bodies wait to be read.
#[derive(Debug, Clone)]
pub struct SpoolRoom {
    directory: PathBuf,
    slots: FairSlots<Client>,
    memory_permits: Arc<Semaphore>,
}

impl SpoolRoom {
    /// Files go to `directory`, which must exist; at most `at_once` of them exist at a time, and a
    /// quarter of that for one client.
    pub fn new(directory: PathBuf, at_once: usize) -> Self {
        Self {
            directory,
            slots: FairSlots::new(at_once),
            memory_permits: Arc::new(Semaphore::new(MEMORY_PERMITS)),
        }
    }

    /// Where the files are, on the disk with the data directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Receives a whole body.
    pub async fn receive(
        &self,
        request: Request<Body>,
        limits: BodyLimits,
    ) -> Result<Spool, ApiError> {
        let mut reader = BodyReader::new(request, limits)?;
        let mut permit = self.try_permit(reader.announced());
        let mut buffer = Vec::with_capacity(permit.as_ref().map_or(0, MemoryPermit::bytes));
        let mut file: Option<Writer> = None;
        while let Some(chunk) = reader.next().await? {
            if buffer.len() + chunk.len()
                > permit.as_ref().map_or(MAX_IN_MEMORY, MemoryPermit::bytes)
            {
                let writer = match file.take() {
                    Some(writer) => writer,
                    None => self.open(limits, reader.client()).await?,
                };
                file = Some(writer.write(std::mem::take(&mut buffer)).await?);
                reader.release();
                permit = None;
            }
            reader.reserve(chunk.len() as u64)?;
            buffer.extend_from_slice(&chunk);
        }
        match file {
            None => Ok(Spool::in_memory(buffer, permit, reader.into_reservation())),
            Some(writer) => Ok(writer.write(buffer).await?.finish()),
        }
    }

    /// A permit for a body of this length, if it needs one and may have one.
    fn try_permit(&self, announced: Option<u64>) -> Option<MemoryPermit> {
        let bytes = usize::try_from(announced?).ok()?;
        if !(MAX_IN_MEMORY + 1..=MAX_PERMITTED_IN_MEMORY).contains(&bytes) {
            return None;
        }
        let permit = Arc::clone(&self.memory_permits).try_acquire_owned().ok()?;
        Some(MemoryPermit {
            bytes,
            _permit: permit,
        })
    }

    async fn open(&self, limits: BodyLimits, client: Client) -> Result<Writer, ApiError> {
        let Ok(slot) = timeout(limits.idle, self.slots.acquire(client)).await else {
            return Err(if self.slots.has_its_share(client) {
                ApiError::TooManyBodies
            } else {
                ApiError::Timeout
            });
        };
        let directory = self.directory.clone();
        let file = blocking(move || tempfile::tempfile_in(directory)).await?;
        Ok(Writer {
            file,
            hasher: Hasher::new(),
            length: 0,
            slot,
        })
    }
}

/// The right to be in memory.
#[derive(Debug)]
struct MemoryPermit {
    bytes: usize,
    _permit: OwnedSemaphorePermit,
}

impl MemoryPermit {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A file that is being filled.
struct Writer {
    file: File,
    hasher: Hasher,
    length: u64,
    slot: Slot<Client>,
}

impl Writer {
    async fn write(mut self, bytes: Vec<u8>) -> Result<Self, Error> {
        blocking(move || {
            self.hasher.update(&bytes);
            self.length += bytes.len() as u64;
            self.file.write_all(&bytes)?;
            Ok(self)
        })
        .await
    }

    fn finish(self) -> Spool {
        Spool {
            length: self.length,
            content: Content::File {
                file: self.file,
                hash: self.hasher.finalize(),
                _slot: self.slot,
            },
        }
    }
}

/// Disk work, away from the threads that serve sockets.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(|error| match error.kind() {
            // A full disk is temporary: reported as unavailable, not as an internal error.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Unavailable(error.into())
            }
            _ => Error::internal(error),
        }),
        Err(broken) => Err(Error::internal(broken)),
    }
}

/// A body that was received whole.
#[derive(Debug)]
pub struct Spool {
    content: Content,
    length: u64,
}

#[derive(Debug)]
enum Content {
    Memory {
        bytes: Bytes,
        _permit: Option<MemoryPermit>,
        _reserved: BodyReservation,
    },
    File {
        file: File,
        hash: Hash,
        _slot: Slot<Client>,
    },
}

impl Spool {
    fn in_memory(bytes: Vec<u8>, permit: Option<MemoryPermit>, reserved: BodyReservation) -> Self {
        Self {
            length: bytes.len() as u64,
            content: Content::Memory {
                bytes: bytes.into(),
                _permit: permit,
                _reserved: reserved,
            },
        }
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// BLAKE3 of the bytes.
    pub fn hash(&self) -> Hash {
        match &self.content {
            Content::Memory { bytes, .. } => blake3::hash(bytes),
            Content::File { hash, .. } => *hash,
        }
    }

    /// Whether it went to a file.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.content, Content::File { .. })
    }

    /// Whether it is so large that only a few should be read at once.
    pub fn is_large(&self) -> bool {
        self.length > MAX_IN_MEMORY as u64
    }

    /// All bytes at once, if they are not too many to be held for a moment. Blocks.
    pub fn whole(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        match &self.content {
            Content::Memory { bytes, .. } => Ok(Some(Cow::Borrowed(bytes))),
            Content::File { .. } if self.length > MAX_READ_WHOLE => Ok(None),
            Content::File { .. } => {
                let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or(0));
                self.reader()?.read_to_end(&mut bytes)?;
                Ok(Some(Cow::Owned(bytes)))
            }
        }
    }

    /// The bytes, from the start. Reading blocks when they are on disk.
    pub fn reader(&self) -> io::Result<SpoolReader<'_>> {
        match &self.content {
            Content::Memory { bytes, .. } => Ok(SpoolReader::Memory(Cursor::new(bytes))),
            Content::File { file, .. } => {
                let mut file = file;
                file.seek(SeekFrom::Start(0))?;
                Ok(SpoolReader::File(BufReader::with_capacity(
                    MAX_IN_MEMORY / 4,
                    file,
                )))
            }
        }
    }

    /// Parses it as JSON, with the same strictness as any other body.
    pub async fn into_json<T: DeserializeOwned + Send + 'static>(self) -> Result<T, ApiError> {
        if self.length <= MAX_PARSED_INLINE {
            return self.parse().map_err(ApiError::from);
        }
        let parsed = blocking(move || Ok(self.parse())).await?;
        Ok(parsed?)
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        match &self.content {
            Content::Memory { bytes, .. } => Ok(strict_json::from_slice(bytes)?),
            Content::File { .. } => {
                let reader = self.reader().map_err(Error::internal)?;
                Ok(strict_json::from_reader(reader)?)
            }
        }
    }
}

/// Reads a [`Spool`] from start to end, and again.
#[derive(Debug)]
pub enum SpoolReader<'s> {
    Memory(Cursor<&'s Bytes>),
    /// From its file.
    File(BufReader<&'s File>),
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => bytes.read(buf),
            Self::File(file) => file.read(buf),
        }
    }
}

impl Seek for SpoolReader<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => bytes.seek(position),
            Self::File(file) => file.seek(position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;
    use serde_json::Value;

    async fn receive(room: &SpoolRoom, bytes: Vec<u8>) -> Result<Spool, ApiError> {
        receive_announced(room, bytes, None).await
    }

    async fn receive_announced(
        room: &SpoolRoom,
        bytes: Vec<u8>,
        announced: Option<usize>,
    ) -> Result<Spool, ApiError> {
        let limits = BodyLimits {
            idle: std::time::Duration::from_millis(50),
            ..BodyLimits::at_most(16 * 1024 * 1024)
        };
        let chunks: Vec<_> = bytes
            .chunks(50_000)
            .map(|chunk| io::Result::Ok(chunk.to_vec()))
            .collect();
        let body = Body::from_stream(futures_util::stream::iter(chunks));
        let mut request = Request::new(body);
        if let Some(length) = announced {
            request
                .headers_mut()
                .insert(header::CONTENT_LENGTH, length.into());
        }
        room.receive(request, limits).await
    }

    #[tokio::test]
    async fn a_few_that_say_how_long_they_are_stay_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let room = SpoolRoom::new(directory.path().to_owned(), 4);
        let send = |size| receive_announced(&room, vec![b' '; size], Some(size));
        let permitted = [
            send(MAX_PERMITTED_IN_MEMORY).await.unwrap(),
            send(MAX_IN_MEMORY + 1).await.unwrap(),
        ];
        assert!(
            permitted
                .iter()
                .all(|spool| !spool.is_on_disk() && spool.is_large())
        );
        assert_eq!(permitted.len(), MEMORY_PERMITS);
        assert!(send(MAX_PERMITTED_IN_MEMORY).await.unwrap().is_on_disk());
        assert!(!send(MAX_IN_MEMORY).await.unwrap().is_on_disk());
        drop(permitted);
        assert!(
            send(MAX_PERMITTED_IN_MEMORY + 1)
                .await
                .unwrap()
                .is_on_disk()
        );
        assert!(!send(MAX_PERMITTED_IN_MEMORY).await.unwrap().is_on_disk());
        // A client that sends more than it said has no claim to more room.
        let liar = receive_announced(&room, vec![b' '; 3_000_000], Some(2_000_000)).await;
        let liar = liar.unwrap();
        assert!(liar.is_on_disk() && liar.length() == 3_000_000);
    }

    #[tokio::test]
    async fn small_stays_in_memory_and_large_goes_to_a_file_without_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let room = SpoolRoom::new(directory.path().to_owned(), 1);
        for (size, on_disk) in [
            (0, false),
            (100, false),
            (MAX_IN_MEMORY, false),
            (MAX_IN_MEMORY + 1, true),
            (5_000_000, true),
        ] {
            let bytes: Vec<u8> = (0..size)
                .map(|i: usize| u8::try_from(i % 251).unwrap())
                .collect();
            let spool = receive(&room, bytes.clone()).await.unwrap();
            assert_eq!(spool.is_on_disk(), on_disk, "{size}");
            assert_eq!(
                (spool.length(), spool.hash()),
                (size as u64, blake3::hash(&bytes))
            );
            for _ in 0..2 {
                let mut read = Vec::new();
                spool.reader().unwrap().read_to_end(&mut read).unwrap();
                assert!(read == bytes);
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn only_so_many_large_bodies_are_held_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let room = SpoolRoom::new(directory.path().to_owned(), 1);
        let first = receive(&room, vec![b' '; 2_000_000]).await.unwrap();
        assert!(matches!(
            receive(&room, vec![b' '; 2_000_000]).await,
            Err(ApiError::TooManyBodies)
        ));
        assert!(receive(&room, vec![b' '; 1000]).await.is_ok());
        drop(first);
        assert!(receive(&room, vec![b' '; 2_000_000]).await.is_ok());
    }

    #[tokio::test]
    async fn json_is_parsed_strictly_from_both_places() {
        let directory = tempfile::tempdir().unwrap();
        let room = SpoolRoom::new(directory.path().to_owned(), 4);
        for filler in [10, 2_000_000] {
            let json =
                |tail: &str| format!(r#"{{"data":"{}"{tail}}}"#, "x".repeat(filler)).into_bytes();
            let spool = receive(&room, json("")).await.unwrap();
            assert_eq!(
                spool.into_json::<Value>().await.unwrap()["data"]
                    .as_str()
                    .unwrap()
                    .len(),
                filler
            );
            let spool = receive(&room, json(r#","a":1,"a":2"#)).await.unwrap();
            let error = spool.into_json::<Value>().await.unwrap_err();
            assert_eq!(error.message(), "a: the key is there twice");
        }
    }
}
