//! Links with which somebody sets the password of an account: one use, within an hour.
//!
//! Only the hash of a link's code is stored. To look at a link does not use it up: mail programs and chats open
//! the links that they show.
//!
//! The owner who resets a password may not know who else has got in: it ends every session and every token of the
//! account. The link of the first start ends no token, because nobody has set a password before, and the administrator's
//! first token was made a moment ago.

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::Origin;
use crate::identity::accounts::{self, EndedTokens};
use crate::identity::passwords;
use crate::{Caller, Core, Error, Result, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::AccountId;
use estrade_model::audit::Action;
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_store::Tx;
use estrade_store::accounts::{self as account_rows, PasswordRow};
use estrade_store::reset_links::{self, ResetLinkRow};
use std::time::Duration;

/// How long a link is good.
const LIFETIME: Duration = Duration::from_hours(1);
/// Bytes of a code.
const CODE_BYTES: usize = 32;
/// Tells hashes of codes from all others.
const HASH_CONTEXT: &str = "estrade reset link";
/// Longer than any code that we made.
const MAX_CODE_LENGTH: usize = 64;

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A password that was forgotten, or the first one of an account.
    Reset,
    /// The first password of the first account.
    Welcome,
}

impl LinkKind {
    fn parse(stored: &str) -> Self {
        if stored == Self::Welcome.as_str() {
            Self::Welcome
        } else {
            Self::Reset
        }
    }

    /// What its use ends, besides sessions.
    fn ended_tokens(self) -> EndedTokens {
        match self {
            Self::Reset => EndedTokens::All,
            Self::Welcome => EndedTokens::Sessions,
        }
    }

    /// As it is stored, and its place in the account panel.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Welcome => "welcome",
        }
    }
}

/// A link that is good.
#[derive(Debug, Clone)]
pub struct ResetLink {
    /// Whose password it sets.
    pub email: String,
    pub kind: LinkKind,
}

/// What the first account needs for its first password.
#[derive(Debug)]
pub enum FirstPassword {
    /// It has a password.
    Exists,
    /// The code of the link that sets it; this is the only time that it is known.
    Link(Secret),
    /// It has none, and the link was shown before: another one is made by hand.
    LinkWasShown,
}

/// Makes a link for an account and ends its earlier one; for administrators. Returns its code.
pub async fn create_reset_link(core: &Core, caller: &Caller, account: AccountId) -> Result<Secret> {
    let permission = caller.require_admin(core)?;
    let (secret, row) = new_link(core, account, LinkKind::Reset)?;
    let note = PendingEntry::of(
        core,
        caller,
        account.cast(),
        Action::CreateResetLink,
        account,
    )?;
    permission
        .transact(core, move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move { insert(tx, &row, &note).await })
        })
        .await?;
    Ok(secret)
}

/// The same for the administrator's command line.
pub async fn create_any_reset_link(core: &Core, account: AccountId) -> Result<Secret> {
    let (secret, row) = new_link(core, account, LinkKind::Reset)?;
    let (actor, now) = (Actor::command_line(), core.now());
    let note = PendingEntry::by(actor, account.cast(), Action::CreateResetLink, account, now)?;
    core.db
        .transact(move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move { insert(tx, &row, &note).await })
        })
        .await?;
    Ok(secret)
}

/// Makes the link for the first password of the first account, once: whoever starts the server sees it.
pub async fn create_welcome_link(core: &Core, email: &Email) -> Result<FirstPassword> {
    let needs_one = |row: &PasswordRow| row.hash.is_none() && !row.disabled;
    let stored = account_rows::password_by_email(&core.db, email.as_str()).await?;
    let Some(account) = stored.filter(needs_one).map(|row| row.account) else {
        return Ok(FirstPassword::Exists);
    };
    let (secret, row) = new_link(core, account, LinkKind::Welcome)?;
    let is_new = core.db.transact(move |tx| {
        let row = row.clone();
        Box::pin(async move {
            let stored = account_rows::find_password(tx, row.account).await?;
            if !stored.as_ref().is_some_and(needs_one) {
                return Ok(None);
            }
            if reset_links::has_link(tx, row.account).await? {
                return Ok(Some(false));
            }
            reset_links::insert_link(tx, &row).await?;
            Ok::<_, Error>(Some(true))
        })
    });
    Ok(match is_new.await? {
        None => FirstPassword::Exists,
        Some(true) => FirstPassword::Link(secret),
        Some(false) => FirstPassword::LinkWasShown,
    })
}

/// Where a link leads, under the address of the platform API.
pub fn path(kind: LinkKind, secret: &Secret) -> String {
    format!("/panel/{}/{}", kind.as_str(), secret.expose())
}

/// The whole link.
pub fn url(core: &Core, kind: LinkKind, secret: &Secret) -> Secret {
    let base = core.settings.public_url.trim_end_matches('/');
    Secret(format!("{base}{}", path(kind, secret)))
}

/// Whose password a link sets; none when it is unknown, used or expired. It stays good.
pub async fn peek(core: &Core, secret: &str) -> Result<Option<ResetLink>> {
    let Some(secret_hash) = hash(secret) else {
        return Ok(None);
    };
    let found = reset_links::find_link(&core.db, secret_hash, core.now()).await?;
    Ok(found.map(|found| ResetLink {
        kind: LinkKind::parse(&found.kind),
        email: found.email,
    }))
}

/// Sets a password with a link, which it uses up; whoever is signed in is signed out, and a reset also ends the
/// account's tokens. Returns the address of the account.
///
/// A link that is unknown, used or expired is not found. A password that is not acceptable leaves it good.
pub async fn use_reset_link(
    core: &Core,
    secret: &str,
    password: Secret,
    origin: Origin,
) -> Result<String> {
    let not_found = || Error::NotFound("the link");
    let secret_hash = hash(secret).ok_or_else(not_found)?;
    // Before the password is hashed, which is expensive: strangers send any code.
    let found = reset_links::find_link(&core.db, secret_hash, core.now()).await?;
    let found = found.ok_or_else(not_found)?;
    let password = passwords::hash_of_stranger(password).await?;
    let (account, now) = (found.account, core.now());
    let ended = LinkKind::parse(&found.kind).ended_tokens();
    let actor = Actor::account(account, &found.email, origin);
    let note = PendingEntry::by(actor, account.cast(), Action::SetPassword, account, now)?;
    let note = note.about(&found.email).detail("with a link");
    core.db
        .transact(move |tx| {
            let (password, note) = (password.clone(), note.clone());
            Box::pin(async move {
                if !reset_links::take_link(tx, account, secret_hash, now).await? {
                    return Err(not_found());
                }
                note.write(tx).await?;
                accounts::replace_password(tx, account, &password, ended, None, now).await
            })
        })
        .await?;
    Ok(found.email)
}

fn new_link(core: &Core, account: AccountId, kind: LinkKind) -> Result<(Secret, ResetLinkRow)> {
    let bytes = random::bytes::<CODE_BYTES>()?;
    let secret = Secret(URL_SAFE_NO_PAD.encode(bytes));
    let row = ResetLinkRow {
        account,
        secret_hash: blake3::derive_key(HASH_CONTEXT, secret.expose().as_bytes()),
        kind: kind.as_str(),
        expires_at: core.now().after(LIFETIME),
    };
    Ok((secret, row))
}

async fn insert(tx: &mut Tx, row: &ResetLinkRow, note: &PendingEntry) -> Result<()> {
    let stored = account_rows::find_password(tx, row.account).await?;
    let stored = stored.ok_or(Error::NotFound("the account"))?;
    if stored.disabled {
        return Err(Error::conflict(
            "account_disabled",
            "the account is disabled; enable it first",
        ));
    }
    note.write(tx).await?;
    Ok(reset_links::insert_link(tx, row).await?)
}

/// The hash of a code; none of what cannot be one.
fn hash(secret: &str) -> Option<[u8; 32]> {
    let is_code = secret.len() <= MAX_CODE_LENGTH;
    is_code.then(|| blake3::derive_key(HASH_CONTEXT, secret.as_bytes()))
}
