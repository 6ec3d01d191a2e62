//! Opening the storage of an installation's files, or saying why not.

use crate::installation_paths::BlobsAt;
use crate::open_error::OpenError;
use estrade_blobs::{BlobError, BlobStore, S3Settings};
use estrade_model::error::error_chain;
use estrade_store::{Db, blob_storage};
use std::path::Path;

/// The blob store of this installation, and of no other.
pub(crate) async fn open(
    at: &BlobsAt,
    db: &Db,
    installation: &str,
) -> Result<BlobStore, OpenError> {
    match at {
        BlobsAt::Directory(directory) => open_directory(directory, installation),
        BlobsAt::Bucket(settings) => {
            let is_used = blob_storage::has_blobs(db).await?;
            open_bucket(S3Settings::clone(settings), installation, is_used).await
        }
    }
}

/// How people name a storage.
pub(crate) fn name(at: &BlobsAt) -> String {
    match at {
        BlobsAt::Directory(directory) => format!("file://{}", directory.display()),
        BlobsAt::Bucket(settings) => name_bucket(settings),
    }
}

fn name_bucket(settings: &S3Settings) -> String {
    if settings.prefix.is_empty() {
        format!("s3://{}", settings.bucket)
    } else {
        format!("s3://{}/{}", settings.bucket, settings.prefix)
    }
}

fn open_directory(directory: &Path, installation: &str) -> Result<BlobStore, OpenError> {
    BlobStore::open(directory, installation).map_err(|error| match error {
        BlobError::OtherInstallation { owner } => OpenError::Refused(format!(
            "{} holds the files of another installation ({owner}; this database is of {installation}); \
             name the database that belongs to them, or move the directory away, or, if they are this one's all the same, remove the file `installation` in it; nothing was removed",
            directory.display()
        )),
        other => of_migration(&directory.display().to_string(), other),
    })
}

/// Asks the bucket whose files it has, so that a mistake in the settings is found now and not by the first deploy.
async fn open_bucket(
    settings: S3Settings,
    installation: &str,
    is_used: bool,
) -> Result<BlobStore, OpenError> {
    let place = name_bucket(&settings);
    let name = installation.to_owned();
    // Another node's directory may be empty. But a bucket is for all nodes: it has everything that rows name.
    let open = if is_used {
        BlobStore::open_used_s3
    } else {
        BlobStore::open_s3
    };
    let opened = tokio::task::spawn_blocking(move || open(settings, &name)).await;
    opened
        .map_err(|error| OpenError::Failed(error.into()))?
        .map_err(|error| match error {
            BlobError::OtherInstallation { owner } => OpenError::Refused(format!(
                "{place} holds the files of another installation ({owner}; this database is of {installation}); \
                 name the database that belongs to them, or another prefix in blobs.url; nothing was removed"
            )),
            BlobError::Unavailable { .. } => OpenError::Refused(format!(
                "cannot use {place}: {}; check that the bucket exists and answers, and the endpoint, region and keys in [blobs]",
                error_chain(&error)
            )),
            BlobError::NeverUsed => OpenError::Refused(format!(
                "{place} is empty, and this installation has files in another place; move them with \
                 `estrade blobs migrate --to {place}` while blobs.url names where they are, or correct blobs.url"
            )),
            other => of_migration(&place, other),
        })
}

/// Files are moving, or have moved.
fn of_migration(place: &str, error: BlobError) -> OpenError {
    match error {
        BlobError::Filling { from } => OpenError::Refused(format!(
            "{place} is being filled from {from} and may not be complete; start with {from} in blobs.url, and complete \
             the move with `estrade blobs migrate --to {place} --finish`"
        )),
        BlobError::Moved { to } => OpenError::Refused(format!(
            "the files of this installation have moved from {place} to {to}; set blobs.url to that. If \
             `estrade blobs migrate` was cut off in the last step, run it again: with --finish to complete the move, \
             without it to go on with {place}"
        )),
        other => OpenError::Failed(other.into()),
    }
}
