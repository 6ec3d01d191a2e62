//! The source of a release: the archive that it was made from, or its files as one.
//!
//! The archive of one release always has the same bytes: files sorted by path, no times, owners or
//! modes of their own. It is made piece by piece as it is read, so a slow reader holds no thread and
//! little memory.

use super::NOT_FOUND;
use crate::{Core, Error, Result, Scope};
use bytes::Bytes;
use estrade_model::release::{ArchiveFormat, SourceId};
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::blobs::{BlobStore, DigestMap, StoredBlob};
use estrade_store::manifest::{Manifest, ManifestFile};
use estrade_store::releases::ReleaseRow;
use estrade_store::{artifacts, blob_rows, releases, sources};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use std::collections::HashSet;
use std::io::{self, Read, Write};

/// How much is read from a file at once.
const PIECE: usize = 64 * 1024;
/// How much of the archive is handed over at once, at least.
const CHUNK: usize = 64 * 1024;
/// Tar files are made of blocks of this size.
const BLOCK: usize = 512;

const GONE: Error = Error::Gone("the source of this release");

/// An archive in pieces.
pub type SourceStream = BoxStream<'static, io::Result<Bytes>>;

/// The source of a release, and what it is.
pub struct SourceDownload {
    /// What kind of archive.
    pub format: ArchiveFormat,
    /// Its bytes.
    pub stream: SourceStream,
    /// How many there are, when that is known before they are made.
    pub length: Option<u64>,
}

/// The source of a release: the archive as it came, or its files as a `.tar.gz`; 404 when it was made
/// from an image, 410 when it is gone.
pub fn download_source<'a>(
    core: &'a Core,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<SourceDownload>> {
    Box::pin(async move {
        let row = releases::read_release(&core.db, scope.owner, id).await?;
        let row = row.ok_or(NOT_FOUND)?;
        if row.image.is_some() {
            return Err(Error::NotFound("a source of this release"));
        }
        if let Some(source) = row.source {
            return download_archive(core, row.project, source).await;
        }
        Ok(SourceDownload {
            format: ArchiveFormat::TarGz,
            stream: pack_files(core, &row).await?,
            length: None,
        })
    })
}

async fn download_archive(
    core: &Core,
    project: ProjectId,
    source: SourceId,
) -> Result<SourceDownload> {
    let source = sources::read_source(&core.db, project, source).await?;
    let source = source.ok_or(GONE)?;
    let stream = core.blobs.stream(&source.blob).await;
    Ok(SourceDownload {
        format: source.format,
        stream: stream.map_err(Error::internal)?.boxed(),
        length: Some(source.blob.size),
    })
}

async fn pack_files(core: &Core, row: &ReleaseRow) -> Result<SourceStream> {
    let artifact = row.artifact.ok_or(GONE)?;
    let manifest = artifacts::read_manifest(&core.db, artifact).await?;
    let manifest = manifest.ok_or(GONE)?;
    let digests: Vec<_> = manifest.files().iter().map(|file| file.digest).collect();
    let places = blob_rows::read_blobs(&core.db, &digests).await?;
    if digests.iter().any(|digest| !places.contains_key(digest)) {
        return Err(GONE);
    }
    let archive = Archive::new(core.blobs.clone(), &manifest, places);
    // Missing contents are told now, while there can still be a status that says so.
    let archive = tokio::task::spawn_blocking(|| archive.check_contents().map(|()| archive))
        .await
        .map_err(Error::internal)?
        .map_err(|_| GONE)?;
    Ok(try_unfold(archive, next_chunk).boxed())
}

async fn next_chunk(mut archive: Archive) -> io::Result<Option<(Bytes, Archive)>> {
    tokio::task::spawn_blocking(move || Ok(archive.next_chunk()?.map(|chunk| (chunk, archive))))
        .await
        .map_err(io::Error::other)?
}

/// An archive that is being written.
struct Archive {
    blobs: BlobStore,
    places: DigestMap<StoredBlob>,
    files: std::vec::IntoIter<ManifestFile>,
    open: Option<OpenFile>,
    /// None once the archive is complete.
    out: Option<GzEncoder<Vec<u8>>>,
}

struct OpenFile {
    content: Box<dyn Read + Send>,
    size: u64,
}

impl Archive {
    fn new(blobs: BlobStore, manifest: &Manifest, places: DigestMap<StoredBlob>) -> Self {
        let out = GzBuilder::new()
            .mtime(0)
            .write(Vec::new(), Compression::default());
        Self {
            blobs,
            places,
            files: manifest.files().to_vec().into_iter(),
            open: None,
            out: Some(out),
        }
    }

    fn check_contents(&self) -> Result<()> {
        let mut checked = HashSet::new();
        for blob in self.places.values() {
            if checked.insert(blob.place.id()) {
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
        while out.get_ref().len() < CHUNK {
            if !self.write_some(&mut out, &mut piece)? {
                return Ok(Some(out.finish()?.into()));
            }
        }
        let chunk = std::mem::take(out.get_mut());
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
        let Some(file) = self.files.next() else {
            // Two empty blocks end an archive.
            out.write_all(&[0; 2 * BLOCK])?;
            return Ok(false);
        };
        out.write_all(&header(&file)?)?;
        let blob = self.places.get(&file.digest);
        let blob = blob.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        self.open = Some(OpenFile {
            content: Box::new(self.blobs.open_reader(blob).map_err(io::Error::from)?),
            size: file.size,
        });
        Ok(true)
    }
}

/// The blocks that stand before a content; a long path has some of its own.
fn header(file: &ManifestFile) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(file.size);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header, file.path.as_str(), io::empty())?;
    Ok(builder.get_ref().clone())
}

/// What fills a content up to whole blocks.
fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { &[] } else { &ZEROS[over..] }
}
