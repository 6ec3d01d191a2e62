//! Who may call: what a relay has to know of a key and its workspace, and why a key is not let in.

use crate::key::Budget;
use crate::provider::Preference;
use crate::{KeyId, OwnerId, WorkspaceId};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Where a call is made, as its path says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'r> {
    /// In this workspace (an id, or what the caller takes for one).
    Workspace(&'r str),
    /// In the only workspace of the key.
    Only,
}

/// A key that may call in a workspace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pass {
    /// The key.
    pub key: KeyPass,
    /// The workspace.
    pub workspace: Arc<WorkspacePass>,
}

/// What the relay needs to know of a key.
#[derive(Debug, Clone)]
pub struct KeyPass {
    /// Identifier.
    pub id: KeyId,
    /// Whose key it is; answers are never shared across owners.
    pub owner: OwnerId,
    /// The only models it may use.
    pub models: Option<Arc<[String]>>,
    /// Whether answers to its deterministic requests may come from the cache.
    pub cache: bool,
    /// What it may use per minute.
    pub rates: Rates,
    /// What it may cost.
    pub budget: Option<Budget>,
}

/// What the relay needs to know of a workspace.
#[derive(Debug)]
pub struct WorkspacePass {
    /// Identifier.
    pub id: WorkspaceId,
    /// Which provider of a model it prefers.
    pub preference: Preference,
    /// What all its keys together may use per minute.
    pub rates: Rates,
    /// What all its keys together may cost.
    pub budget: Option<Budget>,
}

/// What may be used per minute; none: as much as one likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Requests.
    pub rpm: Option<NonZeroU32>,
    /// Tokens.
    pub tpm: Option<NonZeroU32>,
}

/// Why a key is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// 401: no key, or not one that opens anything. Code and sentence.
    Unauthorized(&'static str, &'static str),
    /// 403: a good key, but switched off or not for this workspace.
    Forbidden(&'static str, &'static str),
    /// 400: the path names no workspace and the key has several.
    WhichWorkspace,
    /// 503: the key was not seen on this node before and the database is down.
    Unavailable,
}
