//! Finding the project that a request names, among those that its caller sees.

use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope};
use estrade_model::project::ProjectKey;
use estrade_store::projects::{self, ProjectRow};

pub(super) const NOT_FOUND: Error = Error::NotFound("the project");

/// The caller's project of that name or id.
pub(crate) async fn find_project(core: &Core, scope: &Scope, project: &str) -> Result<ProjectRow> {
    let visible = scope.projects(ProjectOperation::Read)?;
    let row = projects::read_project(&core.db, visible, &parse_key(project)?).await?;
    row.ok_or(NOT_FOUND)
}

/// A text that is neither a name nor an id names nothing: 404 like any other unknown project.
pub(crate) fn parse_key(project: &str) -> Result<ProjectKey> {
    project.parse().map_err(|_| NOT_FOUND)
}
