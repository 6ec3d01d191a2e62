//! Account tokens: made, listed, revoked.

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::{Credential, Operation, Origin, require_visible_project};
use crate::identity::passwords::LoginProof;
use crate::keyring::Audience;
use crate::{Caller, Core, Error, Result};
use estrade_model::account::{CreatedToken, Token};
use estrade_model::audit::Action;
use estrade_model::time::Lifetime;
use estrade_model::token_scope::TokenScope;
use estrade_model::{AccountId, SessionId, Timestamp, TokenId};
use estrade_store::tokens::{self, NewToken, TokenRow};
use estrade_store::{ChangeKind, Tx, device_codes, sessions};
use std::collections::BTreeSet;
use std::time::Duration;

fn on_the_wire(row: TokenRow) -> Token {
    Token {
        id: row.id,
        name: row.name,
        scope: row.scope,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
        last_used_from: row.last_address,
    }
}

/// How long a login lasts.
const SESSION: Lifetime = Lifetime(Some(Duration::from_hours(30 * 24)));
/// How many logins of an account last; the oldest ends with one more.
const MAX_SESSIONS: u32 = 100;

/// Why a token is made.
#[derive(Clone)]
enum Purpose {
    /// Created by the holder of another credential; at most `quota`, 0 is unlimited.
    Api { by: Credential, quota: u64 },
    /// Created by the administrator.
    CommandLine,
    /// Created by a login.
    Session(LoginProof),
}

/// What a new token is called, what it is good for and for how long.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub name: String,
    pub scope: TokenScope,
    pub lifetime: Lifetime,
}

impl TokenRequest {
    /// A token that is good for everything.
    pub fn full(name: &str, lifetime: Lifetime) -> Self {
        Self {
            name: name.to_owned(),
            scope: TokenScope::Full,
            lifetime,
        }
    }
}

/// Creates a token for the caller; its text is in the response and not stored.
pub async fn create_token(core: &Core, caller: &Caller, new: TokenRequest) -> Result<CreatedToken> {
    let account = caller.require(Operation::WriteTokens)?;
    caller.require_recent(core)?;
    let purpose = Purpose::Api {
        by: caller.credential,
        quota: core.settings.quotas.tokens,
    };
    create(core, (account, Actor::caller(caller)), new, purpose).await
}

/// The same for any account, however many it has, for the administrator's command line.
pub async fn create_any_token(
    core: &Core,
    account: AccountId,
    new: TokenRequest,
) -> Result<CreatedToken> {
    let holder = (account, Actor::command_line());
    create(core, holder, new, Purpose::CommandLine).await
}

/// Creates the token of a login, if the password is still the account's.
pub(crate) async fn create_session(
    core: &Core,
    proof: LoginProof,
    email: &str,
    origin: Origin,
) -> Result<CreatedToken> {
    let (account, new) = (proof.account, TokenRequest::full("login", SESSION));
    let holder = (account, Actor::account(account, email, origin));
    create(core, holder, new, Purpose::Session(proof)).await
}

async fn create(
    core: &Core,
    (account, actor): (AccountId, Actor),
    new: TokenRequest,
    purpose: Purpose,
) -> Result<CreatedToken> {
    let now = core.now();
    let id: TokenId = core.new_id()?;
    let expires_at = new.lifetime.0.map(|span| now.after(span));
    let signed = core
        .keyring
        .load()
        .sign(Audience::Account, id, now, expires_at)?;
    let row = NewToken {
        id,
        account,
        name: new.name,
        scope: new.scope,
        secret_hash: signed.secret_hash,
        created_at: now,
        expires_at,
        session: matches!(purpose, Purpose::Session(_)),
    };
    let action = if row.session {
        Action::SignIn
    } else {
        Action::CreateToken
    };
    let note = PendingEntry::creation_by(actor, account.cast(), action, id, now).about(&row.name);
    let note = note.detail(match row.scope {
        TokenScope::Full => String::new(),
        scope => scope.to_string(),
    });
    core.db
        .transact(move |tx| {
            let (row, purpose, note) = (row.clone(), purpose.clone(), note.clone());
            Box::pin(async move {
                insert(tx, &row, &purpose).await?;
                note.write(tx).await
            })
        })
        .await?;
    Ok(CreatedToken {
        id,
        api_token: Some(signed.token),
    })
}

/// Inserts a token, unless what it is made with has ended since it was checked: a credential that was revoked
/// must not leave a token behind, nor a password that was changed.
async fn insert(tx: &mut Tx, row: &NewToken, purpose: &Purpose) -> Result<()> {
    let (account, now) = (row.account, row.created_at);
    match purpose {
        Purpose::CommandLine => {}
        Purpose::Api { by, quota } => {
            let is_live = match *by {
                Credential::Token(id) => tokens::has_token(tx, account, id).await?,
                Credential::Session(id) => sessions::has_session(tx, account, id).await?,
            };
            if !is_live {
                return Err(Error::Unauthenticated);
            }
            require_room(tx, account, *quota, now).await?;
        }
        Purpose::Session(proof) => proof.confirm(tx).await?,
    }
    if let Some(project) = row.scope.project() {
        require_visible_project(tx, account, project).await?;
    }
    tokens::insert_token(tx, row).await?;
    if row.session {
        for ended in tokens::delete_old_sessions(tx, account, MAX_SESSIONS).await? {
            tx.changed(ChangeKind::Token, ended, now).await?;
        }
    }
    Ok(())
}

/// Inserts the token of a login that a session approved.
pub(super) async fn insert_approved(
    tx: &mut Tx,
    row: &NewToken,
    session: SessionId,
    quota: u64,
) -> Result<()> {
    let by = Credential::Session(session);
    insert(tx, row, &Purpose::Api { by, quota }).await
}

/// Refuses (403) when the account has as many tokens as it may have.
pub(super) async fn require_room(
    tx: &mut Tx,
    account: AccountId,
    quota: u64,
    now: Timestamp,
) -> Result<()> {
    if quota > 0 && tokens::count_tokens(tx, account, now).await? >= quota {
        return Err(Error::Quota {
            what: "tokens",
            limit: quota,
        });
    }
    Ok(())
}

/// A page of the caller's tokens, newest first.
pub async fn list_tokens(
    core: &Core,
    caller: &Caller,
    before: Option<TokenId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Token>> {
    let account = caller.require(Operation::ReadTokens)?;
    list_any_tokens(core, account, before, count, skip).await
}

/// The same of any account, for the administrator's command line.
pub async fn list_any_tokens(
    core: &Core,
    account: AccountId,
    before: Option<TokenId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Token>> {
    let rows = tokens::list_tokens(&core.db, account, before, count, skip).await?;
    Ok(rows.into_iter().map(on_the_wire).collect())
}

/// Revokes one of the caller's tokens; in force for the next request. Every token may revoke itself.
pub async fn delete_token(core: &Core, caller: &Caller, id: TokenId) -> Result<()> {
    if caller.credential != Credential::Token(id) {
        caller.require(Operation::WriteTokens)?;
    }
    revoke(core, Some(caller.account), id, Actor::caller(caller)).await
}

/// Revokes a token of any owner, for the administrator's command line.
pub async fn revoke_any_token(core: &Core, id: TokenId) -> Result<()> {
    revoke(core, None, id, Actor::command_line()).await
}

/// Revokes every token of an account and signs its browsers out, or does so to all of them; returns how many
/// tokens there were.
pub async fn revoke_all_tokens(core: &Core, account: Option<AccountId>) -> Result<u64> {
    let now = core.now();
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                let accounts = if let Some(account) = account {
                    BTreeSet::from([account])
                } else {
                    let mut holders = BTreeSet::from_iter(tokens::list_holders(tx).await?);
                    holders.extend(sessions::list_holders(tx).await?);
                    holders
                };
                let mut ended = 0;
                for account in accounts {
                    let gone = tokens::delete_tokens(tx, account).await?;
                    sessions::delete_sessions(tx, account, None).await?;
                    device_codes::withdraw_approvals(tx, account).await?;
                    note_revocations(tx, account, gone, now).await?;
                    ended += gone;
                    tx.changed(ChangeKind::Account, account, now).await?;
                }
                Ok::<_, Error>(ended)
            })
        })
        .await
}

/// One entry for all tokens of an account that the command line revoked at once.
async fn note_revocations(
    tx: &mut Tx,
    account: AccountId,
    ended: u64,
    now: Timestamp,
) -> Result<()> {
    if ended == 0 {
        return Ok(());
    }
    let actor = Actor::command_line();
    let note = PendingEntry::by(actor, account.cast(), Action::DeleteToken, account, now)?;
    note.detail(format!("all {ended} tokens")).write(tx).await
}

async fn revoke(core: &Core, account: Option<AccountId>, id: TokenId, actor: Actor) -> Result<()> {
    let now = core.now();
    core.db
        .transact(move |tx| {
            let actor = actor.clone();
            Box::pin(async move {
                let gone = match account {
                    Some(account) => tokens::delete_token(tx, account, id).await?,
                    None => tokens::delete_any_token(tx, id).await?,
                };
                let gone = gone.ok_or(Error::NotFound("the token"))?;
                PendingEntry::by(actor, gone.account.cast(), Action::DeleteToken, id, now)?
                    .about(&gone.name)
                    .write(tx)
                    .await?;
                Ok(tx.changed(ChangeKind::Token, id, now).await?)
            })
        })
        .await
}
