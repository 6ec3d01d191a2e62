//! The members of a team and their roles.
//!
//! Admins manage members, but only an owner makes, unmakes or removes owners, and a team always
//! keeps one who is not locked out, but for what administrators do to accounts. The rules about the member concerned are checked inside the transaction, so that of two
//! owners who leave, or demote each other, at the same time only one succeeds.

use crate::audit::PendingEntry;
use crate::identity::access::{require_in_team, require_member_to_read};
use crate::{Caller, Core, Error, Result};
use estrade_model::audit::Action;
use estrade_model::team::{Member, Role};
use estrade_model::{AccountId, TeamId};
use estrade_store::{Tx, accounts, invitations, members};

/// A page of a team's members, in the order in which they joined, after the member `after`.
pub async fn list_members(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    after: Option<AccountId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Member>> {
    require_member_to_read(core, caller, team).await?;
    Ok(members::list_members(&core.db, team, after, count, skip).await?)
}

/// One member of a team.
pub async fn read_member(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    member: AccountId,
) -> Result<Member> {
    require_member_to_read(core, caller, team).await?;
    let found = members::read_member(&core.db, team, member).await?;
    found.ok_or(Error::NotFound("the member"))
}

/// Removes a member. Anyone may remove themselves.
pub async fn delete_member(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    member: AccountId,
) -> Result<()> {
    let leaves = member == caller.account;
    let needed = if leaves { Role::Viewer } else { Role::Admin };
    let permission = require_in_team(core, caller, team, needed).await?;
    let note = PendingEntry::of(core, caller, team.cast(), Action::DeleteMember, member)?;
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let role = role_of(tx, team, member).await?;
                if role == Role::Owner {
                    if !leaves {
                        require_owner(permission.current_role(tx).await?)?;
                    }
                    keep_an_owner(tx, team, member).await?;
                }
                members::delete_member(tx, team, member).await?;
                let note = note.about(&email_of(tx, member).await?);
                note.detail(role.as_str()).write(tx).await?;
                // Otherwise an invitation that they kept or passed on would still be valid.
                Ok(invitations::delete_invitations_of(tx, team, member).await?)
            })
        })
        .await
}

/// Gives a member another role.
pub async fn set_role(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    member: AccountId,
    role: Role,
) -> Result<()> {
    let permission = require_in_team(core, caller, team, Role::Admin).await?;
    caller.require_recent(core)?;
    let note = PendingEntry::of(core, caller, team.cast(), Action::SetRole, member)?;
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let before = role_of(tx, team, member).await?;
                if before == Role::Owner || role == Role::Owner {
                    require_owner(permission.current_role(tx).await?)?;
                }
                if before == Role::Owner && role != Role::Owner {
                    keep_an_owner(tx, team, member).await?;
                }
                if role < before {
                    invitations::delete_invitations_of(tx, team, member).await?;
                }
                members::set_role(tx, team, member, role).await?;
                let note = note.about(&email_of(tx, member).await?);
                let change = format!("{} → {}", before.as_str(), role.as_str());
                note.detail(change).fields(&["role"]).write(tx).await
            })
        })
        .await
}

/// The address of a member, for the audit log.
async fn email_of(tx: &mut Tx, member: AccountId) -> Result<String> {
    let account = accounts::find_account(tx, member).await?;
    Ok(account.map_or_else(String::new, |account| account.email))
}

async fn role_of(tx: &mut Tx, team: TeamId, member: AccountId) -> Result<Role> {
    members::current_role(tx, team, member)
        .await?
        .ok_or(Error::NotFound("the member"))
}

fn require_owner(role: Role) -> Result<()> {
    if role == Role::Owner {
        return Ok(());
    }
    Err(Error::Forbidden(
        "only an owner of the team may make, change or remove owners".into(),
    ))
}

/// Refuses (409) to lose an owner when no other one can act: who is locked out cannot.
async fn keep_an_owner(tx: &mut Tx, team: TeamId, lost: AccountId) -> Result<()> {
    if members::has_other_owner(tx, team, lost).await? {
        return Ok(());
    }
    Err(Error::conflict(
        "last_owner",
        "a team needs an owner who is not locked out; make another member an owner first, or delete the team",
    ))
}
