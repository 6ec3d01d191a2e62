//! Whether `_redirects` and `_headers` of a site are within their limits.

use super::step_error::StepError;
use super::transition::Failure;
use crate::{Core, Error};
use estrade_blobs::StoredBlob;
use estrade_model::release::ArtifactId;
use estrade_model::site_rules::{
    ExceededLimit, HEADERS_FILE, REDIRECTS_FILE, check_headers, check_redirects, check_size,
};
use estrade_store::{artifacts, blob_rows};
use std::sync::Arc;

type Check = fn(&str) -> Result<(), ExceededLimit>;

/// The files with rules, and what each is held against.
const FILES: [(&str, Check); 2] = [
    (REDIRECTS_FILE, check_redirects),
    (HEADERS_FILE, check_headers),
];

/// Ends a release whose rules the edge would not follow in full.
pub(super) async fn check_rules(core: &Arc<Core>, artifact: ArtifactId) -> Result<(), StepError> {
    let manifest = artifacts::read_manifest(&core.db, artifact).await;
    let Some(manifest) = manifest.map_err(Error::from)? else {
        return Ok(());
    };
    for (name, check) in FILES {
        let mut files = manifest.files().iter();
        let Some(file) = files.find(|file| file.path.as_str() == name) else {
            continue;
        };
        check_size(name, file.size).map_err(|exceeded| refused(&exceeded))?;
        let blobs = blob_rows::read_blobs(&core.db, &[file.digest]).await;
        let blobs = blobs.map_err(Error::from)?;
        if let Some(blob) = blobs.get(&file.digest) {
            check(&read_text(core, *blob).await?).map_err(|exceeded| refused(&exceeded))?;
        }
    }
    Ok(())
}

async fn read_text(core: &Arc<Core>, blob: StoredBlob) -> Result<String, Error> {
    let core = Arc::clone(core);
    let read = tokio::task::spawn_blocking(move || core.blobs.read(&blob)).await;
    let bytes = read.map_err(Error::internal)??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn refused(exceeded: &ExceededLimit) -> StepError {
    StepError::Failed(Failure {
        reason: "rules_exceeded",
        message: format!("{exceeded}; change the file and deploy again"),
    })
}
