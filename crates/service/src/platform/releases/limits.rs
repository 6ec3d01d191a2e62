//! How much a release may hold, however it comes: as files, contents sent ahead, or an archive.

use crate::{Core, Error, Result};
use estrade_blobs::{BlobError, Staging};
use estrade_model::plan::Plan;
use estrade_store::blob_rows;
use tokio::runtime::Handle;

/// The limits of one project.
#[derive(Debug, Clone)]
pub(super) struct ReleaseLimits {
    /// Most files.
    pub(super) files: usize,
    /// Most bytes of a request, and of what an archive unpacks to.
    request: u64,
    /// Most bytes by the project's plan.
    disk: u64,
    plan: String,
}

impl ReleaseLimits {
    /// Of a project with this plan.
    pub(super) fn of(core: &Core, plan: &str) -> Self {
        let known = core.settings.plans.get(plan);
        Self {
            files: core.settings.max_files,
            request: core.settings.max_release_bytes,
            // A plan that the configuration no longer has grants what a request may hold.
            disk: known.map_or(u64::MAX, Plan::disk_bytes),
            plan: plan.to_owned(),
        }
    }

    /// Limits of no project in particular.
    #[cfg(test)]
    pub(super) fn new(files: usize, bytes: u64) -> Self {
        Self {
            files,
            request: bytes,
            disk: u64::MAX,
            plan: "test".into(),
        }
    }

    /// Most bytes, whatever the reason.
    pub(super) fn bytes(&self) -> u64 {
        self.request.min(self.disk)
    }

    /// Refuses more than that; `what` begins the error message.
    pub(super) fn check(&self, bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
        let Self {
            request,
            disk,
            plan,
            ..
        } = self;
        if bytes > *disk {
            return Err(Error::TooLarge(format!(
                "{} larger than the disk of plan {plan} ({disk} bytes); resize the project",
                what()
            )));
        }
        if bytes > *request {
            return Err(Error::TooLarge(format!(
                "{} larger than {request} bytes",
                what()
            )));
        }
        Ok(())
    }

    /// A staging area within these limits. It blocks on the database: use it inside `spawn_blocking`, never
    /// on a thread of the runtime.
    pub(super) fn stage(&self, core: &Core) -> Staging<'static> {
        let (db, runtime) = (core.db.clone(), Handle::current());
        core.blobs.stage(self.bytes(), move |digests| {
            Ok(runtime.block_on(blob_rows::known_blobs(&db, digests))?)
        })
    }
}

/// Maps an error of the blob store to one of the service.
pub(super) fn storing(error: BlobError) -> Error {
    match error {
        // The limits are checked before; this is the second line.
        BlobError::TooLarge { max } => {
            Error::TooLarge(format!("files: they are larger than {max} bytes together"))
        }
        other => other.into(),
    }
}
