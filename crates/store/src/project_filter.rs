//! Which projects a query may find.

use estrade_model::{OwnerId, ProjectId};

/// The projects that a query may find: all of an owner, or one of them.
#[derive(Debug, Clone, Copy)]
pub struct ProjectFilter {
    owner: OwnerId,
    only: Option<ProjectId>,
}

impl ProjectFilter {
    /// Every project of an owner, for what the platform does by itself.
    pub fn all_of(owner: OwnerId) -> Self {
        Self { owner, only: None }
    }

    /// Those of an owner; just that one if there is one.
    pub fn new(owner: OwnerId, only: Option<ProjectId>) -> Self {
        Self { owner, only }
    }

    /// The same for one of its projects; none when that is not among them.
    pub fn narrow(self, project: ProjectId) -> Option<Self> {
        let narrowed = Self::new(self.owner, Some(project));
        self.includes_own(project).then_some(narrowed)
    }

    pub fn owner(self) -> OwnerId {
        self.owner
    }

    /// The one project that it is limited to.
    pub fn only(self) -> Option<ProjectId> {
        self.only
    }

    /// Whether it finds a project of this owner.
    pub fn includes(self, owner: OwnerId, project: ProjectId) -> bool {
        self.owner == owner && self.includes_own(project)
    }

    /// The same for a project that is known to be of the owner.
    pub(crate) fn includes_own(self, project: ProjectId) -> bool {
        self.only.is_none_or(|only| only == project)
    }
}
