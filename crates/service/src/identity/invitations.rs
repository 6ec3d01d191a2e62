//! Invitations: links with which one account may join a team, once, within a week.

use crate::identity::access::{Operation, require_in_team};
use crate::{Caller, Core, Error, Result, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::TeamId;
use estrade_model::secret::Secret;
use estrade_model::team::{Invite, Invited, Role, Team};
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
    permission
        .transact(core, move |tx| {
            let row = row.clone();
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
                }
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
    core.db
        .transact(move |tx| {
            let email = email.clone();
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
                team_of(tx, grant.team).await
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
