//! Restarting a project by hand.

use super::fleet::Fleet;
use crate::identity::access::ProjectOperation;
use crate::{Result, Scope, platform::projects};
use estrade_model::team::Role;

impl Fleet {
    /// Requests a restart of the project's instances: also of those in crash backoff, or whose image the engine
    /// has lost.
    pub async fn restart_project(&self, scope: &Scope, project: &str) -> Result<()> {
        scope.read_projects_as(ProjectOperation::Write, Role::Developer)?;
        let row = projects::find_project(&self.core, scope, project).await?;
        if let Some(release) = row.current_release {
            self.reset_backoff(release);
        }
        projects::restart_project(&self.core, scope, project).await
    }
}
