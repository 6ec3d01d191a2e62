//! The servers that share a PostgreSQL database. With SQLite there is one, and no row.
//!
//! Every time is by the clock of the database, so that it does not matter what the nodes' clocks say.

use crate::db::Backend;
use crate::{ChangeKind, Db, Record, Row, StoreError, Tx, Value};
use estrade_model::Timestamp;
use estrade_model::node::{NodeAddresses, NodeId};
use std::time::Duration;

/// The clock of the database, in milliseconds.
macro_rules! database_now {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

/// What a node says of itself.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub id: NodeId,
    pub hostname: String,
    pub version: String,
    pub addresses: NodeAddresses,
    pub has_engine: bool,
    /// How long it has been running.
    pub uptime: Duration,
}

/// A node as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub hostname: String,
    pub version: String,
    pub addresses: NodeAddresses,
    pub has_engine: bool,
    pub started_at: Timestamp,
    /// When it renewed its row last.
    pub seen_at: Timestamp,
    /// How long ago that was.
    pub silence: Duration,
}

impl Record for NodeRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            hostname: row.take()?,
            version: row.take()?,
            addresses: NodeAddresses {
                platform: row.take()?,
                ai: row.take()?,
                edge: row.take()?,
            },
            has_engine: row.take()?,
            started_at: row.take()?,
            seen_at: row.take()?,
            silence: Duration::from_millis(row.take::<i64>()?.try_into().unwrap_or(0)),
        })
    }
}

/// Adds a node, or renews its row, and tells the others. `now` is the time of the note in the change feed.
pub async fn add_node(tx: &mut Tx, node: &NewNode, now: Timestamp) -> Result<(), StoreError> {
    tx.query(concat!(
        "INSERT INTO nodes (id, hostname, version, platform_address, ai_address, edge_address, has_engine, started_at, seen_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, ",
        database_now!(),
        " - CAST($8 AS BIGINT), ",
        database_now!(),
        ") ON CONFLICT (id) DO UPDATE SET has_engine = excluded.has_engine, seen_at = excluded.seen_at"
    ))
    .bind(node.id)
    .bind(&node.hostname)
    .bind(&node.version)
    .bind(&node.addresses.platform)
    .bind(&node.addresses.ai)
    .bind(&node.addresses.edge)
    .bind(node.has_engine)
    .bind(i64::try_from(node.uptime.as_millis()).unwrap_or(i64::MAX))
    .execute()
    .await?;
    tx.changed(ChangeKind::Node, node.id, now).await
}

/// Heartbeat: renews a node's row; false when there is none.
///
/// One statement in a transaction of its own, not serialisable and without a note in the change feed. Its commit does
/// not wait for the disk: what a crash of the database takes is the last half second of heartbeats. The table is logged
/// all the same, because a crash empties an unlogged one, and then every other node would seem to have left.
pub async fn renew_node(db: &Db, id: NodeId, has_engine: bool) -> Result<bool, StoreError> {
    let Backend::Postgres(postgres) = db.backend() else {
        return Ok(true);
    };
    // `set_config` is called for the row that is changed, and lasts until the end of the statement's transaction.
    let sql = concat!(
        "UPDATE nodes SET has_engine = $2, seen_at = ",
        database_now!(),
        " WHERE id = $1 AND set_config('synchronous_commit', 'off', TRUE) = 'off'"
    );
    let values = [Value::from(id), Value::from(has_engine)];
    Ok(postgres.execute_alone(sql, &values).await? > 0)
}

/// Every node, newest first.
pub async fn list_nodes(db: &Db) -> Result<Vec<NodeRow>, StoreError> {
    if db.is_sqlite() {
        return Ok(Vec::new());
    }
    db.read(concat!(
        "SELECT id, hostname, version, platform_address, ai_address, edge_address, has_engine, started_at, seen_at, ",
        database_now!(),
        " - seen_at FROM nodes ORDER BY id DESC"
    ))
    .fetch_all()
    .await
}

/// Removes a node that stops, and tells the others.
pub async fn remove_node(tx: &mut Tx, id: NodeId, now: Timestamp) -> Result<(), StoreError> {
    tx.query("DELETE FROM nodes WHERE id = $1")
        .bind(id)
        .execute()
        .await?;
    tx.changed(ChangeKind::Node, id, now).await
}

/// Removes a node that is down, unless it has renewed its row since `seen_at`.
pub async fn prune_node(tx: &mut Tx, id: NodeId, seen_at: Timestamp) -> Result<(), StoreError> {
    tx.query("DELETE FROM nodes WHERE id = $1 AND seen_at = $2")
        .bind(id)
        .bind(seen_at)
        .execute()
        .await
        .map(drop)
}
