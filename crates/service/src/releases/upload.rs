//! The files of a new release on their way in.

use crate::{Core, Error, Result, Scope, projects};
use estrade_model::ProjectId;
use estrade_model::paths::{FilePath, FileTree};
use estrade_model::team::Role;
use estrade_store::blob_rows;
use estrade_store::blobs::{BlobError, Published, Staging};
use estrade_store::manifest::{Manifest, ManifestFile};
use tokio::runtime::Handle;

/// How much of a bad path an error message shows.
const SHOWN: usize = 100;

/// Files that are being received. Dropping it leaves nothing behind.
///
/// Contents go to disk as they come; what is stored already is not written again. It blocks, and it
/// asks the database: use it inside `spawn_blocking`, never on a thread that runs tasks.
pub struct Upload {
    project: ProjectId,
    staging: Staging<'static>,
    tree: FileTree,
    files: Vec<ManifestFile>,
    bytes: u64,
    caps: Caps,
}

struct Caps {
    files: usize,
    request: u64,
    disk: u64,
    plan: String,
}

/// Begins to receive the files of a new release.
pub async fn begin_upload(core: &Core, scope: &Scope, project: &str) -> Result<Upload> {
    scope.require(Role::Developer)?;
    let row = projects::find_project(core, scope, project).await?;
    let plan = core.settings.plans.get(&row.plan);
    let caps = Caps {
        files: core.settings.most_files,
        request: core.settings.most_release_bytes,
        // A plan that the configuration no longer has grants what a request may hold.
        disk: plan.map_or(u64::MAX, estrade_model::plan::Plan::disk_bytes),
        plan: row.plan,
    };
    let (db, runtime) = (core.db.clone(), Handle::current());
    let staging = core
        .blobs
        .stage(caps.request.min(caps.disk), move |digests| {
            Ok(runtime.block_on(blob_rows::known_blobs(&db, digests))?)
        });
    Ok(Upload {
        project: row.id,
        staging,
        tree: FileTree::default(),
        files: Vec::new(),
        bytes: 0,
        caps,
    })
}

impl Upload {
    /// Adds one file; an error refuses the whole release.
    pub fn add_file(&mut self, path: String, content: &[u8]) -> Result<()> {
        let Caps { files, .. } = self.caps;
        if self.files.len() >= files {
            return Err(Error::TooLarge(format!(
                "files: a release has at most {files} files"
            )));
        }
        let path = parse_path(path)?;
        self.tree
            .insert(&path)
            .map_err(|invalid| Error::invalid(format!("files: {invalid}")))?;
        let size = content.len() as u64;
        self.bytes = self.bytes.saturating_add(size);
        self.check_size(&path)?;
        let digest = self.staging.add(content).map_err(storing)?;
        self.files.push(ManifestFile { path, digest, size });
        Ok(())
    }

    fn check_size(&self, path: &FilePath) -> Result<()> {
        let Caps {
            request,
            disk,
            plan,
            ..
        } = &self.caps;
        if self.bytes > *disk {
            return Err(Error::TooLarge(format!(
                "files: with `{path}` they are larger than the disk of plan {plan} ({disk} bytes); resize the project"
            )));
        }
        if self.bytes > *request {
            return Err(Error::TooLarge(format!(
                "files: with `{path}` they are larger than {request} bytes together"
            )));
        }
        Ok(())
    }

    /// The project that the files are for.
    pub(super) fn project(&self) -> ProjectId {
        self.project
    }

    /// Refuses an upload without files.
    pub(super) fn require_files(&self) -> Result<()> {
        if self.files.is_empty() {
            return Err(Error::invalid("files: must hold at least one file"));
        }
        Ok(())
    }

    /// Makes the contents durable; blocks.
    pub(super) fn publish(self) -> Result<(Manifest, Published)> {
        let published = self.staging.publish().map_err(storing)?;
        Ok((Manifest::new(self.files), published))
    }
}

fn parse_path(path: String) -> Result<FilePath> {
    let shown: String = path.chars().take(SHOWN).collect();
    FilePath::try_from(path)
        .map_err(|invalid| Error::invalid(format!("files: `{}`: {invalid}", shown.escape_debug())))
}

fn storing(error: BlobError) -> Error {
    match error {
        // The caps are checked before; this is the second line.
        BlobError::TooLarge { max } => {
            Error::TooLarge(format!("files: they are larger than {max} bytes together"))
        }
        BlobError::NoSpace(_) | BlobError::Lookup(_) => Error::Unavailable(error.into()),
        other => Error::internal(other),
    }
}
