//! The audit log: who changed what, written in the same transaction as the change.

use crate::identity::access::Operation;
use crate::{Caller, Core, Result, Scope};
use estrade_model::audit::{Action, AuditEntry, AuditId, Author};
use estrade_model::team::Role;
use estrade_model::{Id, OwnerId, Timestamp};
use estrade_store::Tx;
use estrade_store::audit::{self, AuditFilter};

/// An entry to be written with a change.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    owner: OwnerId,
    entry: AuditEntry,
}

impl Note {
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
        let at = core.now();
        Ok(Self::dated(
            caller,
            owner,
            action,
            subject,
            core.new_id()?,
            at,
        ))
    }

    fn dated<K>(
        caller: &Caller,
        owner: OwnerId,
        action: Action,
        subject: Id<K>,
        id: AuditId,
        at: Timestamp,
    ) -> Self {
        let entry = AuditEntry {
            id,
            created_at: at,
            action,
            subject: subject.to_string(),
            name: String::new(),
            fields: Vec::new(),
            by: Author {
                account: caller.account,
                token: caller.credential.token(),
                session: caller.credential.session(),
                email: caller.email.clone(),
            },
            address: caller.origin.address.map(|address| address.to_string()),
            request_id: caller.origin.request.as_deref().map(str::to_owned),
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
        Self::dated(
            &scope.caller,
            scope.audited_owner(),
            action,
            subject,
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

    /// The same with another action.
    #[must_use]
    pub(crate) fn action(mut self, action: Action) -> Self {
        self.entry.action = action;
        self
    }

    /// The same with the fields that changed, by name.
    #[must_use]
    pub(crate) fn fields(mut self, fields: &[&str]) -> Self {
        self.entry.fields = fields.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Writes it down.
    pub(crate) async fn write(&self, tx: &mut Tx) -> Result<()> {
        Ok(audit::insert_entry(tx, self.owner, &self.entry).await?)
    }
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
