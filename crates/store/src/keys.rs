//! AI keys: what the wire shows, and the live state that checks a secret.

use crate::id_list::{MAX_IDS, bind_ids, id_list};
use crate::prune::prune;
use crate::{Db, Record, Row, Statement, StoreError, Tx, Value, value};
use estrade_model::amount::Amount;
use estrade_model::key::{Budget, CreatedBy, Key, KeyLimits};
use estrade_model::names::KeyName;
use estrade_model::workspace::WorkspaceRef;
use estrade_model::{AccountId, KeyId, OwnerId, Timestamp, WorkspaceId};
use std::collections::HashMap;
use std::num::NonZeroU32;

/// A new key, as stored.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Identifier, the `sub` of the JWT.
    pub id: KeyId,
    /// Whose key it is.
    pub owner: OwnerId,
    /// Name, unique per owner.
    pub name: KeyName,
    /// Hash of the JWT's `jti`.
    pub secret_hash: [u8; 32],
    pub created_by: AccountId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether responses to its deterministic requests may be cached.
    pub cache: bool,
    /// Its limits; `expires_at` is also the `exp` of the JWT.
    pub limits: KeyLimits,
}

/// A key without its workspaces, as stored.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// What the wire shows; `workspaces` is empty here.
    pub key: Key,
    /// The `exp` of the present JWT.
    pub token_exp: Option<Timestamp>,
    /// Rises with every change, not with mere use.
    pub version: i64,
}

macro_rules! columns {
    () => {
        "k.id, k.name, k.enabled, a.fullname, k.created_at, k.last_used_at, k.cache, k.expires_at, k.models, \
         k.rpm, k.tpm, k.budget_nanos, k.budget_period, k.token_exp, k.version"
    };
}
macro_rules! from_keys {
    () => {
        " FROM keys k LEFT JOIN accounts a ON a.id = k.created_by "
    };
}

impl Record for KeyRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let key = Key {
            id: row.take()?,
            name: row.parse()?,
            enabled: row.take()?,
            workspaces: Vec::new(),
            key: None,
            created_by: CreatedBy {
                fullname: row.take::<Option<String>>()?.unwrap_or_default(),
            },
            created_at: row.take()?,
            last_used_at: row.take()?,
            cache: row.take()?,
            limits: limits_from_row(row)?,
        };
        Ok(Self {
            key,
            token_exp: row.take()?,
            version: row.take()?,
        })
    }
}

fn limits_from_row(row: &mut Row<'_>) -> Result<KeyLimits, StoreError> {
    let expires_at = row.take()?;
    let models = row.take::<Option<String>>()?;
    let models = models.map(|text| serde_json::from_str(&text)).transpose();
    let rpm = row.take::<Option<u32>>()?.and_then(NonZeroU32::new);
    let tpm = row.take::<Option<u32>>()?.and_then(NonZeroU32::new);
    let budget = budget_from_row(row)?;
    Ok(KeyLimits {
        expires_at,
        models: models.map_err(StoreError::bug)?,
        rpm,
        tpm,
        budget,
    })
}

/// A budget from its two columns.
pub(crate) fn budget_from_row(row: &mut Row<'_>) -> Result<Option<Budget>, StoreError> {
    let (amount, period) = (row.take::<Option<i64>>()?, row.take::<Option<String>>()?);
    let (Some(nanos), Some(period)) = (amount, period) else {
        return Ok(None);
    };
    Ok(Some(Budget {
        amount: Amount::from_nanos(nanos),
        period: period.parse().map_err(StoreError::bug)?,
    }))
}

/// The two columns of a budget.
pub(crate) fn budget_values(budget: Option<&Budget>) -> [Value; 2] {
    [
        budget.map(|budget| budget.amount.nanos()).into(),
        budget.map(|budget| budget.period.as_str()).into(),
    ]
}

/// The columns of a key's limits, in the order of the statements below.
fn limit_values(limits: &KeyLimits) -> Result<[Value; 6], StoreError> {
    let models = limits
        .models
        .as_ref()
        .map(serde_json::to_string)
        .transpose();
    let [amount, period] = budget_values(limits.budget.as_ref());
    Ok([
        limits.expires_at.into(),
        models.map_err(StoreError::bug)?.into(),
        limits.rpm.map(NonZeroU32::get).into(),
        limits.tpm.map(NonZeroU32::get).into(),
        amount,
        period,
    ])
}

/// The statement that adds a key. It changes no row when the owner has one of that name.
pub fn inserting_key(key: &NewKey) -> Result<Statement, StoreError> {
    let mut values: Vec<Value> = vec![
        key.id.into(),
        key.owner.into(),
        key.name.as_str().into(),
        key.secret_hash.into(),
        key.created_by.into(),
        key.created_at.into(),
        key.limits.expires_at.into(),
        key.cache.into(),
    ];
    values.extend(limit_values(&key.limits)?);
    Ok(Statement {
        sql: "INSERT INTO keys (id, owner_id, name, enabled, secret_hash, created_by, created_at, token_exp,
                               cache, expires_at, models, rpm, tpm, budget_nanos, budget_period, version)
             VALUES ($1, $2, $3, TRUE, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 1)
             ON CONFLICT (owner_id, name) DO NOTHING",
        rows: vec![values],
    })
}

/// The statement that gives a key its workspaces, in order. It does nothing for a key that is not there, which may be sent
/// together with it.
pub fn inserting_workspaces(id: KeyId, workspaces: &[WorkspaceRef]) -> Statement {
    let row = |(position, workspace): (i64, &WorkspaceRef)| {
        vec![id.into(), position.into(), workspace.id.into()]
    };
    Statement {
        sql: "INSERT INTO key_workspaces (key_id, position, workspace_id)
              SELECT id, CAST($2 AS BIGINT), $3 FROM keys WHERE id = $1",
        rows: (0..).zip(workspaces).map(row).collect(),
    }
}

/// Gives a key other workspaces.
pub async fn replace_key_workspaces(
    tx: &mut Tx,
    id: KeyId,
    workspaces: &[WorkspaceRef],
) -> Result<(), StoreError> {
    let delete = Statement {
        sql: "DELETE FROM key_workspaces WHERE key_id = $1",
        rows: vec![vec![id.into()]],
    };
    let statements = [delete, inserting_workspaces(id, workspaces)];
    tx.execute_together(&statements).await.map(drop)
}

/// A key of an owner, inside a transaction that may change it.
pub async fn key_for_update(
    tx: &mut Tx,
    owner: OwnerId,
    id: KeyId,
) -> Result<Option<KeyRow>, StoreError> {
    tx.query(concat!(
        "SELECT ",
        columns!(),
        from_keys!(),
        "WHERE k.owner_id = $1 AND k.id = $2"
    ))
    .bind(owner)
    .bind(id)
    .fetch_optional()
    .await
}

/// A key of an owner, with its workspaces.
pub async fn read_key(db: &Db, owner: OwnerId, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
    let row: Option<KeyRow> = db
        .read(concat!(
            "SELECT ",
            columns!(),
            from_keys!(),
            "WHERE k.owner_id = $1 AND k.id = $2"
        ))
        .bind(owner)
        .bind(id)
        .fetch_optional()
        .await?;
    let Some(mut row) = row else { return Ok(None) };
    row.key.workspaces = db
        .read(
            "SELECT w.id, w.name FROM key_workspaces kw JOIN workspaces w ON w.id = kw.workspace_id
             WHERE kw.key_id = $1 ORDER BY kw.position",
        )
        .bind(id)
        .fetch_all()
        .await?;
    Ok(Some(row))
}

struct KeyWorkspace(KeyId, WorkspaceRef);
impl Record for KeyWorkspace {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?, WorkspaceRef::from_row(row)?))
    }
}

/// A page of an owner's keys with their workspaces, newest first.
pub async fn list_keys(
    db: &Db,
    owner: OwnerId,
    before: Option<KeyId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Key>, StoreError> {
    let skip = i64::try_from(skip).unwrap_or(i64::MAX);
    let rows: Vec<KeyRow> = db
        .read(concat!(
            "SELECT ",
            columns!(),
            from_keys!(),
            "WHERE k.owner_id = $1 AND k.id < $2 ORDER BY k.id DESC LIMIT $3 OFFSET $4"
        ))
        .bind(owner)
        .bind(value::before(before))
        .bind(count)
        .bind(skip)
        .fetch_all()
        .await?;
    add_workspaces(db, rows).await
}

/// A page of the keys of a workspace with all their workspaces, newest first.
pub async fn list_keys_of_workspace(
    db: &Db,
    owner: OwnerId,
    workspace: WorkspaceId,
    before: Option<KeyId>,
    count: u32,
) -> Result<Vec<Key>, StoreError> {
    let rows: Vec<KeyRow> = db
        .read(concat!(
            "SELECT ",
            columns!(),
            " FROM key_workspaces kw JOIN keys k ON k.id = kw.key_id
              LEFT JOIN accounts a ON a.id = k.created_by
              WHERE kw.workspace_id = $1 AND kw.key_id < $2 AND k.owner_id = $3
              ORDER BY kw.key_id DESC LIMIT $4"
        ))
        .bind(workspace)
        .bind(value::before(before))
        .bind(owner)
        .bind(count)
        .fetch_all()
        .await?;
    add_workspaces(db, rows).await
}

/// Gives each key its workspaces. By the keys' ids: for a range of ids PostgreSQL joined all keys of the owner with all of
/// their workspaces, which took 15 ms with 100,000 keys.
async fn add_workspaces(db: &Db, rows: Vec<KeyRow>) -> Result<Vec<Key>, StoreError> {
    let mut workspaces: HashMap<KeyId, Vec<WorkspaceRef>> = HashMap::new();
    for page in rows.chunks(MAX_IDS) {
        let found = db.read(concat!(
            "SELECT kw.key_id, w.id, w.name FROM key_workspaces kw
             JOIN workspaces w ON w.id = kw.workspace_id
             WHERE kw.key_id IN ",
            id_list!(),
            " ORDER BY kw.key_id, kw.position"
        ));
        let found = bind_ids(found, page.iter().map(|row| row.key.id));
        for KeyWorkspace(key, workspace) in found.fetch_all().await? {
            workspaces.entry(key).or_default().push(workspace);
        }
    }
    let with_workspaces = |mut row: KeyRow| {
        row.key.workspaces = workspaces.remove(&row.key.id).unwrap_or_default();
        row.key
    };
    Ok(rows.into_iter().map(with_workspaces).collect())
}

/// Which of an owner's keys a page of a search shows, in the order of their names.
#[derive(Debug, Clone)]
pub struct KeySearch {
    /// How the name begins; large letters of ASCII count as small ones.
    pub prefix: String,
    /// The last key of the page before, and its name.
    pub after: Option<(KeyId, String)>,
    pub count: u32,
}

impl KeySearch {
    /// What of it somebody typed.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let after = self.after.as_ref().map(|(_, name)| name.as_str());
        std::iter::once(self.prefix.as_str()).chain(after)
    }
}

/// A page of the keys whose names begin with a text: one range of the index keys_by_name.
pub async fn search_keys(
    db: &Db,
    owner: OwnerId,
    search: &KeySearch,
) -> Result<Vec<Key>, StoreError> {
    // What is compared has to be written as in the index, and SQLite knows no collation "C".
    macro_rules! named {
        ($name:literal) => {
            concat!(
                "SELECT ",
                columns!(),
                " FROM (SELECT k.id FROM keys k
                        WHERE k.owner_id = $1 AND ",
                $name,
                " >= $2 AND ",
                $name,
                " < $3 AND (",
                $name,
                ", k.id) > ($2, $4) ORDER BY ",
                $name,
                ", k.id LIMIT $5) page
                  JOIN keys k ON k.id = page.id LEFT JOIN accounts a ON a.id = k.created_by
                  ORDER BY ",
                $name,
                ", k.id"
            )
        };
    }
    let sql = if db.is_sqlite() {
        named!("LOWER(k.name)")
    } else {
        named!("LOWER(k.name COLLATE \"C\")")
    };
    let prefix = search.prefix.to_ascii_lowercase();
    // No text that begins so is behind it: no character is larger.
    let end = format!("{prefix}{}", char::MAX);
    // SQLite begins to read at $2, not at the pair of it and an id.
    let (after, from) = match &search.after {
        Some((id, name)) => (id.to_string(), prefix.max(name.to_ascii_lowercase())),
        None => (String::new(), prefix),
    };
    let query = db.read(sql).bind(owner).bind(from).bind(end);
    let query = query.bind(after).bind(search.count);
    add_workspaces(db, query.fetch_all().await?).await
}

struct KeyLabel(KeyId, String);
impl Record for KeyLabel {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?, row.take()?))
    }
}

/// The names of an owner's keys; keys that were deleted have none.
pub async fn key_names(
    db: &Db,
    owner: OwnerId,
    keys: &[KeyId],
) -> Result<HashMap<KeyId, String>, StoreError> {
    let mut names = HashMap::new();
    for page in keys.chunks(MAX_IDS) {
        let found = db.read(concat!(
            "SELECT id, name FROM keys WHERE id IN ",
            id_list!(),
            " AND owner_id = $65"
        ));
        let found: Vec<KeyLabel> = bind_ids(found, page.iter().copied())
            .bind(owner)
            .fetch_all()
            .await?;
        names.extend(found.into_iter().map(|KeyLabel(id, name)| (id, name)));
    }
    Ok(names)
}

/// Writes back the changed fields of a key; [`StoreError::Duplicate`] when its new name is taken.
pub async fn update_key(tx: &mut Tx, row: &KeyRow) -> Result<(), StoreError> {
    let mut query = tx
        .query(
            "UPDATE keys SET version = version + 1, name = $2, enabled = $3, cache = $4, expires_at = $5,
                             models = $6, rpm = $7, tpm = $8, budget_nanos = $9, budget_period = $10
             WHERE id = $1",
        )
        .bind(row.key.id)
        .bind(row.key.name.as_str())
        .bind(row.key.enabled)
        .bind(row.key.cache);
    for value in limit_values(&row.key.limits)? {
        query = query.bind(value);
    }
    query.execute().await.map(drop)
}

/// Removes a key of an owner; false when it has none of that id.
pub async fn delete_key(tx: &mut Tx, owner: OwnerId, id: KeyId) -> Result<bool, StoreError> {
    let gone = tx.query("DELETE FROM keys WHERE id = $1 AND owner_id = $2");
    Ok(gone.bind(id).bind(owner).execute().await? > 0)
}

/// Replaces the secret of a key; the old one works until `old_until`, and older ones no longer.
pub async fn rotate_key(
    tx: &mut Tx,
    id: KeyId,
    secret_hash: [u8; 32],
    token_exp: Option<Timestamp>,
    old_until: Timestamp,
) -> Result<(), StoreError> {
    tx.query("UPDATE key_old_secrets SET valid_until = $2 WHERE key_id = $1 AND valid_until > $2")
        .bind(id)
        .bind(old_until)
        .execute()
        .await?;
    tx.query(
        "INSERT INTO key_old_secrets (key_id, secret_hash, valid_until)
         SELECT id, secret_hash, CAST($2 AS BIGINT) FROM keys WHERE id = $1",
    )
    .bind(id)
    .bind(old_until)
    .execute()
    .await?;
    tx.query(
        "UPDATE keys SET secret_hash = $2, token_exp = $3, version = version + 1 WHERE id = $1",
    )
    .bind(id)
    .bind(secret_hash)
    .bind(token_exp)
    .execute()
    .await
    .map(drop)
}

/// Notes when keys were last used.
pub async fn touch_keys(tx: &mut Tx, used: &[(KeyId, Timestamp)]) -> Result<(), StoreError> {
    let rows = used
        .iter()
        .map(|(id, at)| vec![Value::from(*id), Value::from(*at)])
        .collect();
    tx.execute_many("UPDATE keys SET last_used_at = $2 WHERE id = $1", rows)
        .await
}

/// What a request with a key needs to know.
#[derive(Debug, Clone)]
pub struct KeyState {
    /// Whose key it is.
    pub owner: OwnerId,
    /// Whether that is an account that is locked out.
    pub owner_disabled: bool,
    /// Hash of the present JWT's `jti`.
    pub secret_hash: [u8; 32],
    /// Replaced secrets and until when they still work.
    pub old_secrets: Vec<([u8; 32], Timestamp)>,
    /// The key as the wire shows it, with workspaces and limits.
    pub key: Key,
}

struct Secrets {
    owner: OwnerId,
    owner_disabled: bool,
    secret_hash: [u8; 32],
}
impl Record for Secrets {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            owner: row.take()?,
            owner_disabled: row.take()?,
            secret_hash: row.take()?,
        })
    }
}

struct OldSecret([u8; 32], Timestamp);
impl Record for OldSecret {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?, row.take()?))
    }
}

/// The live state of a key of any owner.
pub async fn key_state(db: &Db, id: KeyId) -> Result<Option<KeyState>, StoreError> {
    let secrets: Option<Secrets> = db
        .read(
            "SELECT k.owner_id, COALESCE(o.disabled, FALSE), k.secret_hash
             FROM keys k LEFT JOIN accounts o ON o.id = k.owner_id WHERE k.id = $1",
        )
        .bind(id)
        .fetch_optional()
        .await?;
    let Some(Secrets {
        owner,
        owner_disabled,
        secret_hash,
    }) = secrets
    else {
        return Ok(None);
    };
    let Some(row) = read_key(db, owner, id).await? else {
        return Ok(None);
    };
    let old: Vec<OldSecret> = db
        .read("SELECT secret_hash, valid_until FROM key_old_secrets WHERE key_id = $1")
        .bind(id)
        .fetch_all()
        .await?;
    let old_secrets = old
        .into_iter()
        .map(|OldSecret(hash, until)| (hash, until))
        .collect();
    Ok(Some(KeyState {
        owner,
        owner_disabled,
        secret_hash,
        old_secrets,
        key: row.key,
    }))
}

/// Removes up to `most` secrets that rotations replaced and that no longer work.
pub async fn prune_old_secrets(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM key_old_secrets WHERE (key_id, secret_hash) IN
               (SELECT key_id, secret_hash FROM key_old_secrets WHERE valid_until < $1 LIMIT $2)";
    prune(db, sql, now, limit).await
}
