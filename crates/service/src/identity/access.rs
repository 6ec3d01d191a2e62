//! Access control: the one place of the isolation rule.
//!
//! A request is made by a [`Caller`] in a [`Scope`]: the things of one owner, with a role. Every
//! query takes the scope's owner, so resources of other owners are not found (404).
//!
//! A scope is read before the transaction that writes, and a member may be demoted or removed in
//! between. So what a role is required for is written by [`Permission::transact`], which reads the
//! role again inside of the transaction. A permission that is not used is a warning.

use crate::{Core, Error, Result};
use estrade_model::team::Role;
use estrade_model::{AccountId, OwnerId, SessionId, TeamId, TokenId};
use estrade_store::{Job, Tx, accounts, members};
use futures_util::future::BoxFuture;
use std::net::IpAddr;
use std::sync::Arc;

/// The message for callers that are not members of a team, whether it exists or not.
pub const NOT_A_MEMBER: &str = "you are not a member of this team";

/// What a caller came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Credential {
    /// A bearer token of either API.
    Token(TokenId),
    /// The cookie of the account panel, which neither API takes.
    Session(SessionId),
}

impl Credential {
    /// The bytes of its id, which no other credential has.
    pub fn as_bytes(&self) -> &[u8; 12] {
        match self {
            Self::Token(id) => id.as_bytes(),
            Self::Session(id) => id.as_bytes(),
        }
    }

    /// The session, when it is one.
    pub fn session(self) -> Option<SessionId> {
        match self {
            Self::Session(id) => Some(id),
            Self::Token(_) => None,
        }
    }

    /// The token, when it is one.
    pub fn token(self) -> Option<TokenId> {
        match self {
            Self::Token(id) => Some(id),
            Self::Session(_) => None,
        }
    }
}

/// The account behind a request, proved by its credential.
#[derive(Debug, Clone)]
pub struct Caller {
    pub account: AccountId,
    /// What it came with.
    pub credential: Credential,
    pub email: String,
    pub fullname: String,
    /// Whether it may use the admin API.
    pub admin: bool,
    /// Where the request came from.
    pub origin: Origin,
}

/// Where a request came from, for the audit log.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    pub address: Option<IpAddr>,
    pub request: Option<Arc<str>>,
}

impl Caller {
    /// Refuses (403) callers that may not use the admin API; writes go through the permission.
    pub fn require_admin(&self) -> Result<AdminPermission> {
        self.require_admin_to_read()?;
        Ok(AdminPermission {
            account: self.account,
        })
    }

    /// Refuses (403) callers that may not use the admin API, for reads.
    pub fn require_admin_to_read(&self) -> Result<()> {
        if self.admin {
            return Ok(());
        }
        Err(not_an_admin())
    }
}

fn not_an_admin() -> Error {
    Error::Forbidden("this needs an account that is an administrator".into())
}

/// Whose things a request is about, and what the caller may do with them.
#[derive(Debug, Clone)]
pub struct Scope {
    pub caller: Caller,
    /// Whose things: the caller's own, or a team's.
    pub owner: OwnerId,
    /// What the caller may do.
    pub role: Role,
}

impl Scope {
    /// Refuses (403) when the caller's role is below `role`; what it returns writes.
    pub fn require(&self, role: Role) -> Result<Permission> {
        self.require_to_read(role)?;
        Ok(Permission {
            account: self.caller.account,
            owner: self.owner,
            role,
            outsider: not_a_member,
        })
    }

    /// Refuses (403) when the caller's role is below `role`, for what writes nothing.
    pub fn require_to_read(&self, role: Role) -> Result<()> {
        require_role(self.role, role)
    }
}

fn require_role(has: Role, needed: Role) -> Result<()> {
    if has >= needed {
        return Ok(());
    }
    Err(Error::Forbidden(format!(
        "this needs the role {} in the team; yours is {}",
        needed.as_str(),
        has.as_str()
    )))
}

fn not_a_member() -> Error {
    Error::Forbidden(NOT_A_MEMBER.into())
}

/// A role that the caller had a moment ago, to be confirmed by the transaction that depends on it.
#[derive(Debug, Clone, Copy)]
#[must_use = "write with Permission::transact, or ask with require_to_read"]
pub struct Permission {
    account: AccountId,
    owner: OwnerId,
    role: Role,
    /// The error for a caller that is not a member of the team.
    outsider: fn() -> Error,
}

impl Permission {
    /// Whose things it is about.
    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Runs `job` in a write transaction in which the caller still has the role that was required.
    pub(crate) async fn transact<T, F>(self, core: &Core, job: F) -> Result<T>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        // An account always has access to its own resources.
        if self.owner == self.account.cast() {
            return core.db.transact(job).await;
        }
        let job = Arc::new(job);
        core.db
            .transact(move |tx| {
                let job = Arc::clone(&job);
                Box::pin(async move {
                    require_role(self.current_role(tx).await?, self.role)?;
                    job(tx).await
                })
            })
            .await
    }

    /// The caller's role in the team as of this transaction. It stays what it is until the commit.
    pub(crate) async fn current_role(&self, tx: &mut Tx) -> Result<Role> {
        let role = members::current_role(tx, self.owner.cast(), self.account).await?;
        role.ok_or_else(self.outsider)
    }
}

/// An administrator a moment ago, to be confirmed by the transaction that depends on it.
#[derive(Debug, Clone, Copy)]
#[must_use = "write with AdminPermission::transact, or ask with require_admin_to_read"]
pub struct AdminPermission {
    account: AccountId,
}

impl AdminPermission {
    /// Runs `job` in a write transaction in which the caller is still an administrator.
    pub(crate) async fn transact<T, F>(self, core: &Core, job: F) -> Result<T>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let job = Arc::new(job);
        core.db
            .transact(move |tx| {
                let job = Arc::clone(&job);
                Box::pin(async move {
                    if !accounts::is_admin(tx, self.account).await? {
                        return Err(not_an_admin());
                    }
                    job(tx).await
                })
            })
            .await
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
/// An unknown team and a team of others give the same error.
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

/// What a caller may do with a team that is named in the path.
///
/// Here the team itself is the resource, so a team of others is not found (404).
pub async fn require_in_team(
    core: &Core,
    caller: &Caller,
    team: TeamId,
    role: Role,
) -> Result<Permission> {
    let outsider: fn() -> Error = || Error::NotFound("the team");
    let has = members::member_role(&core.db, team, caller.account).await?;
    require_role(has.ok_or_else(outsider)?, role)?;
    Ok(Permission {
        account: caller.account,
        owner: team.cast(),
        role,
        outsider,
    })
}

/// Refuses (404) callers that are not members of a team that is named in the path, for reads.
pub async fn require_member_to_read(core: &Core, caller: &Caller, team: TeamId) -> Result<()> {
    let role = members::member_role(&core.db, team, caller.account).await?;
    role.map(drop).ok_or(Error::NotFound("the team"))
}
