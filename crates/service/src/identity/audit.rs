//! The audit log: who changed what, written in the same transaction as the change.
//!
//! Each change has one entry, in the log of the owner of what was changed: a team's, or an account's own for
//! what is the account's. Entries name what changed and never hold a value that may be secret.

use crate::identity::access::{Operation, Origin};
use crate::{Caller, Core, Error, Result, Scope, random};
use estrade_model::audit::{Action, AuditEntry, AuditId, Author};
use estrade_model::team::Role;
use estrade_model::{AccountId, Id, OwnerId, ProjectId, Timestamp};
use estrade_store::accounts::AccountRow;
use estrade_store::audit;
pub use estrade_store::audit::AuditFilter;
use estrade_store::{Statement, Tx};
use std::time::Duration;

/// How long entries are kept.
pub(crate) const RETENTION: Duration = Duration::from_hours(400 * 24);
/// How many entries of one owner are kept, the newest: a tenant must not fill the disk with changes. So many of those
/// about what it has, and so many of each kind of those about who got in, which the former must not push out.
pub(crate) const MAX_ENTRIES: u32 = 100_000;
/// How many refused sign-ins of an account are written down within [`REFUSALS_WINDOW`]: anyone can cause them.
const MAX_REFUSALS: u32 = 10;
const REFUSALS_WINDOW: Duration = Duration::from_hours(1);
/// How many changed fields an entry names, and in how many bytes: a tenant must not fill the disk with long names.
const MAX_FIELDS: usize = 100;
const MAX_FIELD_BYTES: usize = 2048;
/// The longest detail, in characters.
const MAX_DETAIL_CHARS: usize = 300;

/// The author of a change, and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    author: Author,
    origin: Origin,
}

impl Actor {
    pub(crate) fn caller(caller: &Caller) -> Self {
        let author = Author {
            account: Some(caller.account),
            token: caller.credential.token(),
            session: caller.credential.session(),
            email: caller.email.clone(),
        };
        Self {
            author,
            origin: caller.origin.clone(),
        }
    }

    /// An account that has no credential yet, because it is about to get one.
    pub(crate) fn account(account: AccountId, email: &str, origin: Origin) -> Self {
        let author = Author {
            account: Some(account),
            token: None,
            session: None,
            email: email.to_owned(),
        };
        Self { author, origin }
    }

    /// An administrator who runs commands on the server.
    pub(crate) fn command_line() -> Self {
        let author = Author {
            account: None,
            token: None,
            session: None,
            email: String::new(),
        };
        Self {
            author,
            origin: Origin::default(),
        }
    }
}

/// An entry to be written with a change.
#[derive(Debug, Clone)]
pub(crate) struct PendingEntry {
    owner: OwnerId,
    entry: AuditEntry,
}

impl PendingEntry {
    /// What the owner of a scope will read.
    pub(crate) fn new<K>(
        core: &Core,
        scope: &Scope,
        action: Action,
        subject: Id<K>,
    ) -> Result<Self> {
        Self::of(core, &scope.caller, scope.audited_owner(), action, subject)
    }

    /// What an owner will read of what a caller did.
    pub(crate) fn of<K>(
        core: &Core,
        caller: &Caller,
        owner: OwnerId,
        action: Action,
        subject: Id<K>,
    ) -> Result<Self> {
        Self::by(Actor::caller(caller), owner, action, subject, core.now())
    }

    /// What an owner will read of what somebody did.
    pub(crate) fn by<K>(
        actor: Actor,
        owner: OwnerId,
        action: Action,
        subject: Id<K>,
        at: Timestamp,
    ) -> Result<Self> {
        let (id, subject) = (random::id(at)?, subject.to_string());
        Ok(Self::dated(actor, owner, action, subject, id, at))
    }

    /// A change of a project that is only found in the transaction; [`Self::on`] names it.
    pub(crate) fn of_project(core: &Core, scope: &Scope, action: Action) -> Result<Self> {
        let (actor, at) = (Actor::caller(&scope.caller), core.now());
        let id = core.new_id()?;
        Ok(Self::dated(
            actor,
            scope.audited_owner(),
            action,
            String::new(),
            id,
            at,
        ))
    }

    fn dated(
        actor: Actor,
        owner: OwnerId,
        action: Action,
        subject: String,
        id: AuditId,
        at: Timestamp,
    ) -> Self {
        let entry = AuditEntry {
            id,
            created_at: at,
            action,
            subject,
            name: String::new(),
            detail: String::new(),
            fields: Vec::new(),
            by: actor.author,
            address: actor.origin.address.map(|address| address.to_string()),
            request_id: actor.origin.request.as_deref().map(str::to_owned),
        };
        Self { owner, entry }
    }

    /// That a thing was made whose id was made for it: the entry can have the same.
    pub(crate) fn creation<K>(
        scope: &Scope,
        action: Action,
        subject: Id<K>,
        at: Timestamp,
    ) -> Self {
        let actor = Actor::caller(&scope.caller);
        Self::creation_by(actor, scope.audited_owner(), action, subject, at)
    }

    /// The same by somebody, for any owner.
    pub(crate) fn creation_by<K>(
        actor: Actor,
        owner: OwnerId,
        action: Action,
        subject: Id<K>,
        at: Timestamp,
    ) -> Self {
        Self::dated(
            actor,
            owner,
            action,
            subject.to_string(),
            subject.cast(),
            at,
        )
    }

    /// The same about a thing of this name.
    #[must_use]
    pub(crate) fn about(mut self, name: &str) -> Self {
        name.clone_into(&mut self.entry.name);
        self
    }

    /// The same about a project, or something of it.
    #[must_use]
    pub(crate) fn on(mut self, project: ProjectId, name: &str) -> Self {
        self.entry.subject = project.to_string();
        self.about(name)
    }

    /// The same with another action.
    #[must_use]
    pub(crate) fn action(mut self, action: Action) -> Self {
        self.entry.action = action;
        self
    }

    /// The same with more about it.
    #[must_use]
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(MAX_DETAIL_CHARS) {
            detail.truncate(end);
        }
        self.entry.detail = detail;
        self
    }

    /// The same with the fields that changed, by name.
    #[must_use]
    pub(crate) fn fields<S: AsRef<str>>(mut self, fields: &[S]) -> Self {
        let mut bytes = 0;
        let fits = |name: &&str| {
            bytes += name.len();
            bytes <= MAX_FIELD_BYTES
        };
        let named = fields.iter().map(AsRef::as_ref).take(MAX_FIELDS);
        self.entry.fields = named.take_while(fits).map(str::to_owned).collect();
        self
    }

    /// Writes it down.
    pub(crate) async fn write(&self, tx: &mut Tx) -> Result<()> {
        tx.execute_together(&[self.inserting()]).await?;
        Ok(())
    }

    /// The statement that writes it down.
    pub(crate) fn inserting(&self) -> Statement {
        audit::inserting_entry(self.owner, &self.entry)
    }
}

/// Writes down that a sign-in of an account was refused, unless there were many of late.
pub(crate) async fn note_refused_sign_in(
    core: &Core,
    account: &AccountRow,
    origin: Origin,
    at: Timestamp,
) -> Result<()> {
    let (id, email) = (account.id, account.email.as_str());
    let actor = Actor::account(id, email, origin);
    let note = PendingEntry::by(actor, id.cast(), Action::RefuseSignIn, id, at)?.about(email);
    let since = at.before(REFUSALS_WINDOW);
    core.db
        .transact(move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let subject = &note.entry.subject;
                let recent = audit::count_recent(
                    tx,
                    note.owner,
                    subject,
                    Action::RefuseSignIn,
                    since,
                    MAX_REFUSALS,
                )
                .await?;
                if recent < MAX_REFUSALS.into() {
                    note.write(tx).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .await
}

/// A page of what was changed of the owner's, newest first.
pub async fn list_entries(
    core: &Core,
    scope: &Scope,
    filter: &AuditFilter,
    before: Option<AuditId>,
    count: u32,
    skip: u64,
) -> Result<Vec<AuditEntry>> {
    let owner = scope.read_as(Operation::ReadAudit, Role::Admin)?;
    Ok(audit::list_entries(&core.db, owner, filter, before, count, skip).await?)
}
