//! Invitations: links with which one account may join a team, once, within a week.
//!
//! The maker of an invitation has its link, and no mail proves the address that it is for. So only an administrator's
//! makes the account, unless the configuration trusts every member with that: anyone else could take any address.

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::{Operation, Origin, Scope, require_in_team};
use crate::identity::accounts::insert_account;
use crate::identity::passwords;
use crate::{Caller, Core, Error, Result, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::audit::Action;
use estrade_model::id::kind;
use estrade_model::names::Label;
use estrade_model::secret::Secret;
use estrade_model::team::{Invite, Invited, Role, Team};
use estrade_model::{Id, TeamId};
use estrade_store::accounts::{self, AccountRow};
pub use estrade_store::invitations::OpenInvitation;
use estrade_store::invitations::{self, InvitationRow};
use estrade_store::{StoreError, Tx, members, teams};
use std::time::Duration;

/// How long a link is good.
const LIFETIME: Duration = Duration::from_hours(7 * 24);

/// How many invitations into one team may be open.
const MAX_OPEN: u64 = 500;

/// Makes a link that lets the account with an address join; replaces an earlier one for it.
pub async fn create_invitation(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    invite: Invite,
) -> Result<Invited> {
    let permission = require_in_team(core, caller, team, Role::Admin).await?;
    caller.require_recent(core)?;
    let now = core.now();
    let token = URL_SAFE_NO_PAD.encode(random::bytes::<32>()?);
    let row = InvitationRow {
        id: core.new_id()?,
        team,
        email: invite.email.into(),
        role: invite.role,
        secret_hash: hash(&token),
        expires_at: now.after(LIFETIME),
        invited_by: caller.account,
    };
    let actor = Actor::caller(caller);
    let note = PendingEntry::creation_by(actor, team.cast(), Action::CreateInvitation, row.id, now)
        .about(&row.email)
        .detail(row.role.as_str());
    permission
        .transact(core, move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move {
                let role = permission.current_role(tx).await?;
                if row.role > role {
                    return Err(Error::Forbidden(format!(
                        "you can invite with your own role at most, which is {}",
                        role.as_str()
                    )));
                }
                if invitations::count_open(tx, team, &row.email, now).await? >= MAX_OPEN {
                    return Err(Error::Quota {
                        what: "open invitations",
                        limit: MAX_OPEN,
                    });
                }
                match invitations::insert_invitation(tx, &row).await {
                    // Deleted in the meantime.
                    Err(StoreError::Reference) => Err(Error::NotFound("the team")),
                    other => Ok(other?),
                }?;
                note.write(tx).await
            })
        })
        .await?;
    let base = core.settings.public_url.trim_end_matches('/');
    Ok(Invited {
        link: Some(Secret(format!("{base}/panel/join?token={token}"))),
    })
}

/// Makes the caller a member of the team that invited them.
///
/// A link that is unknown, used, expired or for another address is not found.
pub async fn join_team(core: &Core, caller: &Caller, token: &str) -> Result<Team> {
    let (secret_hash, now) = (hash(token), core.now());
    let account = caller.require(Operation::WriteTeams)?;
    let email = caller.email.clone();
    let actor = Actor::caller(caller);
    core.db
        .transact(move |tx| {
            let (email, actor) = (email.clone(), actor.clone());
            Box::pin(async move {
                let grant = invitations::take_invitation(tx, secret_hash, &email, now)
                    .await?
                    .ok_or(Error::NotFound("the invitation"))?;
                if members::current_role(tx, grant.team, account)
                    .await?
                    .is_some()
                {
                    return Err(already_member());
                }
                members::insert_member(tx, grant.team, account, grant.role, now).await?;
                PendingEntry::by(actor, grant.team.cast(), Action::JoinTeam, account, now)?
                    .about(&email)
                    .detail(grant.role.as_str())
                    .write(tx)
                    .await?;
                team_of(tx, grant.team).await
            })
        })
        .await
}

/// An invitation as the person who opens its link sees it.
#[derive(Debug, Clone)]
pub struct InvitationOffer {
    pub invitation: OpenInvitation,
    /// Whether [`join_as_new`] would make the account. When it may not, this does not tell whether there is one.
    pub creates_account: bool,
}

/// What a link offers; none when it is unknown, used or expired. It stays good.
pub async fn peek_invitation(core: &Core, token: &str) -> Result<Option<InvitationOffer>> {
    let found = invitations::read_open(&core.db, hash(token), core.now()).await?;
    let Some(invitation) = found else {
        return Ok(None);
    };
    let inviter = accounts::account_by_id(&core.db, invitation.invited_by).await?;
    let is_admin = inviter.is_some_and(|inviter| inviter.admin && !inviter.disabled);
    let creates_account = may_create_accounts(core, is_admin)
        && accounts::account_by_email(&core.db, &invitation.email)
            .await?
            .is_none();
    Ok(Some(InvitationOffer {
        invitation,
        creates_account,
    }))
}

/// Whether the invitations of somebody make accounts.
pub fn may_create_accounts(core: &Core, by_admin: bool) -> bool {
    by_admin || core.settings.invitations_create_accounts
}

/// Makes the account that was invited and lets it join; returns the account's address.
///
/// Refused (403) when the invitation makes no account, or there is one.
pub async fn join_as_new(
    core: &Core,
    token: &str,
    fullname: Label,
    password: Secret,
    origin: Origin,
) -> Result<String> {
    let not_found = || Error::NotFound("the invitation");
    // Before the password is hashed, which is expensive: strangers send any token.
    let offer = peek_invitation(core, token).await?.ok_or_else(not_found)?;
    if !offer.creates_account {
        return Err(account_needed());
    }
    let password = passwords::hash_of_stranger(password).await?;
    let (secret_hash, now, network) = (hash(token), core.now(), core.new_id()?);
    let account = AccountRow {
        id: core.new_id()?,
        email: offer.invitation.email,
        fullname: fullname.into(),
        admin: false,
        disabled: false,
        created_at: now,
    };
    let email = account.email.clone();
    let actor = Actor::account(account.id, &email, origin);
    let trusts_everybody = may_create_accounts(core, false);
    core.db
        .transact(move |tx| {
            let (account, password, actor) = (account.clone(), password.clone(), actor.clone());
            Box::pin(async move {
                let (id, email) = (account.id, account.email.as_str());
                let grant = invitations::take_invitation(tx, secret_hash, email, now).await?;
                let grant = grant.ok_or_else(not_found)?;
                let inviter = grant.invited_by;
                // The inviter may be an administrator no more.
                if !trusts_everybody && !accounts::is_admin(tx, inviter).await? {
                    return Err(account_needed());
                }
                insert_account(tx, &account, Some(&password), network, now).await?;
                let inviter = accounts::find_account(tx, inviter).await?;
                let inviter = inviter.map_or_else(String::new, |inviter| inviter.email);
                PendingEntry::creation_by(actor.clone(), id.cast(), Action::CreateAccount, id, now)
                    .about(email)
                    .detail(format!("invited by {inviter}"))
                    .write(tx)
                    .await?;
                members::insert_member(tx, grant.team, id, grant.role, now).await?;
                PendingEntry::by(actor, grant.team.cast(), Action::JoinTeam, id, now)?
                    .about(email)
                    .detail(grant.role.as_str())
                    .write(tx)
                    .await
            })
        })
        .await?;
    Ok(email)
}

fn account_needed() -> Error {
    Error::Forbidden(
        "ask the administrator for an account for this address, then open this link again".into(),
    )
}

/// A page of the open invitations into a team, newest first.
pub async fn list_invitations(
    core: &Core,
    scope: &Scope,
    before: Option<Id<kind::Invitation>>,
    count: u32,
) -> Result<Vec<OpenInvitation>> {
    let team = scope.read_as(Operation::ReadTeams, Role::Admin)?.cast();
    let now = core.now();
    Ok(invitations::list_open(&core.db, team, now, before, count).await?)
}

/// Withdraws an invitation: its link is good no more.
pub async fn delete_invitation(core: &Core, scope: &Scope, id: Id<kind::Invitation>) -> Result<()> {
    let permission = scope.require(Operation::WriteTeams, Role::Admin)?;
    let team = permission.owner().cast();
    let note = PendingEntry::new(core, scope, Action::DeleteInvitation, id)?;
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let gone = invitations::delete_invitation(tx, team, id).await?;
                let email = gone.ok_or(Error::NotFound("the invitation"))?;
                note.about(&email).write(tx).await
            })
        })
        .await
}

async fn team_of(tx: &mut Tx, team: TeamId) -> Result<Team> {
    teams::team_by_id(tx, team)
        .await?
        .ok_or(Error::NotFound("the team"))
}

fn already_member() -> Error {
    Error::conflict("already_member", "you are a member of this team already")
}

fn hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}
