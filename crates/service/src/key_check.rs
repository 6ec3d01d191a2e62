//! Checking an AI key: the hot path of everything that a key opens.
//!
//! Warm, a check is one hash, two look-ups and a few comparisons: no database, no lock, no await.

use crate::credentials::{Touches, Verifier};
use crate::jwt::{Audience, Proof};
use crate::state_cache::StateCache;
use crate::{Core, Result, Scope};
use bytes::Bytes;
use estrade_model::id::kind;
use estrade_model::key::{Key, Verified, VerifyKey};
use estrade_model::{KeyId, OwnerId, Timestamp, WorkspaceId};
use estrade_store::ChangeKind;
use estrade_store::keys::{self, KeyState};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// Keys whose live state is kept.
const MOST_KEYS: usize = 200_000;

/// Why a key is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not a key of this installation, or deleted.
    Unknown,
    /// Its secret was replaced.
    Rotated,
    /// Its time is over.
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

    /// The same for a person.
    pub fn message(self) -> &'static str {
        match self {
            Self::Unknown => "this is not a key of this installation, or it was deleted",
            Self::Rotated => "this key was rotated; use its new secret",
            Self::Expired => "this key has expired; rotate it",
            Self::Disabled => "this key is switched off",
            Self::WrongWorkspace => "this key is not for this workspace",
        }
    }

    /// Whether the key itself is good, but not for this (403 rather than 401).
    pub fn is_forbidden(self) -> bool {
        matches!(self, Self::Disabled | Self::WrongWorkspace)
    }
}

/// Whether a key is let in.
pub type Verdict = std::result::Result<Arc<CheckedKey>, Refusal>;

/// A key's live state, as kept between requests.
pub struct CheckedKey {
    state: KeyState,
    touched: AtomicI64,
    /// The ids of its workspaces, joined by commas, ready to be sent as a header.
    pub workspace_ids: Bytes,
    /// Its id as text, ready to be sent as a header.
    pub id_text: Bytes,
}

impl CheckedKey {
    fn new(state: KeyState) -> Self {
        let ids: Vec<_> = state
            .key
            .workspaces
            .iter()
            .map(|workspace| workspace.id.to_string())
            .collect();
        Self {
            touched: AtomicI64::new(state.key.last_used_at.map_or(0, Timestamp::millis)),
            workspace_ids: ids.join(",").into(),
            id_text: state.key.id.to_string().into(),
            state,
        }
    }

    /// The key, as the wire shows it.
    pub fn key(&self) -> &Key {
        &self.state.key
    }

    /// Whose key it is.
    pub fn owner(&self) -> OwnerId {
        self.state.owner
    }

    fn refusal(
        &self,
        proof: &Proof<kind::Key>,
        workspace: Option<&str>,
        now: Timestamp,
    ) -> Option<Refusal> {
        let state = &self.state;
        let old =
            |(hash, until): &([u8; 32], Timestamp)| *hash == proof.secret_hash && *until > now;
        if state.secret_hash != proof.secret_hash && !state.old_secrets.iter().any(old) {
            return Some(Refusal::Rotated);
        }
        let ended = state.key.limits.expires_at.is_some_and(|at| at <= now)
            || proof.exp.is_some_and(|exp| exp <= now.seconds());
        if ended {
            return Some(Refusal::Expired);
        }
        if !state.key.enabled || state.owner_disabled {
            return Some(Refusal::Disabled);
        }
        let foreign = workspace.is_some_and(|name_or_id| !self.has_workspace(name_or_id));
        foreign.then_some(Refusal::WrongWorkspace)
    }

    fn has_workspace(&self, name_or_id: &str) -> bool {
        let mut own = self.key().workspaces.iter();
        // An id is never taken for a name: names are not unique across owners, ids are.
        match name_or_id.parse::<WorkspaceId>() {
            Ok(id) => own.any(|workspace| workspace.id == id),
            Err(_) => own.any(|workspace| workspace.name == name_or_id),
        }
    }
}

/// Checks AI keys.
pub struct KeyCheck {
    core: Arc<Core>,
    verifier: Verifier<kind::Key>,
    states: Arc<StateCache<KeyId, CheckedKey>>,
    touches: Touches<KeyId>,
}

impl KeyCheck {
    /// Builds the caches and hooks them to the change feed.
    pub fn new(core: &Arc<Core>) -> Self {
        let states = StateCache::hooked(core, MOST_KEYS, ChangeKind::Key, &[ChangeKind::Account]);
        let verifier = Verifier::new(Arc::clone(core), Audience::Inference);
        Self {
            core: Arc::clone(core),
            verifier,
            states,
            touches: Touches::default(),
        }
    }

    /// The same as [`Self::check_key`] when everything it needs is at hand, without waiting.
    pub fn check_warm(&self, token: &str, workspace: Option<&str>) -> Option<Verdict> {
        let proof = self.verifier.remembered(token)?;
        let checked = self.states.get(&proof.id)?;
        Some(self.judge(checked, &proof, workspace))
    }

    /// Lets a key in for a workspace (by name or id), or says why not.
    pub async fn check_key(&self, token: &str, workspace: Option<&str>) -> Result<Verdict> {
        Ok(match self.look_up(token).await? {
            Some((checked, proof)) => self.judge(checked, &proof, workspace),
            None => Err(Refusal::Unknown),
        })
    }

    fn judge(
        &self,
        checked: Arc<CheckedKey>,
        proof: &Proof<kind::Key>,
        workspace: Option<&str>,
    ) -> Verdict {
        let now = self.core.now();
        if let Some(refusal) = checked.refusal(proof, workspace, now) {
            Err(refusal)
        } else {
            self.touches.note(proof.id, &checked.touched, now);
            Ok(checked)
        }
    }

    /// The key behind a token and what its signature proves.
    async fn look_up(&self, token: &str) -> Result<Option<(Arc<CheckedKey>, Proof<kind::Key>)>> {
        let Some(proof) = self.verifier.verify(token).await? else {
            return Ok(None);
        };
        let load = || async {
            Ok(keys::key_state(&self.core.db, proof.id)
                .await?
                .map(CheckedKey::new))
        };
        let checked = self.states.get_or_load(proof.id, load).await?;
        Ok(checked.map(|checked| (checked, proof)))
    }

    /// Tells the owner of a key whether it would be let in; keys of others are unknown.
    pub async fn verify_key(&self, scope: &Scope, request: VerifyKey) -> Result<Verified> {
        let found = self.look_up(request.key.expose()).await?;
        let Some((checked, proof)) = found.filter(|(key, _)| key.owner() == scope.owner) else {
            return Ok(Verified {
                code: Some(Refusal::Unknown.code()),
                ..Verified::default()
            });
        };
        let refusal = checked.refusal(&proof, request.workspace.as_deref(), self.core.now());
        let key = checked.key();
        Ok(Verified {
            valid: refusal.is_none(),
            code: refusal.map(Refusal::code),
            key_id: Some(key.id),
            name: Some(key.name.clone()),
            workspaces: Some(key.workspaces.clone()),
        })
    }

    /// Writes down which keys were used; called every few seconds and at the end.
    pub async fn flush_touches(&self) -> Result<()> {
        let used = self.touches.take();
        if used.is_empty() {
            return Ok(());
        }
        let used = Arc::new(used);
        self.core
            .db
            .transact(move |tx| {
                let used = Arc::clone(&used);
                Box::pin(async move { Ok(keys::touch_keys(tx, &used).await?) })
            })
            .await
    }
}
