//! The audit log. Nothing here changes or removes an entry.

use crate::{Db, Record, Row, StoreError, Tx, Value, value};
use estrade_model::audit::{AuditEntry, AuditId, Author};
use estrade_model::{Id, OwnerId, Timestamp};

impl Record for AuditEntry {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            created_at: row.take()?,
            action: row.parse()?,
            subject: row.take()?,
            name: row.take()?,
            fields: {
                let fields: String = row.take()?;
                let names = fields.split(',').filter(|name| !name.is_empty());
                names.map(str::to_owned).collect()
            },
            by: {
                let account = row.take()?;
                let credential: Id<()> = row.take()?;
                let (email, by_session): (_, bool) = (row.take()?, row.take()?);
                Author {
                    account,
                    token: (!by_session).then(|| credential.cast()),
                    session: by_session.then(|| credential.cast()),
                    email,
                }
            },
            address: row.take()?,
            request_id: row.take()?,
        })
    }
}

/// Adds an entry.
pub async fn insert_entry(
    tx: &mut Tx,
    owner: OwnerId,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let credential = entry.by.token.map(Id::cast);
    let credential: Option<Id<()>> = credential.or(entry.by.session.map(Id::cast));
    tx.query(
        "INSERT INTO audit (owner_id, id, at, action, subject, name, fields, account_id, token_id, email,
                            by_session, address, request_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(owner)
    .bind(entry.id)
    .bind(entry.created_at)
    .bind(entry.action.as_str())
    .bind(&entry.subject)
    .bind(&entry.name)
    .bind(entry.fields.join(","))
    .bind(entry.by.account)
    .bind(credential)
    .bind(&entry.by.email)
    .bind(entry.by.session.is_some())
    .bind(entry.address.as_ref())
    .bind(entry.request_id.as_ref())
    .execute()
    .await
    .map(drop)
}

/// Which entries to show.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// About this key (or workspace, or provider).
    pub subject: Option<String>,
    /// Not before this moment.
    pub from: Option<Timestamp>,
    /// Not after this moment.
    pub to: Option<Timestamp>,
}

/// A page of an owner's entries, newest first.
pub async fn list_entries(
    db: &Db,
    owner: OwnerId,
    filter: &AuditFilter,
    before: Option<AuditId>,
    count: u32,
    skip: u64,
) -> Result<Vec<AuditEntry>, StoreError> {
    let end = match (before, filter.to) {
        (None, Some(to)) => value::first_id_of(to.millis().saturating_add(1)),
        (before, _) => value::before(before),
    };
    let from = filter.from.map_or(Value::Text(String::new()), |from| {
        value::first_id_of(from.millis())
    });
    // Two texts, because the first has an index of its own.
    let query = match &filter.subject {
        Some(subject) => db
            .read(
                "SELECT id, at, action, subject, name, fields, account_id, token_id, email, by_session,
                        address, request_id
                 FROM audit WHERE owner_id = $1 AND id < $2 AND id >= $3 AND subject = $6
                 ORDER BY id DESC LIMIT $4 OFFSET $5",
            )
            .bind(owner)
            .bind(end)
            .bind(from)
            .bind(count)
            .bind(i64::try_from(skip).unwrap_or(i64::MAX))
            .bind(subject),
        None => db
            .read(
                "SELECT id, at, action, subject, name, fields, account_id, token_id, email, by_session,
                        address, request_id
                 FROM audit WHERE owner_id = $1 AND id < $2 AND id >= $3
                 ORDER BY id DESC LIMIT $4 OFFSET $5",
            )
            .bind(owner)
            .bind(end)
            .bind(from)
            .bind(count)
            .bind(i64::try_from(skip).unwrap_or(i64::MAX)),
    };
    query.fetch_all().await
}
