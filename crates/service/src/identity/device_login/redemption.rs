//! The client's side of a login that waits: polls, and the one that makes the token.

use super::{POLL_INTERVAL, SECRET_CHARS, hash_device_code, token_name};
use crate::audit::{Actor, PendingEntry};
use crate::identity::login::origin_of;
use crate::identity::tokens;
use crate::keyring::Audience;
use crate::{Core, Error, Result};
use estrade_model::audit::Action;
use estrade_model::device_login::DeviceToken;
use estrade_model::secret::Secret;
use estrade_model::token_scope::TokenScope;
use estrade_model::{Timestamp, TokenId};
use estrade_store::device_codes::{self, ApprovedLogin, CodeState};
use estrade_store::tokens::NewToken;
use estrade_store::{Tx, accounts, sessions};
use std::net::IpAddr;
use std::time::Duration;

/// A poll that comes sooner is refused. Shorter than what clients are told: their clocks are not ours.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(4);
/// How long the token lives.
const TOKEN_LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Makes the token of a login that was approved, once. Before that the error says why there is none, with the codes of
/// RFC 8628: `authorization_pending`, `slow_down`, `access_denied`, `expired_token`.
pub async fn redeem(core: &Core, device_code: &Secret, address: IpAddr) -> Result<DeviceToken> {
    let secret = device_code.expose();
    if secret.len() != SECRET_CHARS {
        return Err(ended());
    }
    let (hash, now) = (hash_device_code(secret), core.now());
    let found = device_codes::find_code(&core.db, hash, now).await?;
    let state = found.ok_or_else(ended)?;
    if state.denied {
        return Err(refused());
    }
    require_interval(&state, now)?;
    if state.account.is_none() {
        return Err(note_poll(core, state, now).await?);
    }
    let made = create_token(core, hash, address, now).await;
    if let Err(Error::Quota { .. }) = &made {
        // The login stays, so that it can be tried again: not at once, because each try takes a turn of the writer.
        note_poll(core, state, now).await?;
    }
    made
}

/// Refuses a poll that comes too soon. It writes nothing.
fn require_interval(state: &CodeState, now: Timestamp) -> Result<()> {
    let (since, until) = too_soon(now);
    match state.polled_at {
        Some(at) if at > since && at <= until => Err(slow_down()),
        _ => Ok(()),
    }
}

/// After which time, and up to which, another poll makes one too soon. One that is further ahead is of a clock that was,
/// and says nothing: counting from it would refuse every poll until then.
fn too_soon(now: Timestamp) -> (Timestamp, Timestamp) {
    (now.before(MIN_POLL_INTERVAL), now.after(MIN_POLL_INTERVAL))
}

fn slow_down() -> Error {
    let message = format!(
        "this came too soon: wait {} s between two requests",
        POLL_INTERVAL.as_secs()
    );
    failure("slow_down", &message)
}

/// Notes a poll that made no token; what a client hears that has to go on waiting. Of several at once, one waits and the
/// others are too soon.
async fn note_poll(core: &Core, state: CodeState, now: Timestamp) -> Result<Error> {
    let noted = core.db.transact(move |tx| {
        Box::pin(async move {
            Ok::<_, Error>(device_codes::touch_code(tx, state.id, now, too_soon(now)).await?)
        })
    });
    if !noted.await? {
        return Ok(slow_down());
    }
    Ok(failure(
        "authorization_pending",
        "nobody has approved this login yet; ask again",
    ))
}

async fn create_token(
    core: &Core,
    hash: [u8; 32],
    address: IpAddr,
    now: Timestamp,
) -> Result<DeviceToken> {
    let (id, expires_at): (TokenId, _) = (core.new_id()?, now.after(TOKEN_LIFETIME));
    let signed = core
        .keyring
        .load()
        .sign(Audience::Account, id, now, Some(expires_at))?;
    let new = TokenOfLogin {
        id,
        secret_hash: signed.secret_hash,
        created_at: now,
        expires_at,
        address,
        quota: core.settings.quotas.tokens,
    };
    let made = core
        .db
        .transact(move |tx| Box::pin(async move { new.redeem(tx, hash).await }));
    match made.await? {
        Redeemed::Made(email, scope) => Ok(DeviceToken {
            id,
            api_token: signed.token,
            email,
            scope,
            expires_at,
        }),
        Redeemed::Refused => Err(refused()),
        Redeemed::Ended => Err(ended()),
    }
}

/// The token that a login will make, before it is known whose it is.
#[derive(Clone, Copy)]
struct TokenOfLogin {
    id: TokenId,
    secret_hash: [u8; 32],
    created_at: Timestamp,
    expires_at: Timestamp,
    /// Where the client asks from.
    address: IpAddr,
    quota: u64,
}

impl TokenOfLogin {
    /// Uses the login up and inserts its token.
    async fn redeem(self, tx: &mut Tx, hash: [u8; 32]) -> Result<Redeemed> {
        let login = device_codes::take_approved(tx, hash, self.created_at).await?;
        let Some(login) = login else {
            return Ok(Redeemed::Ended);
        };
        let Some(account) = accounts::find_account(tx, login.account).await? else {
            return Ok(Redeemed::Refused);
        };
        let actor = Actor::account(login.account, &account.email, origin_of(self.address));
        if account.disabled || !sessions::has_session(tx, login.account, login.session).await? {
            // It stays used up: an account that is let in again has not approved anything.
            note_refusal(tx, actor, &login, self.created_at).await?;
            return Ok(Redeemed::Refused);
        }
        let row = NewToken {
            id: self.id,
            account: login.account,
            name: token_name(&login.host),
            scope: login.scope,
            secret_hash: self.secret_hash,
            created_at: self.created_at,
            expires_at: Some(self.expires_at),
            session: false,
        };
        tokens::insert_approved(tx, &row, login.session, self.quota).await?;
        note_creation(tx, actor, &row, &login).await?;
        Ok(Redeemed::Made(account.email, row.scope))
    }
}

enum Redeemed {
    Made(String, TokenScope),
    Refused,
    Ended,
}

/// That an approval no longer held when its client came for the token.
async fn note_refusal(
    tx: &mut Tx,
    actor: Actor,
    login: &ApprovedLogin,
    now: Timestamp,
) -> Result<()> {
    let owner = login.account.cast();
    let note = PendingEntry::by(actor, owner, Action::DenyLogin, login.id, now)?;
    let note = note.about(&token_name(&login.host));
    let reason = "the account is locked, or the session that approved it has ended";
    note.detail(reason).write(tx).await
}

/// That the token was made, with the id that the entry of the approval is about.
async fn note_creation(
    tx: &mut Tx,
    actor: Actor,
    row: &NewToken,
    login: &ApprovedLogin,
) -> Result<()> {
    let (owner, at) = (row.account.cast(), row.created_at);
    let note =
        PendingEntry::creation_by(actor, owner, Action::CreateToken, row.id, at).about(&row.name);
    let note = note.detail(match row.scope {
        TokenScope::Full => format!("login {}", login.id),
        scope => format!("{scope}, login {}", login.id),
    });
    note.write(tx).await
}

fn failure(code: &'static str, message: &str) -> Error {
    Error::Invalid {
        code,
        message: message.to_owned(),
    }
}

fn refused() -> Error {
    failure("access_denied", "this login was denied; begin another one")
}

/// The same whether the code has ended, was used, or never was one.
fn ended() -> Error {
    failure(
        "expired_token",
        "this login has expired or was completed before; begin another one",
    )
}
