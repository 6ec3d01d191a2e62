//! Workspaces: what AI keys are for.

use crate::key::Budget;
use crate::names::WorkspaceName;
use crate::provider::Preference;
use crate::serde_rules::{Patch, present};
use crate::{Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

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
    pub workspace: WorkspaceDetail,
}

/// What all keys of a workspace together may use; `null` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct WorkspaceSettings {
    /// Requests per minute.
    #[schema(value_type = Option<u32>)]
    pub rpm: Option<NonZeroU32>,
    /// Tokens per minute.
    #[schema(value_type = Option<u32>)]
    pub tpm: Option<NonZeroU32>,
    /// What they may cost.
    pub budget: Option<Budget>,
    /// Which provider of a model is asked first.
    pub preference: Preference,
}

/// A workspace with its settings.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct WorkspaceDetail {
    /// The workspace.
    #[serde(flatten)]
    pub workspace: Workspace,
    /// Its settings.
    #[serde(flatten)]
    pub settings: WorkspaceSettings,
}

/// `PUT /v1/workspaces/{id}`: what is absent stays as it is, `null` clears.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"rpm": 600, "budget": {"amount": "25.00", "period": "monthly"}}))]
pub struct UpdateWorkspace {
    /// A new name.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = WorkspaceName, required = false)]
    pub name: Option<WorkspaceName>,
    /// Requests per minute.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub rpm: Patch<NonZeroU32>,
    /// Tokens per minute.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub tpm: Patch<NonZeroU32>,
    /// What its keys together may cost.
    #[serde(default)]
    #[schema(value_type = Option<Budget>)]
    pub budget: Patch<Budget>,
    /// Which provider of a model is asked first; `null` is `order`.
    #[serde(default)]
    #[schema(value_type = Option<Preference>)]
    pub preference: Patch<Preference>,
}

impl UpdateWorkspace {
    /// The settings after this request.
    pub fn apply(&self, present: WorkspaceSettings) -> WorkspaceSettings {
        let preference = self.preference.clone().apply(Some(present.preference));
        WorkspaceSettings {
            rpm: self.rpm.clone().apply(present.rpm),
            tpm: self.tpm.clone().apply(present.tpm),
            budget: self.budget.clone().apply(present.budget),
            preference: preference.unwrap_or_default(),
        }
    }
}
