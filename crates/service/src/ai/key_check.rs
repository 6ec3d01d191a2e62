//! Authentication of AI keys: a hot path.
//!
//! Warm, a check is one hash, two look-ups and a few comparisons: no database, no lock, no await.

use crate::ai::workspace_lists::{WorkspaceList, WorkspaceLists};
use crate::identity::access::Operation;
use crate::identity::credentials::{Touches, Verifier};
use crate::keyring::{Audience, Proof, SecretMark};
use crate::state_cache::StateCache;
use crate::{Core, Error, Result, Scope};
use bytes::Bytes;
use estrade_model::auth::{
    AuthContext, AuthError, AuthorizedKey, AuthorizedWorkspace, RateLimits, WorkspaceSelector,
};
use estrade_model::error::error_chain;
use estrade_model::id::kind;
use estrade_model::key::{Budget, KeyLimits, Verified, VerifyKey};
use estrade_model::team::Role;
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_store::keys::{self, KeyState};
use estrade_store::{Change, ChangeKind, workspaces};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// Keys whose live state is cached.
const MAX_CACHED_KEYS: usize = 200_000;

/// Workspaces whose settings are cached.
const MAX_CACHED_WORKSPACES: usize = 100_000;

/// Why a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not a key of this installation, or deleted.
    Unknown,
    /// Its secret was replaced.
    Rotated,
    Expired,
    /// Switched off, or its owner is locked out.
    Disabled,
    /// Not for this workspace.
    WrongWorkspace,
}

impl Refusal {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Rotated => "rotated",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
            Self::WrongWorkspace => "wrong_workspace",
        }
    }

    /// The message for people.
    pub fn message(self) -> &'static str {
        match self {
            Self::Unknown => "this is not a key of this installation, or it was deleted",
            Self::Rotated => "this key was rotated; use its new secret",
            Self::Expired => "this key has expired; rotate it",
            Self::Disabled => "this key is switched off",
            Self::WrongWorkspace => "this key is not for this workspace",
        }
    }

    /// Whether the key is valid, but not for this request (403 rather than 401).
    pub fn is_forbidden(self) -> bool {
        matches!(self, Self::Disabled | Self::WrongWorkspace)
    }
}

impl From<Refusal> for AuthError {
    fn from(refusal: Refusal) -> Self {
        let (code, message) = (refusal.code(), refusal.message());
        if refusal.is_forbidden() {
            Self::Forbidden(code, message)
        } else {
            Self::Unauthorized(code, message)
        }
    }
}

/// The result of a check.
pub type Verdict = std::result::Result<CheckedKey, Refusal>;

/// A key that passed the check.
pub struct CheckedKey {
    id: KeyId,
    cached: Arc<CachedKey>,
}

/// The cached state of a key. There are very many of them: what a check does not need is left out, lists that
/// keys have in common are shared, and what few keys have is boxed.
struct CachedKey {
    /// Switched on, and its owner is not locked out.
    enabled: bool,
    cache: bool,
    secret: SecretMark,
    touched: AtomicI64,
    workspaces: Arc<WorkspaceList>,
    rules: Option<Box<Rules>>,
}

/// Settings that only some keys have.
#[derive(Default)]
struct Rules {
    expires_at: Option<Timestamp>,
    /// Secrets that were replaced, and until when they still work.
    old_secrets: Vec<(SecretMark, Timestamp)>,
    models: Option<Arc<[String]>>,
    rates: RateLimits,
    budget: Option<Budget>,
}

impl Rules {
    fn new(limits: KeyLimits, old_secrets: &[([u8; 32], Timestamp)]) -> Option<Box<Self>> {
        if limits == KeyLimits::default() && old_secrets.is_empty() {
            return None;
        }
        let old = |(hash, until): &([u8; 32], Timestamp)| (SecretMark::from(hash), *until);
        Some(Box::new(Self {
            expires_at: limits.expires_at,
            old_secrets: old_secrets.iter().map(old).collect(),
            models: limits.models.map(Arc::from),
            rates: RateLimits {
                rpm: limits.rpm,
                tpm: limits.tpm,
            },
            budget: limits.budget,
        }))
    }
}

impl CheckedKey {
    /// Which key it is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The key as the gateway needs it.
    pub fn authorized(&self) -> AuthorizedKey {
        let cached = &*self.cached;
        let rules = cached.rules.as_deref();
        AuthorizedKey {
            id: self.id,
            owner: cached.workspaces.owner,
            models: rules.and_then(|rules| rules.models.clone()),
            cache: cached.cache,
            rates: rules.map_or_else(RateLimits::default, |rules| rules.rates),
            budget: rules.and_then(|rules| rules.budget.clone()),
        }
    }

    /// The ids of its workspaces, joined by commas, ready to be sent as a header.
    pub fn workspace_ids(&self) -> Bytes {
        self.cached.workspaces.ids.clone()
    }
}

impl CachedKey {
    fn new(state: KeyState, lists: &WorkspaceLists) -> Self {
        let key = state.key;
        Self {
            enabled: key.enabled && !state.owner_disabled,
            cache: key.cache,
            secret: SecretMark::from(&state.secret_hash),
            touched: AtomicI64::new(key.last_used_at.map_or(0, Timestamp::millis)),
            workspaces: lists.share(state.owner, key.workspaces),
            rules: Rules::new(key.limits, &state.old_secrets),
        }
    }

    fn refusal(
        &self,
        proof: &Proof<kind::Key>,
        workspace: Option<&str>,
        now: Timestamp,
    ) -> Option<Refusal> {
        let rules = self.rules.as_deref();
        let old =
            |(secret, until): &(SecretMark, Timestamp)| *secret == proof.secret && *until > now;
        let is_old = || rules.is_some_and(|rules| rules.old_secrets.iter().any(old));
        if self.secret != proof.secret && !is_old() {
            return Some(Refusal::Rotated);
        }
        if proof.has_ended(now) {
            return Some(Refusal::Expired);
        }
        self.refusal_without_secret(workspace, now)
    }

    /// The checks that have nothing to do with a secret.
    fn refusal_without_secret(&self, workspace: Option<&str>, now: Timestamp) -> Option<Refusal> {
        let end = self.rules.as_deref().and_then(|rules| rules.expires_at);
        if end.is_some_and(|at| at <= now) {
            return Some(Refusal::Expired);
        }
        if !self.enabled {
            return Some(Refusal::Disabled);
        }
        let foreign = workspace.is_some_and(|name_or_id| !self.has_workspace(name_or_id));
        foreign.then_some(Refusal::WrongWorkspace)
    }

    fn is_for(&self, workspace: WorkspaceId) -> bool {
        let mut own = self.workspaces.list.iter();
        own.any(|known| known.id == workspace)
    }

    fn has_workspace(&self, name_or_id: &str) -> bool {
        self.workspace(name_or_id).is_some()
    }

    fn workspace(&self, name_or_id: &str) -> Option<WorkspaceId> {
        let mut own = self.workspaces.list.iter();
        // An id is never taken for a name: names are not unique across owners, ids are.
        let found = match name_or_id.parse::<WorkspaceId>() {
            Ok(id) => own.find(|workspace| workspace.id == id),
            Err(_) => own.find(|workspace| workspace.name == name_or_id),
        };
        found.map(|workspace| workspace.id)
    }

    /// The workspace of a call.
    fn select_workspace(
        &self,
        selector: WorkspaceSelector<'_>,
    ) -> std::result::Result<WorkspaceId, AuthError> {
        match (selector, &self.workspaces.list[..]) {
            (WorkspaceSelector::Workspace(name_or_id), _) => self
                .workspace(name_or_id)
                .ok_or_else(|| Refusal::WrongWorkspace.into()),
            (WorkspaceSelector::Only, [only]) => Ok(only.id),
            (WorkspaceSelector::Only, _) => Err(AuthError::WorkspaceRequired),
        }
    }
}

/// Checks AI keys.
pub struct KeyCheck {
    core: Arc<Core>,
    verifier: Verifier<kind::Key>,
    states: Arc<StateCache<KeyId, CachedKey>>,
    lists: WorkspaceLists,
    workspaces: Arc<StateCache<WorkspaceId, AuthorizedWorkspace>>,
    touches: Touches<KeyId, Timestamp>,
}

impl KeyCheck {
    /// Builds the caches and hooks them to the change feed.
    pub fn new(core: &Arc<Core>) -> Self {
        let states = StateCache::hooked(
            &core.db,
            MAX_CACHED_KEYS,
            ChangeKind::Key,
            &[ChangeKind::Account],
        );
        let verifier = Verifier::new(Arc::clone(core), Audience::Inference);
        // Keys are cached with the names of their workspaces.
        let named = Arc::clone(&states);
        core.db.changes().on_change(move |Change { kind, id }| {
            if let (ChangeKind::WorkspaceName, Ok(id)) = (kind, id.parse::<WorkspaceId>()) {
                named.retain(|key: &CachedKey| !key.is_for(id));
            }
        });
        Self {
            core: Arc::clone(core),
            verifier,
            states,
            lists: WorkspaceLists::default(),
            workspaces: StateCache::hooked(
                &core.db,
                MAX_CACHED_WORKSPACES,
                ChangeKind::Workspace,
                &[],
            ),
            touches: Touches::default(),
        }
    }

    /// [`Self::check_key`] from the caches alone; none when something is not cached.
    pub fn check_warm(&self, token: &str, workspace: Option<&str>) -> Option<Verdict> {
        let proof = self.verifier.remembered(token)?;
        let checked = self.states.get(&proof.id)?;
        Some(self.judge(checked, &proof, workspace))
    }

    /// Checks a key for a workspace (by name or id).
    pub async fn check_key(&self, token: &str, workspace: Option<&str>) -> Result<Verdict> {
        Ok(match self.look_up(token).await? {
            Some((checked, proof)) => self.judge(checked, &proof, workspace),
            None => Err(Refusal::Unknown),
        })
    }

    /// [`Self::authorize`] from the caches alone; none when something is not cached.
    pub fn authorize_cached(
        &self,
        token: &str,
        selector: WorkspaceSelector<'_>,
    ) -> Option<std::result::Result<AuthContext, AuthError>> {
        let proof = self.verifier.remembered(token)?;
        let checked = self.states.get(&proof.id)?;
        let (key, id) = match self.authorize_key(checked, &proof, selector) {
            Ok(authorized) => authorized,
            Err(denied) => return Some(Err(denied)),
        };
        let workspace = self.workspaces.get(&id)?;
        Some(Ok(AuthContext { key, workspace }))
    }

    /// Authorizes a key for calls in a workspace, and loads what is not cached.
    pub async fn authorize(
        &self,
        token: &str,
        selector: WorkspaceSelector<'_>,
    ) -> std::result::Result<AuthContext, AuthError> {
        let unavailable = |error: crate::Error| {
            tracing::warn!(error = error_chain(&error), "cannot look a key up");
            AuthError::Unavailable
        };
        let found = self.look_up(token).await.map_err(unavailable)?;
        let (checked, proof) = found.ok_or(Refusal::Unknown)?;
        let (key, id) = self.authorize_key(checked, &proof, selector)?;
        let workspace = self.workspace(id).await.map_err(unavailable)?;
        let workspace = workspace.ok_or(Refusal::WrongWorkspace)?;
        Ok(AuthContext { key, workspace })
    }

    /// Authorizes a person to call with a key of the scope's owner, without its secret: the person's role stands for
    /// it, and every other check is that of [`Self::authorize`]. The inner error says why the key is refused.
    pub async fn authorize_person(
        &self,
        scope: &Scope,
        id: KeyId,
        workspace: WorkspaceId,
    ) -> Result<std::result::Result<AuthContext, AuthError>> {
        let owner = scope.read_as(Operation::WriteAi, Role::Developer)?;
        let cached = self.state(id).await?;
        let cached = cached.filter(|key| key.workspaces.owner == owner);
        let cached = cached.ok_or(Error::NotFound("the key"))?;
        let now = self.core.now();
        let workspace = workspace.to_string();
        if let Some(refusal) = cached.refusal_without_secret(Some(&workspace), now) {
            return Ok(Err(refusal.into()));
        }
        let selected = cached.select_workspace(WorkspaceSelector::Workspace(&workspace));
        let selected = match selected {
            Ok(selected) => self.workspace(selected).await?,
            Err(denied) => return Ok(Err(denied)),
        };
        let Some(workspace) = selected else {
            return Ok(Err(Refusal::WrongWorkspace.into()));
        };
        self.touches.note(id, now, &cached.touched, now);
        let key = CheckedKey { id, cached }.authorized();
        Ok(Ok(AuthContext { key, workspace }))
    }

    /// What calls in a workspace are bound by.
    async fn workspace(&self, id: WorkspaceId) -> Result<Option<Arc<AuthorizedWorkspace>>> {
        let load = || async { self.load_workspace(id).await };
        self.workspaces.get_or_load(id, load).await
    }

    fn authorize_key(
        &self,
        cached: Arc<CachedKey>,
        proof: &Proof<kind::Key>,
        selector: WorkspaceSelector<'_>,
    ) -> std::result::Result<(AuthorizedKey, WorkspaceId), AuthError> {
        let checked = self.judge(cached, proof, None)?;
        let id = checked.cached.select_workspace(selector)?;
        Ok((checked.authorized(), id))
    }

    async fn load_workspace(&self, id: WorkspaceId) -> Result<Option<AuthorizedWorkspace>> {
        let settings = workspaces::workspace_settings(&self.core.db, id).await?;
        Ok(settings.map(|settings| AuthorizedWorkspace {
            id,
            preference: settings.preference,
            rates: RateLimits {
                rpm: settings.rpm,
                tpm: settings.tpm,
            },
            budget: settings.budget,
        }))
    }

    fn judge(
        &self,
        cached: Arc<CachedKey>,
        proof: &Proof<kind::Key>,
        workspace: Option<&str>,
    ) -> Verdict {
        let now = self.core.now();
        if let Some(refusal) = cached.refusal(proof, workspace, now) {
            Err(refusal)
        } else {
            let id = proof.id;
            self.touches.note(id, now, &cached.touched, now);
            Ok(CheckedKey { id, cached })
        }
    }

    /// The key behind a token and what its signature proves.
    async fn look_up(&self, token: &str) -> Result<Option<(Arc<CachedKey>, Proof<kind::Key>)>> {
        let Some(proof) = self.verifier.verify(token).await? else {
            return Ok(None);
        };
        let cached = self.state(proof.id).await?;
        Ok(cached.map(|cached| (cached, proof)))
    }

    /// The live state of a key of any owner.
    async fn state(&self, id: KeyId) -> Result<Option<Arc<CachedKey>>> {
        let load = || async {
            let state = keys::key_state(&self.core.db, id).await?;
            Ok(state.map(|state| CachedKey::new(state, &self.lists)))
        };
        self.states.get_or_load(id, load).await
    }

    /// Checks a key for its owner; keys of others are reported as unknown.
    pub async fn verify_key(&self, scope: &Scope, request: VerifyKey) -> Result<Verified> {
        let owner = scope.read(Operation::ReadAi)?;
        let unknown = Verified {
            code: Some(Refusal::Unknown.code()),
            ..Verified::default()
        };
        let Some((checked, proof)) = self.look_up(request.key.expose()).await? else {
            return Ok(unknown);
        };
        let Some(row) = keys::read_key(&self.core.db, owner, proof.id).await? else {
            return Ok(unknown);
        };
        let refusal = checked.refusal(&proof, request.workspace.as_deref(), self.core.now());
        Ok(Verified {
            valid: refusal.is_none(),
            code: refusal.map(Refusal::code),
            key_id: Some(row.key.id),
            name: Some(row.key.name),
            workspaces: Some(row.key.workspaces),
        })
    }

    /// Stores when keys were last used; called every few seconds and at shutdown.
    pub async fn flush_touches(&self) -> Result<()> {
        let write = |used: Arc<[_]>| {
            self.core.db.transact(move |tx| {
                let used = Arc::clone(&used);
                Box::pin(async move { Ok(keys::touch_keys(tx, &used).await?) })
            })
        };
        self.touches.flush(write).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_each_of_very_many_keys_is_little() {
        // With the two counts of an `Arc`, 64 bytes: the next size that is allocated is 80.
        assert_eq!(size_of::<CachedKey>(), 48);
        assert_eq!(size_of::<Proof<kind::Key>>(), 32);
    }
}
