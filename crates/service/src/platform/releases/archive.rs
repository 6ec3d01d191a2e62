//! The files of a release as a tar: for downloads, and for the engine that builds them.
//!
//! Files are sorted by path. The archive is made piece by piece as it is read (`estrade_archive::TarWriter`), so a slow
//! reader holds no thread and little memory.

use crate::{Core, Error, Result};
use bytes::Bytes;
use estrade_archive::{SourceFile, TarWriter};
use estrade_blobs::{BlobError, BlobStore, DigestMap, StoredBlob};
use estrade_store::blob_rows;
use estrade_store::manifest::ManifestFile;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use std::collections::HashSet;
use std::io::{self, Cursor};

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
    writer: TarWriter<SourceFiles>,
}

/// The files and then the texts, each opened when it is its turn.
struct SourceFiles {
    contents: Contents,
    files: std::vec::IntoIter<ManifestFile>,
    texts: std::vec::IntoIter<(String, String)>,
    marks_programs: bool,
}

struct Contents {
    blobs: BlobStore,
    stored: DigestMap<StoredBlob>,
}

impl Archive {
    /// An archive of these files; none when some of their contents are gone.
    pub(super) async fn open(
        core: &Core,
        mut files: Vec<ManifestFile>,
        packing: Packing,
    ) -> Result<Option<Self>> {
        let texts = match packing {
            Packing::Download => None,
            Packing::Build(texts) => Some(texts),
        };
        let is_build = texts.is_some();
        let texts = texts.unwrap_or_default();
        files.retain(|file| texts.iter().all(|(path, _)| path != file.path.as_str()));
        let digests: Vec<_> = files.iter().map(|file| file.digest).collect();
        let stored = blob_rows::read_blobs(&core.db, &digests).await?;
        if digests.iter().any(|digest| !stored.contains_key(digest)) {
            return Ok(None);
        }
        let blobs = core.blobs.clone();
        let contents = Contents { blobs, stored };
        // Missing contents are detected now, while the response can still have an error status. A storage that does
        // not answer is no proof that they are missing.
        let checked = tokio::task::spawn_blocking(|| contents.check().map(|()| contents));
        let contents = match checked.await.map_err(Error::internal)? {
            Ok(contents) => contents,
            Err(BlobError::Missing | BlobError::Damaged) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let files = SourceFiles {
            contents,
            files: files.into_iter(),
            texts: texts.into_iter(),
            marks_programs: is_build,
        };
        let writer = if is_build {
            TarWriter::plain(files)
        } else {
            TarWriter::gzip(files)
        };
        Ok(Some(Self { writer }))
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, io::Result<Bytes>> {
        try_unfold(self, next_chunk).boxed()
    }
}

async fn next_chunk(mut archive: Archive) -> io::Result<Option<(Bytes, Archive)>> {
    tokio::task::spawn_blocking(move || {
        let chunk = archive.writer.next_chunk()?;
        Ok(chunk.map(|chunk| (chunk.into(), archive)))
    })
    .await
    .map_err(io::Error::other)?
}

impl Contents {
    fn check(&self) -> std::result::Result<(), BlobError> {
        let mut checked = HashSet::new();
        for blob in self.stored.values() {
            if checked.insert(blob.location.object()) {
                self.blobs.open_reader(blob)?;
            }
        }
        Ok(())
    }

    fn open(&self, file: &ManifestFile, marks_program: bool) -> io::Result<SourceFile> {
        let blob = self.stored.get(&file.digest);
        let blob = blob.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let content = self.blobs.open_reader(blob).map_err(io::Error::from)?;
        Ok(SourceFile {
            path: file.path.as_str().to_owned(),
            size: file.size,
            content: Box::new(content),
            marks_program,
        })
    }
}

impl Iterator for SourceFiles {
    type Item = io::Result<SourceFile>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(file) = self.files.next() {
            return Some(self.contents.open(&file, self.marks_programs));
        }
        let (path, text) = self.texts.next()?;
        Some(Ok(SourceFile {
            path,
            size: text.len() as u64,
            content: Box::new(Cursor::new(text)),
            marks_program: false,
        }))
    }
}
