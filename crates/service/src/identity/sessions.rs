//! Sessions of the account panel: a browser that is signed in.
//!
//! The cookie is the session's id and a secret; only its hash is stored. The live state (ended, idle, of a
//! disabled account) is a cache that the change feed invalidates, as that of tokens is: an acknowledged
//! revocation is in force for the next request, on other nodes within a second.

mod pending;

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::{Caller, Credential, Operation, Origin};
use crate::identity::credentials::Touches;
use crate::identity::login::{Logins, Verification, Verified, origin_of};
use crate::identity::passwords::LoginProof;
use crate::state_cache::StateCache;
use crate::{Core, Error, Result, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::audit::Action;
use estrade_model::secret::Secret;
use estrade_model::token_scope::TokenScope;
use estrade_model::{AccountId, SessionId, Timestamp};
use estrade_store::sessions::{self, SessionState, SessionUse};
use estrade_store::{ChangeKind, Tx, accounts, device_codes};
use futures_util::future::BoxFuture;
pub use pending::PendingSignIn;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

pub use estrade_store::sessions::SessionRow;

/// A session that is not used for so long ends.
const MAX_IDLE: Duration = Duration::from_hours(12);
/// A session ends after this time, however it is used.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
/// How long a row stays without a use. Longer than [`MAX_IDLE`]: uses are written down with a delay.
pub(crate) const RETENTION: Duration = Duration::from_hours(13);
/// How many sessions of an account last; the oldest ends with one more.
const MAX_SESSIONS: u32 = 100;
/// How much is kept of what a browser calls itself, in characters.
const MAX_USER_AGENT: usize = 256;
/// Sessions whose live state is kept.
const MAX_CACHED_SESSIONS: usize = 50_000;
/// Bytes of the secret in a cookie.
const SECRET_BYTES: usize = 32;

/// The browser behind a request.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: IpAddr,
    /// What it calls itself.
    pub user_agent: String,
}

impl Client {
    /// Where its requests come from, for the audit log.
    pub fn origin(&self) -> Origin {
        origin_of(self.address)
    }
}

/// A session right after it was made.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    /// The value of the cookie.
    pub secret: Secret,
}

/// How a sign-in with the right password goes on.
#[derive(Debug)]
pub enum SignIn {
    Done(NewSession),
    /// The account has a second factor: [`Sessions::second_factor`] takes its code.
    SecondFactorRequired(PendingSignIn),
}

/// The person behind a request with a session.
#[derive(Clone)]
pub struct SignedIn {
    pub caller: Caller,
    pub session: SessionId,
    /// Hash of the cookie, which nobody else knows.
    pub secret_hash: [u8; 32],
}

impl fmt::Debug for SignedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedIn")
            .field("caller", &self.caller)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

struct CachedSession {
    state: SessionState,
    /// When it was last used, as far as this node knows.
    seen: AtomicI64,
}

impl CachedSession {
    fn is_idle(&self, now: Timestamp) -> bool {
        let seen = Timestamp::from_millis(self.seen.load(Ordering::Relaxed));
        seen.after(MAX_IDLE) <= now
    }
}

/// Signs people in to the account panel, and turns their cookies into callers.
pub struct Sessions {
    core: Arc<Core>,
    logins: Arc<Logins>,
    states: Arc<StateCache<SessionId, CachedSession>>,
    touches: Touches<SessionId, SessionUse>,
}

impl Sessions {
    /// Builds the cache and hooks it to the change feed.
    pub fn new(core: &Arc<Core>, logins: &Arc<Logins>) -> Self {
        let all = &[ChangeKind::Account];
        let states = StateCache::hooked(&core.db, MAX_CACHED_SESSIONS, ChangeKind::Session, all);
        Self {
            core: Arc::clone(core),
            logins: Arc::clone(logins),
            states,
            touches: Touches::default(),
        }
    }

    /// Checks a password, and the code of a second factor when there is one, and makes a session.
    pub fn sign_in<'a>(
        &'a self,
        email: &'a str,
        password: Secret,
        otp: Option<&'a str>,
        client: &'a Client,
    ) -> BoxFuture<'a, Result<SignIn>> {
        Box::pin(async move {
            let verified = self.logins.verify(client.address, email, password, otp);
            let verified = match verified.await? {
                Verification::Complete(verified) => verified,
                Verification::CodeMissing(row) => {
                    let pending = PendingSignIn::new(&self.core, &row)?;
                    return Ok(SignIn::SecondFactorRequired(pending));
                }
            };
            Ok(SignIn::Done(self.create(verified, client).await?))
        })
    }

    /// Goes on with a sign-in that lacks the code of the second factor, or a recovery code.
    ///
    /// [`Error::Unauthenticated`] when it takes too long: then the password is asked for again.
    pub fn second_factor<'a>(
        &'a self,
        pending: &'a str,
        code: &'a str,
        client: &'a Client,
    ) -> BoxFuture<'a, Result<NewSession>> {
        Box::pin(async move {
            let row = PendingSignIn::open(&self.core, pending).await?;
            let account = accounts::account_by_id(&self.core.db, row.account).await?;
            let account = account.ok_or(Error::Unauthenticated)?;
            let attempt = self
                .logins
                .verify_code(client.address, &account, code)
                .await?;
            let proof = LoginProof::new(&row, true);
            self.create(Verified { proof, attempt }, client).await
        })
    }

    async fn create(&self, verified: Verified, client: &Client) -> Result<NewSession> {
        let Verified { proof, attempt } = verified;
        let (account, id): (_, SessionId) = (proof.account, self.core.new_id()?);
        let secret = URL_SAFE_NO_PAD.encode(random::bytes::<SECRET_BYTES>()?);
        let cookie = Secret(format!("{id}.{secret}"));
        let row = sessions::NewSession {
            id,
            account,
            secret_hash: hash(cookie.expose()),
            created_at: self.core.now(),
            address: client.address.to_canonical().to_string(),
            user_agent: shorten(&client.user_agent),
        };
        let origin = client.origin();
        self.core
            .db
            .transact(move |tx| {
                let (row, proof, origin) = (row.clone(), proof.clone(), origin.clone());
                Box::pin(async move {
                    insert(tx, &row, &proof).await?;
                    note_sign_in(tx, &row, origin).await
                })
            })
            .await?;
        attempt.succeed(&self.core, account).await?;
        Ok(NewSession { id, secret: cookie })
    }

    /// The person behind a cookie, or [`Error::Unauthenticated`].
    pub fn authenticate<'a>(
        &'a self,
        cookie: &'a str,
        client: &'a Client,
    ) -> BoxFuture<'a, Result<SignedIn>> {
        Box::pin(async move {
            let id = parse_cookie(cookie).ok_or(Error::Unauthenticated)?;
            let (cached, now) = (self.live_session(id).await?, self.core.now());
            let state = &cached.state;
            if state.secret_hash != hash(cookie) {
                return Err(Error::Unauthenticated);
            }
            let used = SessionUse {
                at: now,
                address: client.address,
            };
            self.touches.note(id, used, &cached.seen, now);
            Ok(SignedIn {
                caller: Caller {
                    account: state.account,
                    credential: Credential::Session(id),
                    email: state.email.clone(),
                    fullname: state.fullname.clone(),
                    admin: state.admin,
                    grant: TokenScope::Full,
                    authenticated_at: Some(state.authenticated_at),
                    origin: client.origin(),
                },
                session: id,
                secret_hash: state.secret_hash,
            })
        })
    }

    /// Refuses a session that has ended since; for what outlives its request.
    pub(crate) async fn check_again(&self, id: SessionId) -> Result<()> {
        self.live_session(id).await.map(drop)
    }

    /// The state of a session that was neither ended nor is idle, too old or of a disabled account.
    async fn live_session(&self, id: SessionId) -> Result<Arc<CachedSession>> {
        let now = self.core.now();
        let mut found = self.load(id).await?;
        if found.as_ref().is_some_and(|cached| cached.is_idle(now)) {
            // It may have been used on another node, which only the database knows.
            self.states.invalidate(&id);
            found = self.load(id).await?;
        }
        let is_live = |cached: &CachedSession| {
            let state = &cached.state;
            !state.disabled && !cached.is_idle(now) && state.created_at.after(MAX_AGE) > now
        };
        found
            .filter(|cached| is_live(cached))
            .ok_or(Error::Unauthenticated)
    }

    async fn load(&self, id: SessionId) -> Result<Option<Arc<CachedSession>>> {
        let load = || async {
            let state = sessions::session_state(&self.core.db, id).await?;
            Ok(state.map(|state| CachedSession {
                seen: AtomicI64::new(state.last_seen_at.millis()),
                state,
            }))
        };
        self.states.get_or_load(id, load).await
    }

    /// Asks a signed-in person for the password, or a code of the second factor, once more.
    pub fn confirm<'a>(
        &'a self,
        signed_in: &'a SignedIn,
        secret: Secret,
        client: &'a Client,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (account, id) = (signed_in.caller.account, signed_in.session);
            let row = accounts::account_by_id(&self.core.db, account).await?;
            let row = row.ok_or(Error::Unauthenticated)?;
            let attempt = self.logins.verify_again(client.address, &row, secret);
            let attempt = attempt.await?;
            let now = self.core.now();
            self.core
                .db
                .transact(move |tx| {
                    Box::pin(async move {
                        if !sessions::set_authenticated(tx, account, id, now).await? {
                            return Err(Error::Unauthenticated);
                        }
                        Ok(tx.changed(ChangeKind::Session, id, now).await?)
                    })
                })
                .await?;
            attempt.succeed(&self.core, account).await
        })
    }

    /// A page of an account's sessions that have not ended, newest first.
    pub async fn list(
        &self,
        account: AccountId,
        before: Option<SessionId>,
        count: u32,
    ) -> Result<Vec<SessionRow>> {
        let now = self.core.now();
        let (made_after, used_after) = (now.before(MAX_AGE), now.before(MAX_IDLE));
        let db = &self.core.db;
        Ok(sessions::list_sessions(db, account, made_after, used_after, before, count).await?)
    }

    /// Ends one of the caller's sessions; in force for the next request.
    pub async fn revoke(&self, caller: &Caller, id: SessionId) -> Result<()> {
        let account = caller.require(Operation::WriteAccount)?;
        let now = self.core.now();
        let action = if caller.credential.session() == Some(id) {
            Action::SignOut
        } else {
            Action::RevokeSession
        };
        let note = PendingEntry::of(&self.core, caller, account.cast(), action, id)?;
        let note = note.about(&caller.email);
        self.core
            .db
            .transact(move |tx| {
                let note = note.clone();
                Box::pin(async move {
                    if !sessions::delete_session(tx, account, id).await? {
                        return Err(Error::NotFound("the session"));
                    }
                    note.write(tx).await?;
                    Ok(tx.changed(ChangeKind::Session, id, now).await?)
                })
            })
            .await
    }

    /// Ends the caller's sessions but for the one that the caller came with; returns how many there were.
    pub async fn revoke_others(&self, caller: &Caller) -> Result<u64> {
        let account = caller.require(Operation::WriteAccount)?;
        let now = self.core.now();
        let kept = caller.credential.session();
        let own = account.cast();
        let note = PendingEntry::of(&self.core, caller, own, Action::RevokeSession, account)?;
        let note = note.about(&caller.email);
        self.core
            .db
            .transact(move |tx| {
                let note = note.clone();
                Box::pin(async move {
                    let ended = sessions::delete_sessions(tx, account, kept).await?;
                    device_codes::withdraw_approvals(tx, account).await?;
                    if !ended.is_empty() {
                        let note = note.detail(format!("{} others", ended.len()));
                        note.write(tx).await?;
                    }
                    for id in &ended {
                        tx.changed(ChangeKind::Session, *id, now).await?;
                    }
                    Ok(ended.len() as u64)
                })
            })
            .await
    }

    /// Ends the session that the caller came with.
    pub async fn sign_out(&self, caller: &Caller) -> Result<()> {
        let Some(id) = caller.credential.session() else {
            return Ok(());
        };
        match self.revoke(caller, id).await {
            Err(Error::NotFound(_)) => Ok(()),
            other => other,
        }
    }

    /// Writes down which sessions were used; called every few seconds and at the end.
    pub async fn flush_touches(&self) -> Result<()> {
        let write = |used: Arc<[_]>| {
            self.core.db.transact(move |tx| {
                let used = Arc::clone(&used);
                Box::pin(async move { Ok(sessions::touch_sessions(tx, &used).await?) })
            })
        };
        self.touches.flush(write).await
    }
}

/// Inserts a session, unless the password was changed since it was checked.
async fn insert(tx: &mut Tx, row: &sessions::NewSession, proof: &LoginProof) -> Result<()> {
    proof.confirm(tx).await?;
    sessions::insert_session(tx, row).await?;
    for ended in sessions::delete_oldest_sessions(tx, row.account, MAX_SESSIONS).await? {
        tx.changed(ChangeKind::Session, ended, row.created_at)
            .await?;
    }
    Ok(())
}

async fn note_sign_in(tx: &mut Tx, row: &sessions::NewSession, origin: Origin) -> Result<()> {
    let (account, id, now) = (row.account, row.id, row.created_at);
    let found = accounts::find_account(tx, account).await?;
    let email = found.map_or_else(String::new, |found| found.email);
    let actor = Actor::account(account, &email, origin);
    PendingEntry::creation_by(actor, account.cast(), Action::SignIn, id, now)
        .about(&email)
        .detail(&row.user_agent)
        .write(tx)
        .await
}

/// The id in a cookie.
fn parse_cookie(cookie: &str) -> Option<SessionId> {
    let (id, secret) = cookie.split_once('.')?;
    // Base 64 of the secret, without padding.
    (secret.len() == (SECRET_BYTES * 4).div_ceil(3)).then(|| id.parse().ok())?
}

fn hash(cookie: &str) -> [u8; 32] {
    blake3::derive_key("estrade session", cookie.as_bytes())
}

/// What is kept of what a browser calls itself.
fn shorten(user_agent: &str) -> String {
    let shown = user_agent.chars().filter(|c| !c.is_control());
    shown.take(MAX_USER_AGENT).collect()
}
