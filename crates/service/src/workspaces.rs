//! Workspaces: what AI keys are for.

use crate::core::UnknownWorkspace;
use crate::{Core, Error, Result, Scope};
use estrade_model::key::WorkspaceSet;
use estrade_model::names::WorkspaceName;
use estrade_model::team::Role;
use estrade_model::workspace::{Workspace, WorkspaceRef};
use estrade_model::{OwnerId, Timestamp, WorkspaceId};
use estrade_store::quotas::{self, Counted};
use estrade_store::{Tx, workspaces};

/// A page of the owner's workspaces, newest first.
pub async fn list_workspaces(
    core: &Core,
    scope: &Scope,
    before: Option<WorkspaceId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Workspace>> {
    let rows = workspaces::list_workspaces(&core.db, scope.owner, before, count, skip).await?;
    Ok(rows.into_iter().map(|row| row.workspace).collect())
}

/// One workspace and its row version.
pub async fn read_workspace(
    core: &Core,
    scope: &Scope,
    id: WorkspaceId,
) -> Result<(Workspace, i64)> {
    let row = workspaces::read_workspace(&core.db, scope.owner, id).await?;
    row.map(|row| (row.workspace, row.version))
        .ok_or(Error::NotFound("the workspace"))
}

/// Adds a workspace; 409 when the owner has one of that name.
pub async fn create_workspace(
    core: &Core,
    scope: &Scope,
    name: WorkspaceName,
) -> Result<WorkspaceRef> {
    scope.require(Role::Developer)?;
    let (owner, now, most) = (scope.owner, core.now(), core.settings.quotas.workspaces);
    let workspace = WorkspaceRef {
        id: core.new_id()?,
        name: name.into(),
    };
    let created = workspace.clone();
    core.db
        .transact(move |tx| {
            let workspace = created.clone();
            Box::pin(async move { insert(tx, owner, &workspace, most, now).await })
        })
        .await?;
    Ok(workspace)
}

/// Removes a workspace that no key uses any more.
pub async fn delete_workspace(
    core: &Core,
    scope: &Scope,
    id: WorkspaceId,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    scope.require(Role::Admin)?;
    let owner = scope.owner;
    core.db
        .transact(move |tx| {
            let if_match = if_match.clone();
            Box::pin(async move {
                let version = workspaces::workspace_version(tx, owner, id).await?;
                let version = version.ok_or(Error::NotFound("the workspace"))?;
                if if_match.is_some_and(|versions| !versions.contains(&version)) {
                    return Err(Error::PreconditionFailed);
                }
                if workspaces::is_workspace_used(tx, id).await? {
                    let message = "a key still uses this workspace; delete or change the key first";
                    return Err(Error::conflict("workspace_in_use", message));
                }
                workspaces::delete_workspace(tx, owner, id).await?;
                Ok(quotas::count_down(tx, owner, Counted::Workspaces).await?)
            })
        })
        .await
}

async fn insert(
    tx: &mut Tx,
    owner: OwnerId,
    workspace: &WorkspaceRef,
    most: u64,
    now: Timestamp,
) -> Result<()> {
    if !workspaces::insert_workspace(tx, owner, workspace, now).await? {
        let message = format!("a workspace named `{}` exists", workspace.name);
        return Err(Error::conflict("workspace_exists", message));
    }
    if !quotas::count_up(tx, owner, Counted::Workspaces, most).await? {
        return Err(Error::Quota {
            what: "workspaces",
            limit: most,
        });
    }
    Ok(())
}

/// What a key request needs to turn workspace names into workspaces.
#[derive(Clone)]
pub(crate) struct Resolver {
    owner: OwnerId,
    unknown: UnknownWorkspace,
    most: u64,
    now: Timestamp,
    /// One spare id per name; made outside the transaction because it may run again.
    spare: Vec<WorkspaceId>,
}

impl Resolver {
    pub(crate) fn new(core: &Core, scope: &Scope, names: Option<&WorkspaceSet>) -> Result<Self> {
        let needed = names.map_or(0, |set| set.names().len());
        Ok(Self {
            owner: scope.owner,
            unknown: core.settings.unknown_workspace,
            most: core.settings.quotas.workspaces,
            now: core.now(),
            spare: (0..needed).map(|_| core.new_id()).collect::<Result<_>>()?,
        })
    }

    /// The owner's workspaces of these names; new ones are created or refused, as configured.
    pub(crate) async fn resolve(
        &self,
        tx: &mut Tx,
        names: &WorkspaceSet,
    ) -> Result<Vec<WorkspaceRef>> {
        let mut found = Vec::with_capacity(names.names().len());
        for (name, spare) in names.names().iter().zip(&self.spare) {
            let known = workspaces::workspace_by_name(tx, self.owner, name.as_str()).await?;
            found.push(match (known, self.unknown) {
                (Some(workspace), _) => workspace,
                (None, UnknownWorkspace::Create) => {
                    let workspace = WorkspaceRef {
                        id: *spare,
                        name: name.to_string(),
                    };
                    insert(tx, self.owner, &workspace, self.most, self.now).await?;
                    workspace
                }
                (None, UnknownWorkspace::Reject) => {
                    let message = format!("workspaces: there is no workspace named `{name}`");
                    return Err(Error::Invalid {
                        code: "unknown_workspace",
                        message,
                    });
                }
            });
        }
        Ok(found)
    }
}
