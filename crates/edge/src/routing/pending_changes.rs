//! Changes that were reported to the route table and not applied yet.

use estrade_model::ProjectId;
use std::collections::HashSet;

/// What the table may not know of yet.
#[derive(Default, Clone)]
pub(super) struct PendingChanges {
    pub(super) projects: HashSet<ProjectId>,
    pub(super) everything: bool,
}

impl PendingChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.projects.is_empty() && !self.everything
    }
}
