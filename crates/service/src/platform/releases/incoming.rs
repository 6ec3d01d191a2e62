//! One content that arrives piece by piece, of any size, in bounded memory.
//!
//! Between two pieces no thread waits: a sender may be slow.

use super::limits::{ReleaseLimits, storing};
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::projects};
use estrade_blobs::{BlobError, Content, Digest, PublishedBlobs};
use estrade_model::ProjectId;
use estrade_model::project::ProjectKey;
use estrade_model::team::Role;
use estrade_store::{Tx, blob_rows, blob_uploads, projects as project_rows};
use std::io::Write;

/// How much waits in memory for one write to disk.
const BUFFER_SIZE: usize = 256 * 1024;
/// How many of the first bytes are kept, to tell what kind of content it is.
const MAGIC_BYTES: usize = 4;

/// A content that is being received for a project. Dropping it leaves nothing behind.
pub struct IncomingContent {
    project: ProjectId,
    limits: ReleaseLimits,
    content: Content,
    waiting: Vec<u8>,
    head: Vec<u8>,
    size: u64,
}

/// Begins to receive a content.
pub async fn begin_content(core: &Core, scope: &Scope, project: &str) -> Result<IncomingContent> {
    // The write checks the role again: the upload may take hours.
    scope.read_projects_as(ProjectOperation::Write, Role::Developer)?;
    let row = projects::find_project(core, scope, project).await?;
    Ok(IncomingContent {
        project: row.id,
        limits: ReleaseLimits::of(core, &row.plan),
        content: core.blobs.receive(),
        waiting: Vec::new(),
        head: Vec::new(),
        size: 0,
    })
}

impl IncomingContent {
    /// Most bytes that it may have.
    pub fn max_bytes(&self) -> u64 {
        self.limits.bytes()
    }

    /// Takes the next piece.
    pub async fn write(mut self, piece: &[u8]) -> Result<Self> {
        self.size += piece.len() as u64;
        self.limits.check(self.size, || "the content is".into())?;
        let head = MAGIC_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..head]);
        if self.waiting.len() + piece.len() > BUFFER_SIZE {
            let waiting = std::mem::take(&mut self.waiting);
            self.content = blocking(self.content, move |content| {
                content.write_all(&waiting)?;
                Ok(())
            })
            .await?;
        }
        self.waiting.extend_from_slice(piece);
        Ok(self)
    }

    /// The last piece has come.
    pub async fn end(mut self) -> Result<ReceivedContent> {
        let waiting = self.waiting;
        let content = if self.content.size() == 0 {
            // Small, so that it stays in memory: no thread is needed for it.
            let written = self.content.write_all(&waiting);
            written.map_err(BlobError::from).map_err(storing)?;
            self.content
        } else {
            let write_last = move |content: &mut Content| Ok(content.write_all(&waiting)?);
            blocking(self.content, write_last).await?
        };
        Ok(ReceivedContent {
            project: self.project,
            limits: self.limits,
            digest: content.digest(),
            head: self.head,
            content,
        })
    }
}

async fn blocking(
    mut content: Content,
    work: impl FnOnce(&mut Content) -> std::result::Result<(), BlobError> + Send + 'static,
) -> Result<Content> {
    let worked = move || work(&mut content).map(|()| content);
    tokio::task::spawn_blocking(worked)
        .await
        .map_err(Error::internal)?
        .map_err(storing)
}

/// A content that was received whole; not durable yet.
pub struct ReceivedContent {
    pub(super) project: ProjectId,
    limits: ReleaseLimits,
    content: Content,
    digest: Digest,
    pub(super) head: Vec<u8>,
}

impl ReceivedContent {
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How long it is.
    pub fn size(&self) -> u64 {
        self.content.size()
    }

    /// Makes it durable, unless it is stored already.
    pub(super) async fn publish(self, core: &Core) -> Result<PublishedBlobs> {
        let mut staging = self.limits.stage(core);
        let content = self.content;
        let publish = move || {
            staging.adopt(content)?;
            staging.publish()
        };
        tokio::task::spawn_blocking(publish)
            .await
            .map_err(Error::internal)?
            .map_err(storing)
    }
}

/// Notes in a transaction that a published content is needed.
pub(super) async fn keep_content(
    tx: &mut Tx,
    new: &[estrade_blobs::StoredBlob],
    digest: Digest,
) -> Result<()> {
    let known = if new.is_empty() {
        vec![digest]
    } else {
        Vec::new()
    };
    if !blob_rows::keep_blobs(tx, new, &known).await? {
        return Err(cleaned_up());
    }
    Ok(())
}

/// The error when contents were garbage-collected between look-up and commit.
pub(super) fn cleaned_up() -> Error {
    Error::Unavailable("contents were cleaned up while the release was received".into())
}

/// Ends what began with publishing, as far as the outcome of the commit is known.
pub(super) fn settle<T>(published: PublishedBlobs, committed: &Result<T>) {
    match committed {
        // A refusal was certainly rolled back; after a failure the commit is in doubt.
        Err(error) if !error.is_failure() => published.discard(),
        _ => published.keep(),
    }
}

/// Keeps a content for a release that will name it; true when the project did not have it.
///
/// It is durable when this returns. `digest_mismatch` when it is not what was announced.
pub async fn keep_upload(
    core: &Core,
    scope: &Scope,
    received: ReceivedContent,
    announced: Digest,
) -> Result<bool> {
    if received.digest() != announced {
        return Err(Error::Invalid {
            code: "digest_mismatch",
            message: format!(
                "the body's BLAKE3 hash is {}, not the one in the path; send the content that it names",
                received.digest()
            ),
        });
    }
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
    let (visible, project, now) = (permission.projects(), received.project, core.now());
    let published = received.publish(core).await?;
    let (new, held) = (published.blobs().to_vec(), published.hold());
    let noted = permission
        .transact(core, move |tx| {
            let (new, _held) = (new.clone(), &held);
            Box::pin(async move {
                let key = ProjectKey::Id(project);
                // It may have been deleted since the upload began.
                if project_rows::find_project(tx, visible, &key)
                    .await?
                    .is_none()
                {
                    return Err(Error::NotFound("the project"));
                }
                keep_content(tx, &new, announced).await?;
                Ok(blob_uploads::note_upload(tx, project, announced, now).await?)
            })
        })
        .await;
    settle(published, &noted);
    noted
}
