//! Platform `auto`: sources that need no build are served as they came, and need no engine.

use super::cause::refused;
use super::sources::StoredSources;
use crate::Error;
use crate::platform::releases::build_log::BuildLog;
use crate::platform::releases::claim::Claim;
use crate::platform::releases::create::requested_port;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use crate::platform::releases::unpack::{PlainSite, keep_plain_site};
use estrade_buildpacks::{Detected, PlanError, Settings, Sources, detect};
use estrade_model::Invalid;
use estrade_model::platform::Platform;
use estrade_model::site_settings::{MAX_PROJECT_FILE_BYTES, PROJECT_FILES, SiteSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What was found, and what a site of it would need.
struct FoundSources {
    sources: StoredSources,
    detected: Detected,
    project_files: BTreeMap<String, Vec<u8>>,
}

/// Serves sources that are a site as they are; else gives them back to be built. `sent` is what the release says, `plan`
/// the project's.
pub(super) async fn serve_plain(
    claim: &mut Claim,
    sources: StoredSources,
    sent: &Map<String, Value>,
    plan: &str,
) -> Result<Option<StoredSources>, StepError> {
    let settings = Settings::from_release(requested_port(sent), sent).map_err(refused)?;
    let detection = move || {
        let detected = detect(&sources, &settings)?;
        let mut project_files = BTreeMap::new();
        if detected.platform == Platform::Static {
            for name in PROJECT_FILES {
                if !sources.paths().any(|path| path == name) {
                    continue;
                }
                // One that is too large is refused for it. One that cannot be read is not taken for none: the site
                // would be served without its settings.
                let read = sources.read(name, MAX_PROJECT_FILE_BYTES + 1);
                let bytes = read.map_err(|cause| PlanError::Unreadable {
                    path: name.to_owned(),
                    cause,
                })?;
                project_files.insert(name.to_owned(), bytes.into_owned());
            }
        }
        Ok(FoundSources {
            sources,
            detected,
            project_files,
        })
    };
    let found = tokio::task::spawn_blocking(detection)
        .await
        .map_err(Error::internal)?
        .map_err(refused)?;
    if found.detected.platform != Platform::Static {
        return Ok(Some(found.sources));
    }
    let mut log = BuildLog::default();
    log.push("platform auto: nothing here is built, so the files are served as they are");
    claim.write_log(log).await?;
    // For other platforms the same fields mean something else, so nobody has validated them before.
    let sent = sent.get("platformConfig").map(SiteSettings::from_json);
    let mut site = sent.transpose().map_err(unusable)?.unwrap_or_default();
    if let Some(root) = found
        .detected
        .root
        .filter(|_| found.project_files.is_empty())
    {
        let root = SiteSettings::from_json(&json!({ "root": root }));
        site = site.or(root.map_err(unusable)?);
    }
    let files = PlainSite {
        files: found.sources.into_files(),
        project_files: found.project_files,
        sent: site,
    };
    keep_plain_site(claim, plan, files).await?;
    Ok(None)
}

fn unusable(Invalid(reason): Invalid) -> StepError {
    StepError::Failed(Failure {
        reason: "config_invalid",
        message: format!("platformConfig: {reason}"),
    })
}
