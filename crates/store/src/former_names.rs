//! Names that deleted projects had.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::{OwnerId, Timestamp};

/// A name that a deleted project had.
#[derive(Debug, Clone, Copy)]
pub struct FormerName {
    /// Whose the last project of this name was.
    pub owner: OwnerId,
    /// Until when no other owner may use it.
    pub reserved_until: Timestamp,
    /// Whether projects of different owners have had it.
    pub changed_hands: bool,
}

impl Record for FormerName {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            owner: row.take()?,
            reserved_until: row.take()?,
            changed_hands: row.take()?,
        })
    }
}

const SELECT: &str =
    "SELECT owner_id, reserved_until, changed_hands FROM former_names WHERE name = $1";

/// What is known of a name.
pub async fn read_former_name(db: &Db, name: &str) -> Result<Option<FormerName>, StoreError> {
    db.read(SELECT).bind(name).fetch_optional().await
}

/// What is known of a name, as the transaction sees it.
pub async fn find_former_name(tx: &mut Tx, name: &str) -> Result<Option<FormerName>, StoreError> {
    tx.query(SELECT).bind(name).fetch_optional().await
}

/// Records that a project of this name was deleted. Each owner has at most `most` such names; the oldest are removed,
/// except those that have had more than one owner.
pub async fn insert_former_name(
    tx: &mut Tx,
    name: &str,
    owner: OwnerId,
    reserved_until: Timestamp,
    now: Timestamp,
    limit: u32,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO former_names (name, owner_id, reserved_until, changed_hands, at)
         VALUES ($1, $2, $3, FALSE, $4)
         ON CONFLICT (name) DO UPDATE SET owner_id = $2, reserved_until = $3, at = $4",
    )
    .bind(name)
    .bind(owner)
    .bind(reserved_until)
    .bind(now)
    .execute()
    .await?;
    tx.query(
        "DELETE FROM former_names WHERE name IN
             (SELECT name FROM former_names WHERE owner_id = $1 AND NOT changed_hands
              ORDER BY at DESC, name LIMIT 100 OFFSET $2)",
    )
    .bind(owner)
    .bind(limit)
    .execute()
    .await
    .map(drop)
}

/// Forgets a name, because its last owner has it again.
pub async fn delete_former_name(tx: &mut Tx, name: &str) -> Result<(), StoreError> {
    tx.query("DELETE FROM former_names WHERE name = $1")
        .bind(name)
        .execute()
        .await
        .map(drop)
}

/// Notes that a name is another owner's now.
pub async fn hand_over_name(
    tx: &mut Tx,
    name: &str,
    owner: OwnerId,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "UPDATE former_names SET owner_id = $2, reserved_until = 0, changed_hands = TRUE, at = $3
         WHERE name = $1",
    )
    .bind(name)
    .bind(owner)
    .bind(now)
    .execute()
    .await
    .map(drop)
}

/// Frees the names that are reserved for an owner that ends.
pub async fn free_names(tx: &mut Tx, owner: OwnerId) -> Result<(), StoreError> {
    tx.query("UPDATE former_names SET reserved_until = 0 WHERE owner_id = $1")
        .bind(owner)
        .execute()
        .await
        .map(drop)
}

/// Forgets names that have not changed since `before`.
pub async fn prune_former_names(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM former_names WHERE name IN
               (SELECT name FROM former_names WHERE at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}
