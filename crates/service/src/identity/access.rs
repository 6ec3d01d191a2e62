//! Access control: the one place of the isolation rule.
//!
//! A request is made by a [`Caller`] in a [`Scope`]: the things of one owner, with a role. Every
//! query takes the scope's owner, so resources of other owners are not found (404).
//!
//! What a token is good for ([`TokenScope`]) is decided here as well, per operation: a scope gives its owner away
//! only to an operation that says what it does ([`Operation`]), and its projects only as a [`ProjectFilter`], which
//! holds no more than the one project of a token that is limited to it.
//!
//! A scope is read before the transaction that writes, and a member may be demoted or removed in
//! between. So what a role is required for is written by [`Permission::transact`], which reads the
//! role again inside of the transaction. A permission that is not used is a warning.

use crate::{Core, Error, Result};
use estrade_model::team::Role;
use estrade_model::token_scope::{ScopeKind, TokenScope};
use estrade_model::{AccountId, OwnerId, ProjectId, SessionId, TeamId, Timestamp, TokenId};
use estrade_store::projects::ProjectFilter;
use estrade_store::{Job, Tx, accounts, members, projects};
use futures_util::future::BoxFuture;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The message for callers that are not members of a team, whether it exists or not.
pub const NOT_A_MEMBER: &str = "you are not a member of this team";

/// For so long after the password or the second factor was given it is not asked for again.
const CONFIRMATION_LIFETIME: Duration = Duration::from_mins(10);

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
    /// What its credential is good for.
    pub grant: TokenScope,
    /// When the person behind a session last gave the password or the second factor; none for a token.
    pub authenticated_at: Option<Timestamp>,
    /// Where the request came from.
    pub origin: Origin,
}

/// Where a request came from, for the audit log.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    pub address: Option<IpAddr>,
    pub request: Option<Arc<str>>,
}

/// What an operation does with the things of an account or a team, projects aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads who the caller is.
    ReadAccount,
    /// Changes how the caller signs in.
    WriteAccount,
    ReadTokens,
    WriteTokens,
    ReadTeams,
    /// Teams, members, invitations.
    WriteTeams,
    /// Networks, databases, whether a name is free: what belongs to no single project.
    ReadPlatform,
    /// The same, and new projects.
    WritePlatform,
    /// Keys, workspaces, usage, calls, models.
    ReadAi,
    WriteAi,
    ReadAudit,
    /// What only administrators do.
    Administer,
}

impl Operation {
    /// The scopes whose tokens may do it.
    fn granted_by(self) -> &'static [ScopeKind] {
        use ScopeKind::{Ai, Full, Project, Read};
        match self {
            Self::ReadAccount => &[Full, Read, Project, Ai],
            Self::ReadTokens | Self::ReadTeams | Self::ReadPlatform => &[Full, Read],
            Self::ReadAi => &[Full, Read, Ai],
            Self::WriteAi => &[Full, Ai],
            Self::WriteAccount
            | Self::WriteTokens
            | Self::WriteTeams
            | Self::WritePlatform
            | Self::ReadAudit
            | Self::Administer => &[Full],
        }
    }
}

/// What an operation does with projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectOperation {
    /// Reads what a viewer may read.
    Read,
    Write,
    /// Reads values of environment variables, or sources, which may hold such values.
    ReadSecrets,
    OpenShell,
}

impl ProjectOperation {
    /// The scopes whose tokens may do it.
    fn granted_by(self) -> &'static [ScopeKind] {
        use ScopeKind::{Full, Project, Read};
        match self {
            Self::Read => &[Full, Read, Project],
            Self::Write | Self::ReadSecrets | Self::OpenShell => &[Full, Project],
        }
    }
}

/// Refuses (403) a token whose scope is not among those.
fn require_grant(grant: TokenScope, needed: &'static [ScopeKind]) -> Result<()> {
    if needed.contains(&grant.kind()) {
        return Ok(());
    }
    Err(Error::InsufficientScope { grant, needed })
}

impl Caller {
    /// The account, for an operation that the caller's credential is good for; else 403.
    pub fn require(&self, operation: Operation) -> Result<AccountId> {
        require_grant(self.grant, operation.granted_by())?;
        Ok(self.account)
    }

    /// Refuses a session whose person has not given the password or the second factor for ten minutes: for what
    /// changes who gets in, which a browser that was left open must not do.
    pub fn require_recent(&self, core: &Core) -> Result<()> {
        match (self.credential, self.authenticated_at) {
            (Credential::Token(_), _) => Ok(()),
            (Credential::Session(_), Some(at)) if core.now() < at.after(CONFIRMATION_LIFETIME) => {
                Ok(())
            }
            (Credential::Session(_), _) => Err(Error::ConfirmationRequired),
        }
    }

    /// Refuses (403) callers that may not use the admin API, and sign-ins that are not recent; writes go through the
    /// permission.
    pub fn require_admin(&self, core: &Core) -> Result<AdminPermission> {
        self.require_admin_to_read()?;
        self.require_recent(core)?;
        Ok(AdminPermission {
            account: self.account,
        })
    }

    /// Refuses (403) callers that may not use the admin API, for reads.
    pub fn require_admin_to_read(&self) -> Result<()> {
        self.require(Operation::Administer)?;
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
    /// Whose things: the caller's own, or a team's. Private: whoever needs it says what for.
    owner: OwnerId,
    /// What the caller may do; no more than a viewer with a token that only reads.
    pub role: Role,
}

impl Scope {
    /// What the caller has to themselves.
    pub fn own(caller: Caller) -> Self {
        let owner = caller.account.cast();
        Self::new(caller, owner, Role::Owner)
    }

    fn new(caller: Caller, owner: OwnerId, role: Role) -> Self {
        let role = match caller.grant {
            TokenScope::Read => Role::Viewer,
            TokenScope::Full | TokenScope::Project(_) | TokenScope::Ai => role,
        };
        Self {
            caller,
            owner,
            role,
        }
    }

    /// The team whose things it is about.
    pub fn team(&self) -> Option<TeamId> {
        (self.owner != self.caller.account.cast()).then(|| self.owner.cast())
    }

    /// Refuses (403) when the credential is not good for this or the caller's role is below `role`; what it
    /// returns writes.
    pub fn require(&self, operation: Operation, role: Role) -> Result<Permission> {
        self.read_as(operation, role)?;
        Ok(self.permission(role))
    }

    /// Refuses (403) when the caller's role is below `role`. It gives nothing away, and so is no more than a look
    /// ahead: for a page with the form of an operation that asks for itself.
    pub fn require_to_read(&self, role: Role) -> Result<()> {
        require_role(self.role, role)
    }

    /// Like [`Self::require`], for what writes nothing: whose things it is about.
    pub fn read_as(&self, operation: Operation, role: Role) -> Result<OwnerId> {
        let owner = self.read(operation)?;
        require_role(self.role, role)?;
        Ok(owner)
    }

    /// Whose things it is about, for what every member may read.
    pub fn read(&self, operation: Operation) -> Result<OwnerId> {
        self.caller.require(operation)?;
        Ok(self.owner)
    }

    /// Like [`Self::require`], for projects: [`Permission::projects`] are those that it is about.
    pub fn require_in_projects(
        &self,
        operation: ProjectOperation,
        role: Role,
    ) -> Result<Permission> {
        self.read_projects_as(operation, role)?;
        Ok(self.permission(role))
    }

    /// Like [`Self::read_as`], for projects.
    pub fn read_projects_as(
        &self,
        operation: ProjectOperation,
        role: Role,
    ) -> Result<ProjectFilter> {
        let visible = self.projects(operation)?;
        require_role(self.role, role)?;
        Ok(visible)
    }

    /// Like [`Self::read`], for projects.
    pub fn projects(&self, operation: ProjectOperation) -> Result<ProjectFilter> {
        require_grant(self.caller.grant, operation.granted_by())?;
        Ok(self.visible())
    }

    /// Whether values that are masked for viewers may be shown.
    pub fn may_read_secrets(&self) -> bool {
        let allowed = self.read_projects_as(ProjectOperation::ReadSecrets, Role::Developer);
        allowed.is_ok()
    }

    /// The owner who will read the audit log's entry about an operation that is allowed already.
    pub(crate) fn audited_owner(&self) -> OwnerId {
        self.owner
    }

    fn visible(&self) -> ProjectFilter {
        ProjectFilter::new(self.owner, self.caller.grant.project())
    }

    fn permission(&self, role: Role) -> Permission {
        Permission {
            account: self.caller.account,
            visible: self.visible(),
            role,
            outsider: not_a_member,
        }
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
#[must_use = "write with Permission::transact, or ask with read_as"]
pub struct Permission {
    account: AccountId,
    visible: ProjectFilter,
    role: Role,
    /// The error for a caller that is not a member of the team.
    outsider: fn() -> Error,
}

impl Permission {
    /// Whose things it is about.
    pub(crate) fn owner(&self) -> OwnerId {
        self.visible.owner()
    }

    /// The projects that it is about.
    pub(crate) fn projects(&self) -> ProjectFilter {
        self.visible
    }

    pub(crate) fn account(&self) -> AccountId {
        self.account
    }

    /// Runs `job` in a write transaction in which the caller still has the role that was required.
    pub(crate) async fn transact<T, F>(self, core: &Core, job: F) -> Result<T>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        core.db.transact(self.checked(job)).await
    }

    /// The same for a short job that many may run at once ([`Db::transact_in_group`]).
    ///
    /// [`Db::transact_in_group`]: estrade_store::Db::transact_in_group
    pub(crate) async fn transact_in_group<T, F>(self, core: &Core, job: F) -> Result<T>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let owner = self.owner();
        core.db.transact_in_group(owner, self.checked(job)).await
    }

    /// The same for a job that bears others beside it ([`Db::transact_interleaved`]).
    ///
    /// [`Db::transact_interleaved`]: estrade_store::Db::transact_interleaved
    pub(crate) async fn transact_interleaved<T, F>(self, core: &Core, job: F) -> Result<T>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let owner = self.owner();
        core.db.transact_interleaved(owner, self.checked(job)).await
    }

    /// The job after a look at the role.
    fn checked<T, F>(
        self,
        job: F,
    ) -> impl for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, Error> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let job = Arc::new(job);
        move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                // An account always has access to its own resources.
                if self.owner() != self.account.cast() {
                    require_role(self.current_role(tx).await?, self.role)?;
                }
                job(tx).await
            })
        }
    }

    /// The caller's role in the team as of this transaction. It stays what it is until the commit.
    pub(crate) async fn current_role(&self, tx: &mut Tx) -> Result<Role> {
        let role = members::current_role(tx, self.owner().cast(), self.account).await?;
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
        scope_of(core, self.caller.clone(), self.team()).await
    }
}

/// The scope of a request: the team's when one is named, else the caller's own.
///
/// An unknown team and a team of others give the same error.
pub fn scope_of(core: &Core, caller: Caller, team: Option<TeamId>) -> BoxFuture<'_, Result<Scope>> {
    Box::pin(async move {
        let Some(team) = team else {
            return Ok(Scope::own(caller));
        };
        let role = members::member_role(&core.db, team, caller.account).await?;
        let role = role.ok_or_else(|| Error::Forbidden(NOT_A_MEMBER.into()))?;
        Ok(Scope::new(caller, team.cast(), role))
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
    caller.require(Operation::WriteTeams)?;
    let outsider: fn() -> Error = || Error::NotFound("the team");
    let has = members::member_role(&core.db, team, caller.account).await?;
    require_role(has.ok_or_else(outsider)?, role)?;
    Ok(Permission {
        account: caller.account,
        visible: ProjectFilter::all_of(team.cast()),
        role,
        outsider,
    })
}

/// Refuses (404) callers that are not members of a team that is named in the path, for reads.
pub async fn require_member_to_read(core: &Core, caller: &Caller, team: TeamId) -> Result<()> {
    caller.require(Operation::ReadTeams)?;
    let role = members::member_role(&core.db, team, caller.account).await?;
    role.map(drop).ok_or(Error::NotFound("the team"))
}

/// Refuses (400) a project that the account does not see: neither its own nor of a team that it is in.
pub(crate) async fn require_visible_project(
    tx: &mut Tx,
    account: AccountId,
    project: ProjectId,
) -> Result<()> {
    let owner = projects::find_owner(tx, project).await?;
    let seen = match owner {
        Some(owner) if owner == account.cast() => true,
        Some(owner) => members::current_role(tx, owner.cast(), account)
            .await?
            .is_some(),
        None => false,
    };
    if seen {
        return Ok(());
    }
    Err(Error::Invalid {
        code: "project_unknown",
        message: "scope: you have no project of this _id; GET /v1/projects lists yours".into(),
    })
}
