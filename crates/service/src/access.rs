//! Who sees what: the one place of the isolation rule.
//!
//! A request is made by a [`Caller`] in a [`Scope`]: the things of one owner, with a role. Every
//! query takes the scope's owner, so what belongs to somebody else is simply not found (404).

use crate::{Core, Error, Result};
use estrade_model::team::Role;
use estrade_model::{AccountId, OwnerId, TeamId, TokenId};
use estrade_store::members;
use futures_util::future::BoxFuture;
use std::net::IpAddr;
use std::sync::Arc;

/// What a team answers to those who are not in it, whether it exists or not.
pub const NOT_A_MEMBER: &str = "you are not a member of this team";

/// The account behind a request, proved by its token.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The account.
    pub account: AccountId,
    /// The token it came with.
    pub token: TokenId,
    /// The account's address.
    pub email: String,
    /// The account's name.
    pub fullname: String,
    /// Whether it may use the admin API.
    pub admin: bool,
    /// Where the request came from.
    pub origin: Origin,
}

/// Where a request came from, for the audit log.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request's id.
    pub request: Option<Arc<str>>,
}

impl Caller {
    /// Refuses (403) who may not use the admin API.
    pub fn require_admin(&self) -> Result<()> {
        if self.admin {
            return Ok(());
        }
        Err(Error::Forbidden(
            "this needs an account that is an administrator".into(),
        ))
    }
}

/// Whose things a request is about, and what the caller may do with them.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Who asks.
    pub caller: Caller,
    /// Whose things: the caller's own, or a team's.
    pub owner: OwnerId,
    /// What the caller may do.
    pub role: Role,
}

impl Scope {
    /// Refuses (403) when the caller's role is below `role`.
    pub fn require(&self, role: Role) -> Result<()> {
        if self.role >= role {
            return Ok(());
        }
        Err(Error::Forbidden(format!(
            "this needs the role {} in the team; yours is {}",
            role.as_str(),
            self.role.as_str()
        )))
    }
}

impl Scope {
    /// The same scope as it is now, for what outlives its request: members come and go.
    pub(crate) async fn renew(&self, core: &Core) -> Result<Self> {
        let account = self.caller.account.cast();
        let team = (self.owner != account).then(|| self.owner.cast());
        scope_of(core, self.caller.clone(), team).await
    }
}

/// The scope of a request: the team's when one is named, else the caller's own.
///
/// An unknown team and a team of others answer alike.
pub fn scope_of(core: &Core, caller: Caller, team: Option<TeamId>) -> BoxFuture<'_, Result<Scope>> {
    Box::pin(async move {
        let Some(team) = team else {
            let owner = caller.account.cast();
            return Ok(Scope {
                caller,
                owner,
                role: Role::Owner,
            });
        };
        let role = members::member_role(&core.db, team, caller.account).await?;
        let role = role.ok_or_else(|| Error::Forbidden(NOT_A_MEMBER.into()))?;
        Ok(Scope {
            caller,
            owner: team.cast(),
            role,
        })
    })
}

/// The scope of a request that names a team in its path.
///
/// Here the team itself is what is asked for, so a team of others is not found (404).
pub async fn team_scope(core: &Core, caller: &Caller, team: TeamId) -> Result<Scope> {
    let role = members::member_role(&core.db, team, caller.account).await?;
    Ok(Scope {
        caller: caller.clone(),
        owner: team.cast(),
        role: role.ok_or(Error::NotFound("the team"))?,
    })
}
