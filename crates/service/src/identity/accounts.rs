//! Accounts: made and managed by the administrator, used by logging in.

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::Operation;
use crate::settings::LOG_RETENTION;
use crate::{Caller, Core, Error, Result, identity::passwords};
use estrade_model::account::{Me, MePlans, NewAccount, OfferedBundles, OfferedPlan, User};
use estrade_model::audit::Action;
use estrade_model::names::{Email, Label};
use estrade_model::secret::Secret;
use estrade_model::{AccountId, SessionId, Timestamp};
use estrade_store::accounts;
pub use estrade_store::accounts::AccountRow;
use estrade_store::{
    ChangeKind, StoreError, Tx, device_codes, networks, reset_links, second_factors, sessions,
    tokens,
};
use std::collections::BTreeMap;

/// The longest text that accounts are searched for, in characters.
const MAX_SEARCH_CHARS: usize = 100;

/// Adds an account; 409 when the address is taken.
pub async fn create_account(core: &Core, new: NewAccount) -> Result<AccountId> {
    let hash = match new.password {
        Some(password) => Some(passwords::hash(password).await?),
        None => None,
    };
    let (now, network) = (core.now(), core.new_id()?);
    let account = AccountRow {
        id: core.new_id()?,
        email: new.email.to_string(),
        fullname: new.fullname.to_string(),
        admin: new.admin,
        disabled: false,
        created_at: now,
    };
    let id = account.id;
    let actor = Actor::command_line();
    let note = PendingEntry::creation_by(actor, id.cast(), Action::CreateAccount, id, now);
    let note = note.about(&account.email);
    core.db
        .transact(move |tx| {
            let (account, hash, note) = (account.clone(), hash.clone(), note.clone());
            Box::pin(async move {
                insert_account(tx, &account, hash.as_deref(), network, now).await?;
                note.write(tx).await
            })
        })
        .await?;
    Ok(id)
}

/// An account and the network that every owner has.
pub(crate) async fn insert_account(
    tx: &mut Tx,
    account: &AccountRow,
    password: Option<&str>,
    network: estrade_model::project::NetworkId,
    now: Timestamp,
) -> Result<()> {
    match accounts::insert_account(tx, account, password).await {
        Err(StoreError::Duplicate) => Err(account_exists()),
        other => Ok(other?),
    }?;
    Ok(networks::insert_network(tx, account.id.cast(), network, networks::DEFAULT, now).await?)
}

fn account_exists() -> Error {
    Error::conflict("account_exists", "an account with this address exists")
}

/// The account with that address.
pub async fn find_account(core: &Core, email: &Email) -> Result<AccountRow> {
    accounts::account_by_email(&core.db, email.as_str())
        .await?
        .ok_or(Error::NotFound("the account"))
}

/// Every account, oldest first.
pub async fn list_accounts(core: &Core) -> Result<Vec<AccountRow>> {
    Ok(accounts::list_accounts(&core.db).await?)
}

/// Which tokens end with a password, besides the sessions of the account panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedTokens {
    /// Those that logging in made.
    Sessions,
    /// Every one of the account.
    All,
}

/// Sets a new password and ends the sessions, or all tokens too. Returns how many of both ended.
pub async fn set_password(
    core: &Core,
    email: &Email,
    password: Secret,
    ended: EndedTokens,
) -> Result<u64> {
    let account = find_account(core, email).await?.id;
    let hash = passwords::hash(password).await?;
    let now = core.now();
    let actor = Actor::command_line();
    let note = PendingEntry::by(actor, account.cast(), Action::SetPassword, account, now)?;
    let note = note.about(email.as_str());
    core.db
        .transact(move |tx| {
            let (hash, note) = (hash.clone(), note.clone());
            Box::pin(async move {
                note.write(tx).await?;
                replace_password(tx, account, &hash, ended, None, now).await
            })
        })
        .await
}

/// Sets a new password for the caller; ends their other sessions and the tokens that logging in made.
pub async fn change_password(core: &Core, caller: &Caller, password: Secret) -> Result<()> {
    caller.require_recent(core)?;
    let hash = passwords::hash(password).await?;
    let (account, kept, now) = (
        caller.require(Operation::WriteAccount)?,
        caller.credential.session(),
        core.now(),
    );
    let own = account.cast();
    let note =
        PendingEntry::of(core, caller, own, Action::SetPassword, account)?.about(&caller.email);
    core.db
        .transact(move |tx| {
            let (hash, note) = (hash.clone(), note.clone());
            Box::pin(async move {
                // A session that was ended meanwhile must not set the password.
                if let Some(session) = kept
                    && !sessions::has_session(tx, account, session).await?
                {
                    return Err(Error::Unauthenticated);
                }
                note.write(tx).await?;
                let ended = EndedTokens::Sessions;
                replace_password(tx, account, &hash, ended, kept, now).await
            })
        })
        .await
        .map(drop)
}

/// Sets a password and ends what the old one has let in, but for the session that is kept. A second factor that is
/// being set up ends, too: who was let in may have seen its secret. So do logins that were approved and not redeemed, be it
/// by the session that is kept.
pub(crate) async fn replace_password(
    tx: &mut Tx,
    account: AccountId,
    hash: &str,
    ended: EndedTokens,
    kept: Option<SessionId>,
    now: Timestamp,
) -> Result<u64> {
    accounts::set_password(tx, account, hash).await?;
    reset_links::delete_link(tx, account).await?;
    second_factors::delete_pending_factor(tx, account).await?;
    device_codes::withdraw_approvals(tx, account).await?;
    let tokens = match ended {
        EndedTokens::Sessions => tokens::delete_sessions(tx, account).await?,
        EndedTokens::All => tokens::delete_tokens(tx, account).await?,
    };
    let sessions = sessions::delete_sessions(tx, account, kept).await?.len();
    tx.changed(ChangeKind::Account, account, now).await?;
    Ok(tokens + sessions as u64)
}

/// Gives the caller another name.
pub async fn rename_account(core: &Core, caller: &Caller, name: Label) -> Result<()> {
    let (account, now) = (caller.require(Operation::WriteAccount)?, core.now());
    let own = account.cast();
    let note = PendingEntry::of(core, caller, own, Action::RenameAccount, account)?;
    let note = note.about(&caller.email).detail(name.as_str());
    core.db
        .transact(move |tx| {
            let (name, note) = (name.clone(), note.clone());
            Box::pin(async move {
                let before = accounts::find_account(tx, account).await?;
                let before = before.ok_or(Error::Unauthenticated)?;
                if before.fullname == name.as_str() {
                    return Ok(());
                }
                accounts::set_fullname(tx, account, name.as_str()).await?;
                note.write(tx).await?;
                Ok(tx.changed(ChangeKind::Account, account, now).await?)
            })
        })
        .await
}

/// Locks an account out at once, with all its tokens and AI keys.
pub async fn disable_account(core: &Core, email: &Email) -> Result<()> {
    set_disabled(core, email, true).await
}

/// Lets an account in again; the tokens and AI keys that it had work again.
pub async fn enable_account(core: &Core, email: &Email) -> Result<()> {
    set_disabled(core, email, false).await
}

async fn set_disabled(core: &Core, email: &Email, disabled: bool) -> Result<()> {
    let (account, now) = (find_account(core, email).await?.id, core.now());
    let action = if disabled {
        Action::DisableAccount
    } else {
        Action::EnableAccount
    };
    let note = PendingEntry::by(Actor::command_line(), account.cast(), action, account, now)?;
    let note = note.about(email.as_str());
    core.db
        .transact(move |tx| {
            let note = note.clone();
            Box::pin(async move {
                accounts::set_disabled(tx, account, disabled).await?;
                device_codes::withdraw_approvals(tx, account).await?;
                note.write(tx).await?;
                Ok::<_, Error>(tx.changed(ChangeKind::Account, account, now).await?)
            })
        })
        .await
}

/// The same by an administrator of the account panel. Returns the account's id.
pub async fn create_account_by(
    core: &Core,
    caller: &Caller,
    email: Email,
    fullname: Label,
    admin: bool,
) -> Result<AccountId> {
    let permission = caller.require_admin(core)?;
    let (now, network) = (core.now(), core.new_id()?);
    let account = AccountRow {
        id: core.new_id()?,
        email: email.to_string(),
        fullname: fullname.to_string(),
        admin,
        disabled: false,
        created_at: now,
    };
    let id = account.id;
    let actor = Actor::caller(caller);
    let note = PendingEntry::creation_by(actor, id.cast(), Action::CreateAccount, id, now)
        .about(&account.email)
        .detail(if admin { "administrator" } else { "" });
    permission
        .transact(core, move |tx| {
            let (account, note) = (account.clone(), note.clone());
            Box::pin(async move {
                insert_account(tx, &account, None, network, now).await?;
                note.write(tx).await
            })
        })
        .await?;
    Ok(id)
}

/// Locks an account out or lets it in again, by an administrator. Nobody locks themselves out.
pub async fn set_disabled_by(
    core: &Core,
    caller: &Caller,
    account: AccountId,
    disabled: bool,
) -> Result<String> {
    let permission = caller.require_admin(core)?;
    if account == caller.account && disabled {
        return Err(Error::conflict(
            "own_account",
            "you cannot lock yourself out; ask another administrator",
        ));
    }
    let now = core.now();
    let action = if disabled {
        Action::DisableAccount
    } else {
        Action::EnableAccount
    };
    let note = PendingEntry::of(core, caller, account.cast(), action, account)?;
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let found = accounts::find_account(tx, account).await?;
                let email = found.ok_or(Error::NotFound("the account"))?.email;
                accounts::set_disabled(tx, account, disabled).await?;
                device_codes::withdraw_approvals(tx, account).await?;
                note.about(&email).write(tx).await?;
                tx.changed(ChangeKind::Account, account, now).await?;
                Ok(email)
            })
        })
        .await
}

/// A page of the accounts whose address or name contains a text, newest first, for administrators.
pub async fn search_accounts(
    core: &Core,
    caller: &Caller,
    text: &str,
    before: Option<AccountId>,
    count: u32,
) -> Result<Vec<AccountRow>> {
    caller.require_admin_to_read()?;
    let mut pattern = String::new();
    if !text.is_empty() {
        pattern.push('%');
        for letter in text.to_lowercase().chars().take(MAX_SEARCH_CHARS) {
            if matches!(letter, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('%');
    }
    Ok(accounts::search_accounts(&core.db, &pattern, before, count).await?)
}

/// An account, for administrators.
pub async fn read_account(core: &Core, caller: &Caller, account: AccountId) -> Result<AccountRow> {
    caller.require_admin_to_read()?;
    let found = accounts::account_by_id(&core.db, account).await?;
    found.ok_or(Error::NotFound("the account"))
}

/// The caller's account, and the plans that this installation offers.
pub fn read_me(core: &Core, caller: &Caller) -> Result<Me> {
    let account = caller.require(Operation::ReadAccount)?;
    let plans = core.settings.plans.named();
    let days = LOG_RETENTION.as_secs() / (24 * 60 * 60);
    let bundles = OfferedBundles::new(days);
    Ok(Me {
        user: User {
            id: account,
            email: caller.email.clone(),
            fullname: caller.fullname.clone(),
            avatar: String::new(),
        },
        scope: caller.grant,
        plans: MePlans {
            project_bundle_plans: plans
                .keys()
                .map(|id| (id.clone(), bundles.clone()))
                .collect(),
            projects: plans
                .into_iter()
                .map(|(id, plan)| (id, OfferedPlan::new(plan)))
                .collect(),
        },
        database_versions: BTreeMap::new(),
    })
}
