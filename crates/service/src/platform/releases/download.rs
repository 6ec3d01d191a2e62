//! The source of a release: the archive that it was made from, or its files as one.
//!
//! The archive of one release always has the same bytes.

use super::archive::{Archive, Packing};
use super::naming::NOT_FOUND;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope};
use bytes::Bytes;
use estrade_model::release::{ArchiveFormat, SourceId};
use estrade_model::team::Role;
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::releases::ReleaseRow;
use estrade_store::{artifacts, releases, sources};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};
use std::io;

const GONE: Error = Error::Gone("the source of this release");

/// An archive in pieces.
pub type SourceStream = BoxStream<'static, io::Result<Bytes>>;

/// The source of a release, and what it is.
pub struct SourceDownload {
    /// What kind of archive.
    pub format: ArchiveFormat,
    pub stream: SourceStream,
    /// How many there are, when that is known before they are made.
    pub length: Option<u64>,
}

/// The source of a release: the archive as it came, or its files as a `.tar.gz`; 404 when it was made
/// from an image, 410 when it is gone. Not for viewers: sources may hold what is masked for them.
pub fn download_source<'a>(
    core: &'a Core,
    scope: &'a Scope,
    id: ReleaseId,
) -> BoxFuture<'a, Result<SourceDownload>> {
    Box::pin(async move {
        let visible = scope.projects(ProjectOperation::ReadSecrets)?;
        let row = releases::read_release(&core.db, visible, id).await?;
        let row = row.ok_or(NOT_FOUND)?;
        scope.read_projects_as(ProjectOperation::ReadSecrets, Role::Developer)?;
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
        stream: stream?.boxed(),
        length: Some(source.blob.size),
    })
}

async fn pack_files(core: &Core, row: &ReleaseRow) -> Result<SourceStream> {
    let artifact = row.origin.or(row.artifact).ok_or(GONE)?;
    let manifest = artifacts::read_manifest(&core.db, artifact).await?;
    let manifest = manifest.ok_or(GONE)?;
    let archive = Archive::open(core, manifest.files().to_vec(), Packing::Download).await?;
    Ok(archive.ok_or(GONE)?.into_stream())
}
