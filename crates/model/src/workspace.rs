//! Workspaces: what AI keys are for.

use crate::names::WorkspaceName;
use crate::{Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};

/// A workspace as keys show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct WorkspaceRef {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: WorkspaceId,
    /// Name, unique per owner.
    pub name: String,
}

/// A workspace as listed and read.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Identifier: part of the inference address.
    #[serde(rename = "_id")]
    pub id: WorkspaceId,
    /// Name, unique per owner.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// `POST /v1/workspaces`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct CreateWorkspace {
    /// The workspace's name.
    pub name: WorkspaceName,
}

/// The answer to a new workspace.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CreatedWorkspace {
    /// The new workspace.
    pub workspace: WorkspaceRef,
}

/// `GET /v1/workspaces/{id}`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct WorkspaceBody {
    /// The workspace.
    pub workspace: Workspace,
}
