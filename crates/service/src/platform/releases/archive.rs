//! The files of a release as a tar: for downloads, and for the engine that builds them.
//!
//! Files are sorted by path and have no times and owners of their own. The archive is made piece by
//! piece as it is read, so a slow reader holds no thread and little memory.

use crate::{Core, Error, Result};
use bytes::Bytes;
use estrade_blobs::{BlobStore, DigestMap, StoredBlob};
use estrade_store::blob_rows;
use estrade_store::manifest::ManifestFile;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use std::collections::HashSet;
use std::io::{self, Cursor, Read, Write};

/// How much is read from a file at once.
const PIECE: usize = 64 * 1024;
/// Minimum size of a chunk of the archive.
const CHUNK: usize = 64 * 1024;
/// Tar files are made of blocks of this size.
const BLOCK: usize = 512;

/// How an archive is packed.
pub(super) enum Packing {
    /// With gzip, all files alike, so that the bytes never change.
    Download,
    /// All files, with scripts and programs marked as executable, since uploads have no modes. These texts
    /// are added, or replace files with the same path.
    Build(Vec<(String, String)>),
}

/// An archive that is being written.
pub(super) struct Archive {
    blobs: BlobStore,
    places: DigestMap<StoredBlob>,
    files: std::vec::IntoIter<ManifestFile>,
    texts: std::vec::IntoIter<(String, String)>,
    open: Option<OpenFile>,
    marks_programs: bool,
    /// None once the archive is complete.
    out: Option<Out>,
}

enum Out {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Plain(Vec<u8>),
}

struct OpenFile {
    content: Box<dyn Read + Send>,
    size: u64,
}

impl Archive {
    /// An archive of these files; none when some of their contents are gone.
    pub(super) async fn open(
        core: &Core,
        mut files: Vec<ManifestFile>,
        packing: Packing,
    ) -> Result<Option<Self>> {
        let (out, texts) = match packing {
            Packing::Download => {
                let gzip = GzBuilder::new().mtime(0);
                let gzip = gzip.write(Vec::new(), Compression::default());
                (Out::Gzip(Box::new(gzip)), None)
            }
            Packing::Build(texts) => (Out::Plain(Vec::new()), Some(texts)),
        };
        let marks_programs = texts.is_some();
        let texts = texts.unwrap_or_default();
        files.retain(|file| texts.iter().all(|(path, _)| path != file.path.as_str()));
        let digests: Vec<_> = files.iter().map(|file| file.digest).collect();
        let places = blob_rows::read_blobs(&core.db, &digests).await?;
        if digests.iter().any(|digest| !places.contains_key(digest)) {
            return Ok(None);
        }
        let archive = Self {
            blobs: core.blobs.clone(),
            places,
            files: files.into_iter(),
            texts: texts.into_iter(),
            open: None,
            marks_programs,
            out: Some(out),
        };
        // Missing contents are detected now, while the response can still have an error status.
        let checked =
            tokio::task::spawn_blocking(|| archive.check_contents().map(|()| archive).ok());
        checked.await.map_err(Error::internal)
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, io::Result<Bytes>> {
        try_unfold(self, next_chunk).boxed()
    }

    fn check_contents(&self) -> Result<()> {
        let mut checked = HashSet::new();
        for blob in self.places.values() {
            if checked.insert(blob.location.object()) {
                self.blobs.open_reader(blob).map_err(Error::internal)?;
            }
        }
        Ok(())
    }

    /// The next piece of the archive; none at its end.
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let Some(mut out) = self.out.take() else {
            return Ok(None);
        };
        let mut piece = vec![0; PIECE];
        while out.written().len() < CHUNK {
            if !self.write_some(&mut out, &mut piece)? {
                return Ok(Some(out.finish()?.into()));
            }
        }
        let chunk = std::mem::take(out.written());
        self.out = Some(out);
        Ok(Some(chunk.into()))
    }

    /// Writes a header or a piece of a content; false once the end of the archive is written.
    fn write_some(&mut self, out: &mut impl Write, piece: &mut [u8]) -> io::Result<bool> {
        if let Some(file) = &mut self.open {
            let count = file.content.read(piece)?;
            out.write_all(&piece[..count])?;
            if count == 0 {
                out.write_all(padding(file.size))?;
                self.open = None;
            }
            return Ok(true);
        }
        if let Some(file) = self.files.next() {
            let blob = self.places.get(&file.digest);
            let blob = blob.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let mut content = self.blobs.open_reader(blob).map_err(io::Error::from)?;
            let begin = if self.marks_programs {
                first_bytes(&mut content)?
            } else {
                Vec::new()
            };
            out.write_all(&header(file.path.as_str(), file.size, mode(&begin))?)?;
            self.open = Some(OpenFile {
                content: Box::new(Cursor::new(begin).chain(content)),
                size: file.size,
            });
        } else if let Some((path, text)) = self.texts.next() {
            let size = text.len() as u64;
            out.write_all(&header(&path, size, mode(&[]))?)?;
            self.open = Some(OpenFile {
                content: Box::new(Cursor::new(text)),
                size,
            });
        } else {
            // Two empty blocks end an archive.
            out.write_all(&[0; 2 * BLOCK])?;
            return Ok(false);
        }
        Ok(true)
    }
}

async fn next_chunk(mut archive: Archive) -> io::Result<Option<(Bytes, Archive)>> {
    tokio::task::spawn_blocking(move || Ok(archive.next_chunk()?.map(|chunk| (chunk, archive))))
        .await
        .map_err(io::Error::other)?
}

impl Out {
    fn written(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(gzip) => gzip.get_mut(),
            Self::Plain(bytes) => bytes,
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(gzip) => gzip.finish(),
            Self::Plain(bytes) => Ok(bytes),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(gzip) => gzip.write(bytes),
            Self::Plain(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn first_bytes(content: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::with_capacity(4);
    content.take(4).read_to_end(&mut begin)?;
    Ok(begin)
}

/// Scripts and programs can be started, the rest is only read.
fn mode(begin: &[u8]) -> u32 {
    if begin.starts_with(b"#!") || begin.starts_with(b"\x7fELF") {
        0o755
    } else {
        0o644
    }
}

/// The blocks that stand before a content; a long path has some of its own.
fn header(path: &str, size: u64, mode: u32) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header, path, io::empty())?;
    Ok(builder.get_ref().clone())
}

/// What fills a content up to whole blocks.
fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { &[] } else { &ZEROS[over..] }
}
