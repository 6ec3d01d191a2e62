//! Checking credentials: signature once, live state on every request, no database when warm.
//!
//! A verified token is remembered under a keyed hash of its text; what the signature proved never
//! changes. The live state (revoked, disabled, expired) is a second cache that the change
//! feed invalidates, so an acknowledged revocation is in force for the next request. Failures are
//! not cached.

use crate::identity::access::{Caller, Credential, Origin};
use crate::keyring::{Audience, Keyring, Proof, SecretMark};
use crate::state_cache::StateCache;
use crate::{Core, Error, Result, random};
use estrade_model::id::kind;
use estrade_model::sync::MutexExt;
use estrade_model::{Timestamp, TokenId};
use estrade_store::tokens::{self, TokenState, TokenUse};
use estrade_store::{ChangeKind, signing_keys};
use futures_util::future::BoxFuture;
use quick_cache::sync::Cache;
use siphasher::sip128::SipHasher24;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Tokens whose signature is remembered.
const MAX_CACHED_PROOFS: usize = 200_000;
/// Account tokens whose live state is kept.
const MAX_CACHED_TOKENS: usize = 50_000;
/// `lastUsedAt` is kept to the minute: a busy credential costs one write a minute, not one a request.
const TOUCH_INTERVAL_MS: i64 = 60_000;
/// How many are written down in one transaction.
const TOUCH_BATCH: usize = 1000;
/// A token is a few hundred bytes; a longer text is not looked at.
const MAX_TOKEN_BYTES: usize = 4096;

/// `SipHash` of a token, with a key that only this process knows. To impersonate another caller, an attacker has
/// to find a text with the fingerprint of that caller's token, which 128 bits make infeasible. (A hash without
/// a key has to be stronger: BLAKE3 takes twice the instructions for a few hundred bytes.) Not a `u128`: those
/// are aligned to 16 bytes, which makes each entry larger.
type Fingerprint = (u64, u64);

/// Remembers what signatures have proved, for one kind of token.
pub(crate) struct Verifier<T> {
    core: Arc<Core>,
    audience: Audience,
    hasher: SipHasher24,
    proofs: Cache<Fingerprint, Proof<T>>,
    reloaded_at: AtomicI64,
}

impl<T> Verifier<T> {
    pub(crate) fn new(core: Arc<Core>, audience: Audience) -> Self {
        let (one, other) = random::hash_key();
        Self {
            core,
            audience,
            hasher: SipHasher24::new_with_keys(one, other),
            proofs: Cache::new(MAX_CACHED_PROOFS),
            reloaded_at: AtomicI64::new(0),
        }
    }

    fn fingerprint(&self, token: &str) -> Fingerprint {
        let hash = self.hasher.hash(token.as_bytes());
        (hash.h1, hash.h2)
    }

    /// What was proved of this token before; costs a hash and a look-up.
    pub(crate) fn remembered(&self, token: &str) -> Option<Proof<T>> {
        self.proofs.get(&self.fingerprint(token))
    }

    /// Checks a token's signature, issuer and audience.
    pub(crate) async fn verify(&self, token: &str) -> Result<Option<Proof<T>>> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let fingerprint = self.fingerprint(token);
        if let Some(proof) = self.proofs.get(&fingerprint) {
            return Ok(Some(proof));
        }
        if self.core.keyring.load().lacks_key_of(token) {
            self.reload_signing_keys().await?;
        }
        let proof = self.core.keyring.load().verify(self.audience, token);
        if let Some(proof) = proof {
            self.proofs.insert(fingerprint, proof);
        }
        Ok(proof)
    }

    /// Another node may have added a signing key; at most one look a second, whatever is sent to us.
    async fn reload_signing_keys(&self) -> Result<()> {
        let now = self.core.now().millis();
        let last = self.reloaded_at.swap(now, Ordering::Relaxed);
        if now - last < 1000 {
            self.reloaded_at.store(last, Ordering::Relaxed);
            return Ok(());
        }
        let rows = signing_keys::list_signing_keys(&self.core.db).await?;
        self.core
            .keyring
            .store(Arc::new(Keyring::open(&self.core.master, &rows)?));
        Ok(())
    }
}

/// Which credentials were used and how, to be written down in batches.
pub(crate) struct Touches<K, U>(Mutex<HashMap<K, U>>);

impl<K: std::hash::Hash + Eq, U> Default for Touches<K, U> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: std::hash::Hash + Eq + Copy, U: Copy> Touches<K, U> {
    /// Notes a use unless one was noted within the last minute; `last` belongs to the cached state.
    pub(crate) fn note(&self, key: K, used: U, last: &AtomicI64, now: Timestamp) {
        let seen = last.load(Ordering::Relaxed);
        if now.millis() - seen < TOUCH_INTERVAL_MS {
            return;
        }
        if last
            .compare_exchange(seen, now.millis(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.0.lock_ignoring_poison().insert(key, used);
        }
    }

    /// Has what was noted written down, a batch at a time, so that no writer is held up.
    pub(crate) async fn flush<F>(&self, write: impl Fn(Arc<[(K, U)]>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let noted: Vec<_> = self.take().into_iter().collect();
        for batch in noted.chunks(TOUCH_BATCH) {
            write(batch.into()).await?;
        }
        Ok(())
    }

    fn take(&self) -> HashMap<K, U> {
        let mut noted = self.0.lock_ignoring_poison();
        std::mem::take(&mut noted)
    }
}

struct CachedToken {
    state: TokenState,
    touched: AtomicI64,
}

/// Turns bearer tokens of accounts into callers.
pub struct AccountTokens {
    core: Arc<Core>,
    verifier: Verifier<kind::Token>,
    states: Arc<StateCache<TokenId, CachedToken>>,
    touches: Touches<TokenId, TokenUse>,
}

impl AccountTokens {
    /// Builds the cache and hooks it to the change feed.
    pub fn new(core: &Arc<Core>) -> Self {
        // An account's tokens are not indexed here; accounts change rarely.
        let all = &[ChangeKind::Account];
        let states = StateCache::hooked(&core.db, MAX_CACHED_TOKENS, ChangeKind::Token, all);
        let verifier = Verifier::new(Arc::clone(core), Audience::Account);
        Self {
            core: Arc::clone(core),
            verifier,
            states,
            touches: Touches::default(),
        }
    }

    /// The caller behind a token, or [`Error::Unauthenticated`].
    pub fn authenticate<'a>(
        &'a self,
        token: &'a str,
        origin: Origin,
    ) -> BoxFuture<'a, Result<Caller>> {
        Box::pin(async move {
            let proof = self
                .verifier
                .verify(token)
                .await?
                .ok_or(Error::Unauthenticated)?;
            let (cached, now) = (self.live_token(proof.id).await?, self.core.now());
            let state = &cached.state;
            if proof.has_ended(now) || SecretMark::from(&state.secret_hash) != proof.secret {
                return Err(Error::Unauthenticated);
            }
            let used = TokenUse {
                at: now,
                address: origin.address,
            };
            self.touches.note(proof.id, used, &cached.touched, now);
            Ok(Caller {
                account: state.account,
                credential: Credential::Token(proof.id),
                email: state.email.clone(),
                fullname: state.fullname.clone(),
                admin: state.admin,
                grant: state.scope,
                authenticated_at: None,
                origin,
            })
        })
    }

    /// Refuses a token that has ended since; for what outlives its request.
    pub(crate) async fn check_again(&self, id: TokenId) -> Result<()> {
        self.live_token(id).await.map(drop)
    }

    /// The state of a token that is neither revoked nor expired nor of a disabled account.
    async fn live_token(&self, id: TokenId) -> Result<Arc<CachedToken>> {
        let load = || async {
            let state = tokens::token_state(&self.core.db, id).await?;
            Ok(state.map(|state| CachedToken {
                touched: AtomicI64::new(state.last_used_at.map_or(0, Timestamp::millis)),
                state,
            }))
        };
        let found = self.states.get_or_load(id, load).await?;
        let now = self.core.now();
        let is_live = |CachedToken { state, .. }: &CachedToken| {
            !state.disabled && state.expires_at.is_none_or(|at| at > now)
        };
        found
            .filter(|cached| is_live(cached))
            .ok_or(Error::Unauthenticated)
    }

    /// Writes down which tokens were used; called every few seconds and at the end.
    pub async fn flush_touches(&self) -> Result<()> {
        let write = |used: Arc<[_]>| {
            self.core.db.transact(move |tx| {
                let used = Arc::clone(&used);
                Box::pin(async move { Ok(tokens::touch_tokens(tx, &used).await?) })
            })
        };
        self.touches.flush(write).await
    }
}
