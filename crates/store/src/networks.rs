//! Private networks.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::project::{Network, NetworkId, NetworkRef};
use estrade_model::{OwnerId, Timestamp};

/// The network that every owner has.
pub const DEFAULT: &str = "default";

impl Record for Network {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
            created_at: row.take()?,
        })
    }
}

impl Record for NetworkRef {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
        })
    }
}

/// Adds a network; [`StoreError::Duplicate`] when the owner has one of that name.
pub async fn insert_network(
    tx: &mut Tx,
    owner: OwnerId,
    id: NetworkId,
    name: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query("INSERT INTO networks (id, owner_id, name, created_at) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(owner)
        .bind(name)
        .bind(now)
        .execute()
        .await
        .map(drop)
}

/// A page of an owner's networks, newest first.
pub async fn list_networks(
    db: &Db,
    owner: OwnerId,
    before: Option<NetworkId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Network>, StoreError> {
    db.read(
        "SELECT id, name, created_at FROM networks
         WHERE owner_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4",
    )
    .bind(owner)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// How many networks an owner has, as the transaction sees it.
pub async fn count_networks(tx: &mut Tx, owner: OwnerId) -> Result<u64, StoreError> {
    tx.query("SELECT COUNT(*) FROM networks WHERE owner_id = $1")
        .bind(owner)
        .fetch_one()
        .await
}

/// An owner's network by id.
pub async fn read_network(
    db: &Db,
    owner: OwnerId,
    id: NetworkId,
) -> Result<Option<Network>, StoreError> {
    db.read("SELECT id, name, created_at FROM networks WHERE owner_id = $1 AND id = $2")
        .bind(owner)
        .bind(id)
        .fetch_optional()
        .await
}

/// Whether a project is in a network.
pub async fn is_used(tx: &mut Tx, id: NetworkId) -> Result<bool, StoreError> {
    tx.query("SELECT EXISTS (SELECT 1 FROM projects WHERE network_id = $1)")
        .bind(id)
        .fetch_one()
        .await
}

/// Removes a network.
pub async fn delete_network(tx: &mut Tx, id: NetworkId) -> Result<(), StoreError> {
    tx.query("DELETE FROM networks WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// An owner's network by name or id; a name wins, because it may look like an id.
pub async fn find_network(
    tx: &mut Tx,
    owner: OwnerId,
    name_or_id: &str,
) -> Result<Option<NetworkRef>, StoreError> {
    tx.query(
        "SELECT id, name FROM networks WHERE owner_id = $1 AND (name = $2 OR id = $2)
         ORDER BY name <> $2",
    )
    .bind(owner)
    .bind(name_or_id)
    .fetch_optional()
    .await
}
