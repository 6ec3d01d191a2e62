//! Workspaces: what AI keys are for.

use crate::UnknownWorkspace;
use crate::audit::PendingEntry;
use crate::identity::access::Operation;
use crate::{Core, Error, Result, Scope};
use estrade_model::audit::Action;
use estrade_model::key::WorkspaceSet;
use estrade_model::names::WorkspaceName;
use estrade_model::team::Role;
use estrade_model::workspace::{
    UpdateWorkspace, Workspace, WorkspaceDetail, WorkspaceRef, WorkspaceSettings,
};
use estrade_model::{OwnerId, Timestamp, WorkspaceId};
use estrade_store::quotas::{self, Counted};
use estrade_store::{ChangeKind, StoreError, Tx, workspaces};
use std::sync::Arc;

pub use estrade_store::workspaces::{MAX_COUNTED_KEYS, WorkspaceOverview};

/// A page of the owner's workspaces, newest first.
pub async fn list_workspaces(
    core: &Core,
    scope: &Scope,
    before: Option<WorkspaceId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Workspace>> {
    let owner = scope.read(Operation::ReadAi)?;
    let rows = workspaces::list_workspaces(&core.db, owner, before, count, skip).await?;
    Ok(rows.into_iter().map(|row| row.detail.workspace).collect())
}

/// A page of the owner's workspaces with what people want to see beside their names, newest first.
pub async fn list_overviews(
    core: &Core,
    scope: &Scope,
    before: Option<WorkspaceId>,
    count: u32,
) -> Result<Vec<WorkspaceOverview>> {
    Ok(workspaces::list_overviews(&core.db, scope.read(Operation::ReadAi)?, before, count).await?)
}

/// One workspace and its row version.
pub async fn read_workspace(
    core: &Core,
    scope: &Scope,
    id: WorkspaceId,
) -> Result<(WorkspaceDetail, i64)> {
    let owner = scope.read(Operation::ReadAi)?;
    let row = workspaces::read_workspace(&core.db, owner, id).await?;
    row.map(|row| (row.detail, row.version))
        .ok_or(Error::NotFound("the workspace"))
}

/// Adds a workspace; 409 when the owner has one of that name.
pub async fn create_workspace(
    core: &Core,
    scope: &Scope,
    name: WorkspaceName,
) -> Result<WorkspaceRef> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (now, most) = (core.now(), core.settings.quotas.workspaces);
    let workspace = WorkspaceRef {
        id: core.new_id()?,
        name: name.into(),
    };
    let job = Arc::new((workspace.clone(), scope.clone()));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move { insert(tx, &job.1, &job.0, most, now).await })
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
    let permission = scope.require(Operation::WriteAi, Role::Admin)?;
    let (owner, now) = (permission.owner(), core.now());
    let note = PendingEntry::new(core, scope, Action::DeleteWorkspace, id)?;
    let job = Arc::new((if_match, note));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (if_match, note) = &*job;
                let detail = find(tx, owner, id, if_match.as_deref()).await?;
                if workspaces::is_workspace_used(tx, id).await? {
                    let message = "a key still uses this workspace; delete or change the key first";
                    return Err(Error::conflict("workspace_in_use", message));
                }
                workspaces::delete_workspace(tx, owner, id).await?;
                note.clone().about(&detail.workspace.name).write(tx).await?;
                tx.changed(ChangeKind::Workspace, id, now).await?;
                Ok(quotas::count_down(tx, owner, Counted::Workspaces).await?)
            })
        })
        .await
}

async fn find(
    tx: &mut Tx,
    owner: OwnerId,
    id: WorkspaceId,
    if_match: Option<&[i64]>,
) -> Result<WorkspaceDetail> {
    let row = workspaces::workspace_for_update(tx, owner, id).await?;
    let row = row.ok_or(Error::NotFound("the workspace"))?;
    if if_match.is_some_and(|versions| !versions.contains(&row.version)) {
        return Err(Error::PreconditionFailed);
    }
    Ok(row.detail)
}

/// Changes the name of a workspace, and what all its keys together may use; in force for the next request.
pub async fn update_workspace(
    core: &Core,
    scope: &Scope,
    id: WorkspaceId,
    update: UpdateWorkspace,
    if_match: Option<Vec<i64>>,
) -> Result<WorkspaceDetail> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (owner, now) = (permission.owner(), core.now());
    let note = PendingEntry::new(core, scope, Action::UpdateWorkspace, id)?;
    let job = Arc::new((update, if_match, note));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (update, if_match, note) = &*job;
                let WorkspaceDetail {
                    mut workspace,
                    settings: before,
                } = find(tx, owner, id, if_match.as_deref()).await?;
                let settings = update.apply(before.clone());
                let name = update.name.as_ref().map(WorkspaceName::as_str);
                let new_name = name.filter(|name| *name != workspace.name);
                if let Some(name) = new_name {
                    name.clone_into(&mut workspace.name);
                }
                let written = workspaces::update_workspace(tx, id, &workspace.name, &settings);
                match written.await {
                    Err(StoreError::Duplicate) => return Err(name_taken(&workspace.name)),
                    other => other?,
                }
                let mut fields = changed(&before, &settings);
                fields.extend(new_name.map(|_| "name"));
                let note = note.clone().about(&workspace.name);
                note.fields(&fields).write(tx).await?;
                if new_name.is_some() {
                    tx.changed(ChangeKind::WorkspaceName, id, now).await?;
                }
                tx.changed(ChangeKind::Workspace, id, now).await?;
                Ok(WorkspaceDetail {
                    workspace,
                    settings,
                })
            })
        })
        .await
}

fn changed(before: &WorkspaceSettings, after: &WorkspaceSettings) -> Vec<&'static str> {
    let changes = [
        ("rpm", before.rpm != after.rpm),
        ("tpm", before.tpm != after.tpm),
        ("budget", before.budget != after.budget),
        ("preference", before.preference != after.preference),
    ];
    let names = changes.into_iter();
    names
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect()
}

fn name_taken(name: &str) -> Error {
    let message = format!("a workspace named `{name}` exists");
    Error::conflict("workspace_exists", message)
}

async fn insert(
    tx: &mut Tx,
    scope: &Scope,
    workspace: &WorkspaceRef,
    most: u64,
    now: Timestamp,
) -> Result<()> {
    let owner = scope.read(Operation::WriteAi)?;
    if !workspaces::insert_workspace(tx, owner, workspace, now).await? {
        return Err(name_taken(&workspace.name));
    }
    if !quotas::count_up(tx, owner, Counted::Workspaces, most).await? {
        return Err(Error::Quota {
            what: "workspaces",
            limit: most,
        });
    }
    let note = PendingEntry::creation(scope, Action::CreateWorkspace, workspace.id, now);
    note.about(&workspace.name).write(tx).await
}

/// What a key request needs to turn workspace names into workspaces.
#[derive(Clone)]
pub(crate) struct Resolver {
    scope: Scope,
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
            scope: scope.clone(),
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
        let owner = self.scope.read(Operation::WriteAi)?;
        let mut found = Vec::with_capacity(names.names().len());
        for (name, spare) in names.names().iter().zip(&self.spare) {
            let known = workspaces::workspace_by_name(tx, owner, name.as_str()).await?;
            found.push(match (known, self.unknown) {
                (Some(workspace), _) => workspace,
                (None, UnknownWorkspace::Create) => {
                    let workspace = WorkspaceRef {
                        id: *spare,
                        name: name.to_string(),
                    };
                    insert(tx, &self.scope, &workspace, self.most, self.now).await?;
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
