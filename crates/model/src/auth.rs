//! Authentication of inference requests: what the gateway knows of a key and its workspace, and why a key is
//! refused.

use crate::key::Budget;
use crate::provider::Preference;
use crate::{KeyId, OwnerId, WorkspaceId};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The workspace of a call, as its path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceSelector<'r> {
    /// In this workspace (an id, or what the caller takes for one).
    Workspace(&'r str),
    /// In the only workspace of the key.
    Only,
}

/// An authenticated key and the workspace that it calls in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AuthContext {
    pub key: AuthorizedKey,
    pub workspace: Arc<AuthorizedWorkspace>,
}

/// What the gateway needs to know of a key.
#[derive(Debug, Clone)]
pub struct AuthorizedKey {
    pub id: KeyId,
    /// Whose key it is; responses are never shared across owners.
    pub owner: OwnerId,
    /// The only models it may use.
    pub models: Option<Arc<[String]>>,
    /// Whether responses to its deterministic requests may come from the cache.
    pub cache: bool,
    /// What it may use per minute.
    pub rates: RateLimits,
    /// What it may cost.
    pub budget: Option<Budget>,
}

/// What the gateway needs to know of a workspace.
#[derive(Debug)]
pub struct AuthorizedWorkspace {
    pub id: WorkspaceId,
    /// Which provider of a model it prefers.
    pub preference: Preference,
    /// What all its keys together may use per minute.
    pub rates: RateLimits,
    /// What all its keys together may cost.
    pub budget: Option<Budget>,
}

/// Limits per minute; none: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    pub rpm: Option<NonZeroU32>,
    pub tpm: Option<NonZeroU32>,
}

/// Why a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// 401: no key, or not one that opens anything. Code and sentence.
    Unauthorized(&'static str, &'static str),
    /// 403: a good key, but switched off or not for this workspace.
    Forbidden(&'static str, &'static str),
    /// 400: the path names no workspace and the key has several.
    WorkspaceRequired,
    /// 503: the key was not seen on this node before and the database is down.
    Unavailable,
}
