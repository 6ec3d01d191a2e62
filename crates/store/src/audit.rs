//! The audit log. Nothing here changes an entry; entries go when they are too old, or their owner has too many.

use crate::prune::prune;
use crate::{Db, Record, Row, Statement, StoreError, Tx, Value, value};
use estrade_model::audit::{Action, ActionFilter, AuditEntry, AuditId, Author};
use estrade_model::{AccountId, Id, OwnerId, Timestamp};

impl Record for AuditEntry {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            created_at: row.take()?,
            action: row.parse()?,
            subject: row.take()?,
            name: row.take()?,
            detail: row.take()?,
            fields: {
                let fields: String = row.take()?;
                let names = fields.split(',').filter(|name| !name.is_empty());
                names.map(str::to_owned).collect()
            },
            by: {
                let account = optional_id(row)?;
                let credential: Option<Id<()>> = optional_id(row)?;
                let (email, by_session): (_, bool) = (row.take()?, row.take()?);
                Author {
                    account,
                    token: credential.filter(|_| !by_session).map(Id::cast),
                    session: credential.filter(|_| by_session).map(Id::cast),
                    email,
                }
            },
            address: row.take()?,
            request_id: row.take()?,
        })
    }
}

/// An id in a column that was made without room for none, which is the empty text there.
fn optional_id<T>(row: &mut Row<'_>) -> Result<Option<Id<T>>, StoreError> {
    let text: String = row.take()?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(StoreError::bug)
}

fn id_text<T>(id: Option<Id<T>>) -> String {
    id.map_or_else(String::new, |id| id.to_string())
}

/// The statement that adds an entry.
pub fn inserting_entry(owner: OwnerId, entry: &AuditEntry) -> Statement {
    let credential = entry.by.token.map(Id::cast);
    let credential: Option<Id<()>> = credential.or(entry.by.session.map(Id::cast));
    let values = vec![
        owner.into(),
        entry.id.into(),
        entry.created_at.into(),
        entry.action.kind().into(),
        entry.action.as_str().into(),
        entry.subject.as_str().into(),
        entry.name.as_str().into(),
        entry.detail.as_str().into(),
        entry.fields.join(",").into(),
        id_text(entry.by.account).into(),
        id_text(credential).into(),
        entry.by.email.as_str().into(),
        entry.by.session.is_some().into(),
        entry.address.as_ref().into(),
        entry.request_id.as_ref().into(),
    ];
    Statement {
        sql: "INSERT INTO audit (owner_id, id, at, kind, action, subject, name, detail, fields, account_id, token_id,
                            email, by_session, address, request_id)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        rows: vec![values],
    }
}

/// How many entries of one action are about a subject, since a moment; counts no further than `limit`.
pub async fn count_recent(
    tx: &mut Tx,
    owner: OwnerId,
    subject: &str,
    action: Action,
    since: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.query(
        "SELECT COUNT(*) FROM
         (SELECT id FROM audit WHERE owner_id = $1 AND subject = $2 AND id >= $3 AND action = $4 LIMIT $5) AS recent",
    )
    .bind(owner)
    .bind(subject)
    .bind(value::first_id_of(since.millis()))
    .bind(action.as_str())
    .bind(limit)
    .fetch_one()
    .await
}

/// Which entries to show.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only these actions.
    pub action: ActionFilter,
    /// Only what this account did.
    pub account: Option<AccountId>,
    /// Only about this thing.
    pub subject: Option<String>,
    /// Not before this moment.
    pub from: Option<Timestamp>,
    /// Not after this moment.
    pub to: Option<Timestamp>,
}

macro_rules! columns {
    () => {
        "id, at, action, subject, name, detail, fields, account_id, token_id, email, by_session, address,
         request_id"
    };
}
/// A page of those that meet a condition. Their ids are looked up first, in an index that has every column of the
/// condition: SQLite would follow the primary key rather than an index that leads to it.
macro_rules! entries_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM audit WHERE owner_id = $1 AND id IN
              (SELECT id FROM audit WHERE owner_id = $1 AND id < $2 AND id >= $3 AND ",
            $condition,
            " ORDER BY id DESC LIMIT $4 OFFSET $5) ORDER BY id DESC"
        )
    };
}
macro_rules! newest_of_kind {
    ($kind:literal) => {
        concat!(
            "SELECT id FROM (SELECT id FROM audit WHERE owner_id = $1 AND kind = '",
            $kind,
            "' AND id < $2 AND id >= $3 AND ($6 = '' OR account_id = $6) ORDER BY id DESC LIMIT $7) AS of_",
            $kind
        )
    };
}

// Several texts, because each has an index of its own to follow: an `OR` on a parameter has none.
const ENTRIES: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit WHERE owner_id = $1 AND id < $2 AND id >= $3 ORDER BY id DESC LIMIT $4 OFFSET $5"
);
const ENTRIES_BY_ACCOUNT: &str = entries_where!("account_id = $6");
const ENTRIES_BY_KIND: &str = entries_where!("kind = $7 AND ($6 = '' OR account_id = $6)");
const ENTRIES_BY_ACTION: &str = entries_where!("action = $7 AND ($6 = '' OR account_id = $6)");
const ENTRIES_BY_SUBJECT: &str = entries_where!(
    "subject = $7 AND ($6 = '' OR account_id = $6) AND ($8 = '' OR kind = $8) AND ($9 = '' OR action = $9)"
);
/// Merges three walks along the index by kind, of which none reads more than it may have to give.
const AI_ENTRIES: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit WHERE owner_id = $1 AND id IN (SELECT id FROM (",
    newest_of_kind!("key"),
    " UNION ALL ",
    newest_of_kind!("workspace"),
    " UNION ALL ",
    newest_of_kind!("provider"),
    ") AS entries ORDER BY id DESC LIMIT $4 OFFSET $5) ORDER BY id DESC"
);

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
    let skip = i64::try_from(skip).unwrap_or(i64::MAX);
    let (kind, action) = match filter.action {
        ActionFilter::All | ActionFilter::Ai => ("", ""),
        ActionFilter::Kind(kind) => (kind, ""),
        ActionFilter::Only(action) => (action.kind(), action.as_str()),
    };
    let page = |sql| {
        let query = db.read(sql).bind(owner);
        let query = query.bind(end.clone()).bind(from.clone());
        query.bind(count).bind(skip)
    };
    let query = |sql| page(sql).bind(id_text(filter.account));
    let query = match &filter.subject {
        Some(subject) => query(ENTRIES_BY_SUBJECT)
            .bind(subject)
            .bind(kind)
            .bind(action),
        None if filter.action == ActionFilter::Ai => {
            query(AI_ENTRIES).bind(skip.saturating_add(count.into()))
        }
        None if !action.is_empty() => query(ENTRIES_BY_ACTION).bind(action),
        None if !kind.is_empty() => query(ENTRIES_BY_KIND).bind(kind),
        None if filter.account.is_some() => query(ENTRIES_BY_ACCOUNT),
        None => page(ENTRIES),
    };
    query.fetch_all().await
}

/// Removes up to `limit` entries from before a moment; returns how many there were.
pub async fn prune_entries(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM audit WHERE (owner_id, id) IN
               (SELECT owner_id, id FROM audit WHERE at < $1 ORDER BY at LIMIT $2)";
    prune(db, sql, before, limit).await
}

/// A page of the owners that have entries since a moment, in the order of their ids.
pub async fn list_owners_since(
    db: &Db,
    since: Timestamp,
    after: Option<OwnerId>,
    count: u32,
) -> Result<Vec<OwnerId>, StoreError> {
    db.read(
        // The inner limit is none, but keeps SQLite from merging the two: it would read all of the table along its
        // primary key rather than the index by time.
        "SELECT DISTINCT owner_id FROM
         (SELECT owner_id FROM audit WHERE at >= $1 ORDER BY at LIMIT 9223372036854775807) AS recent
         WHERE owner_id > $2 ORDER BY owner_id LIMIT $3",
    )
    .bind(since)
    .bind(id_text(after))
    .bind(count)
    .fetch_all()
    .await
}

macro_rules! resource_kinds {
    ($first:literal $(, $kind:literal)*) => {
        /// Kinds of entries about what an owner has, which whoever works with it can write many of. Their number is
        /// bounded together, and apart from that of the others, which say who got in: many of these must not push out
        /// those.
        pub const RESOURCE_KINDS: &[&str] = &[$first $(, $kind)*];

        const NEWEST_SURPLUS_OF_RESOURCES: &str = concat!(
            "SELECT id FROM audit WHERE owner_id = $1 AND kind IN ('",
            $first,
            $("', '", $kind,)*
            "') ORDER BY id DESC LIMIT 1 OFFSET $2"
        );
    };
}
resource_kinds!(
    "key",
    "workspace",
    "provider",
    "project",
    "release",
    "env",
    "domain",
    "disk",
    "network"
);

/// The newest entry of an owner among those of [`RESOURCE_KINDS`] that `kept` newer ones come after.
pub async fn newest_surplus_of_resources(
    db: &Db,
    owner: OwnerId,
    kept: u32,
) -> Result<Option<AuditId>, StoreError> {
    db.read(NEWEST_SURPLUS_OF_RESOURCES)
        .bind(owner)
        .bind(kept)
        .fetch_optional()
        .await
}

/// The newest entry of an owner among those of one kind that `kept` newer ones come after.
pub async fn newest_surplus_of_kind(
    db: &Db,
    owner: OwnerId,
    kind: &str,
    kept: u32,
) -> Result<Option<AuditId>, StoreError> {
    db.read(
        "SELECT id FROM audit WHERE owner_id = $1 AND kind = $2 ORDER BY id DESC LIMIT 1 OFFSET $3",
    )
    .bind(owner)
    .bind(kind)
    .bind(kept)
    .fetch_optional()
    .await
}

/// Removes up to `limit` entries of one kind of an owner, the oldest first, but none after `last`; returns how many
/// there were.
pub async fn prune_entries_of(
    db: &Db,
    owner: OwnerId,
    kind: &'static str,
    last: AuditId,
    limit: u32,
) -> Result<u64, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            tx.query(
                "DELETE FROM audit WHERE owner_id = $1 AND id IN
                 (SELECT id FROM audit WHERE owner_id = $1 AND kind = $2 AND id <= $3 ORDER BY id LIMIT $4)",
            )
            .bind(owner)
            .bind(kind)
            .bind(last)
            .bind(limit)
            .execute()
            .await
        })
    })
    .await
}
