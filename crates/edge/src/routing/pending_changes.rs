//! Changes that the route table has heard of and not read yet.

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
