//! The settings of a release, which may hold secrets: sealed in the database.

use crate::{Core, Error, Result};
use estrade_model::ProjectId;
use serde_json::{Map, Value};

/// Sealed per project and not per release, so that a release that runs the same can copy them.
pub(super) fn settings_purpose(project: ProjectId) -> String {
    format!("release-settings:{project}")
}

/// What the maker of a stored release has set.
pub(crate) fn open_settings(
    core: &Core,
    project: ProjectId,
    sealed: &[u8],
) -> Result<Map<String, Value>> {
    let opened = core.master.open(&settings_purpose(project), sealed)?;
    serde_json::from_slice(&opened).map_err(Error::internal)
}
