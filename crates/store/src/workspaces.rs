//! Workspaces of AI keys.

use crate::keys::{budget_from_row, budget_values};
use crate::{Db, Record, Row, StoreError, Tx, value};
use estrade_model::workspace::{Workspace, WorkspaceDetail, WorkspaceRef, WorkspaceSettings};
use estrade_model::{OwnerId, Timestamp, WorkspaceId};
use std::num::NonZeroU32;

/// A workspace and its row version.
pub struct WorkspaceRow {
    /// What the wire shows.
    pub detail: WorkspaceDetail,
    /// Rises with every change.
    pub version: i64,
}

macro_rules! columns {
    () => {
        "id, name, created_at, version, rpm, tpm, budget_nanos, budget_period, preference"
    };
}

impl Record for WorkspaceRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let workspace = Workspace {
            id: row.take()?,
            name: row.take()?,
            created_at: row.take()?,
        };
        let version = row.take()?;
        let settings = WorkspaceSettings {
            rpm: row.take::<Option<u32>>()?.and_then(NonZeroU32::new),
            tpm: row.take::<Option<u32>>()?.and_then(NonZeroU32::new),
            budget: budget_from_row(row)?,
            preference: row.parse()?,
        };
        Ok(Self {
            detail: WorkspaceDetail {
                workspace,
                settings,
            },
            version,
        })
    }
}

impl Record for WorkspaceRef {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
        })
    }
}

/// Adds a workspace; false when the owner has one of that name.
pub async fn insert_workspace(
    tx: &mut Tx,
    owner: OwnerId,
    workspace: &WorkspaceRef,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let added = tx
        .query(
            "INSERT INTO workspaces (id, owner_id, name, created_at, version)
             VALUES ($1, $2, $3, $4, 1) ON CONFLICT (owner_id, name) DO NOTHING",
        )
        .bind(workspace.id)
        .bind(owner)
        .bind(&workspace.name)
        .bind(now)
        .execute()
        .await?;
    Ok(added > 0)
}

/// An owner's workspace by name.
pub async fn workspace_by_name(
    tx: &mut Tx,
    owner: OwnerId,
    name: &str,
) -> Result<Option<WorkspaceRef>, StoreError> {
    tx.query("SELECT id, name FROM workspaces WHERE owner_id = $1 AND name = $2")
        .bind(owner)
        .bind(name)
        .fetch_optional()
        .await
}

/// An owner's workspace by id.
pub async fn read_workspace(
    db: &Db,
    owner: OwnerId,
    id: WorkspaceId,
) -> Result<Option<WorkspaceRow>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM workspaces WHERE owner_id = $1 AND id = $2"
    ))
    .bind(owner)
    .bind(id)
    .fetch_optional()
    .await
}

/// A page of an owner's workspaces, newest first.
pub async fn list_workspaces(
    db: &Db,
    owner: OwnerId,
    before: Option<WorkspaceId>,
    count: u32,
    skip: u64,
) -> Result<Vec<WorkspaceRow>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM workspaces
         WHERE owner_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4"
    ))
    .bind(owner)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// A workspace with what a list of workspaces shows besides.
pub struct WorkspaceOverview {
    pub detail: WorkspaceDetail,
    /// How many keys are for it, counted up to [`MAX_COUNTED_KEYS`].
    pub keys: u64,
    /// The hour of its last call, unless that is long ago.
    pub last_call: Option<Timestamp>,
}

/// Keys of a workspace are counted up to here.
pub const MAX_COUNTED_KEYS: u64 = 1000;

impl Record for WorkspaceOverview {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            detail: WorkspaceRow::from_row(row)?.detail,
            keys: row.take()?,
            last_call: row.take()?,
        })
    }
}

/// A page of an owner's workspaces, newest first, each with a bounded count and one index look-up.
pub async fn list_overviews(
    db: &Db,
    owner: OwnerId,
    before: Option<WorkspaceId>,
    count: u32,
) -> Result<Vec<WorkspaceOverview>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        ", (SELECT COUNT(*) FROM (SELECT 1 FROM key_workspaces kw
                                  WHERE kw.workspace_id = workspaces.id
                                  ORDER BY kw.workspace_id, kw.key_id LIMIT $4) AS counted),
           (SELECT u.at FROM usage_models u WHERE u.workspace_id = workspaces.id AND u.span = 'hour'
            ORDER BY u.at DESC LIMIT 1)
         FROM workspaces WHERE owner_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
    ))
    .bind(owner)
    .bind(value::before(before))
    .bind(count)
    .bind(i64::try_from(MAX_COUNTED_KEYS).unwrap_or(i64::MAX))
    .fetch_all()
    .await
}

/// Whether a key still uses the workspace.
pub async fn is_workspace_used(tx: &mut Tx, id: WorkspaceId) -> Result<bool, StoreError> {
    let key: Option<String> = tx
        .query("SELECT key_id FROM key_workspaces WHERE workspace_id = $1 LIMIT 1")
        .bind(id)
        .fetch_optional()
        .await?;
    Ok(key.is_some())
}

/// An owner's workspace, inside a transaction that may change it.
pub async fn workspace_for_update(
    tx: &mut Tx,
    owner: OwnerId,
    id: WorkspaceId,
) -> Result<Option<WorkspaceRow>, StoreError> {
    tx.query(concat!(
        "SELECT ",
        columns!(),
        " FROM workspaces WHERE owner_id = $1 AND id = $2"
    ))
    .bind(owner)
    .bind(id)
    .fetch_optional()
    .await
}

/// The settings of a workspace of any owner.
pub async fn workspace_settings(
    db: &Db,
    id: WorkspaceId,
) -> Result<Option<WorkspaceSettings>, StoreError> {
    let row: Option<WorkspaceRow> = db
        .read(concat!(
            "SELECT ",
            columns!(),
            " FROM workspaces WHERE id = $1"
        ))
        .bind(id)
        .fetch_optional()
        .await?;
    Ok(row.map(|row| row.detail.settings))
}

/// Writes back the name and settings of a workspace; [`StoreError::Duplicate`] when the name is taken.
pub async fn update_workspace(
    tx: &mut Tx,
    id: WorkspaceId,
    name: &str,
    settings: &WorkspaceSettings,
) -> Result<(), StoreError> {
    let [amount, period] = budget_values(settings.budget.as_ref());
    tx.query(
        "UPDATE workspaces SET rpm = $2, tpm = $3, budget_nanos = $4, budget_period = $5, preference = $6,
                               name = $7, version = version + 1 WHERE id = $1",
    )
    .bind(id)
    .bind(settings.rpm.map(NonZeroU32::get))
    .bind(settings.tpm.map(NonZeroU32::get))
    .bind(amount)
    .bind(period)
    .bind(settings.preference.as_str())
    .bind(name)
    .execute()
    .await
    .map(drop)
}

/// Removes an owner's workspace.
pub async fn delete_workspace(
    tx: &mut Tx,
    owner: OwnerId,
    id: WorkspaceId,
) -> Result<(), StoreError> {
    tx.query("DELETE FROM workspaces WHERE owner_id = $1 AND id = $2")
        .bind(owner)
        .bind(id)
        .execute()
        .await
        .map(drop)
}
