//! The place that the rows of contents refer to, and the fence that keeps servers of another one from adding rows.
//!
//! A row says in which object a content lies, and not where the objects are: that is said by the configuration of each
//! server. While contents move to another place, servers of the old one go on committing. So the database has an epoch
//! (fencing token): a server reads it when it opens the database, before it looks at its storage, and each transaction
//! that says where contents lie checks that it is still the same. After [`begin_switch`] has committed, no server that
//! was there before commits such a row any more, and what was committed is all there is to copy.
//!
//! SQLite has one writer. On PostgreSQL a transaction may have read the epoch before the switch and commit after it; its
//! row lock makes the switch wait for it, so that who reads rows after the switch sees them.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_blobs::ObjectId;

/// A number that names a place of contents among those that an installation had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(pub(crate) i64);

impl Record for Epoch {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?))
    }
}

/// Which place the rows refer to now.
pub(crate) async fn read_epoch(db: &Db) -> Result<Epoch, StoreError> {
    db.read("SELECT epoch FROM blob_storage WHERE slot = 1")
        .fetch_one()
        .await
}

/// Fails if contents have moved since this process opened the database: what it stored is in a place that nobody reads
/// from any more.
pub(crate) async fn check_epoch(tx: &mut Tx) -> Result<(), StoreError> {
    let sql = if tx.has_many_writers() {
        "SELECT epoch FROM blob_storage WHERE slot = 1 FOR SHARE"
    } else {
        "SELECT epoch FROM blob_storage WHERE slot = 1"
    };
    let epoch: Epoch = tx.query(sql).fetch_one().await?;
    match tx.blob_epoch {
        Some(own) if own != epoch => Err(StoreError::BlobsMoved),
        _ => Ok(()),
    }
}

/// A switch to another place that has begun.
#[derive(Debug, Clone, Copy)]
#[must_use = "ask whether it is still under way"]
pub struct Switch(Epoch);

/// Keeps all servers that run now from adding rows, unless that is so already.
pub async fn begin_switch(db: &Db) -> Result<Switch, StoreError> {
    db.transact(|tx| {
        Box::pin(async move {
            tx.query(
                "UPDATE blob_storage SET former = epoch, epoch = newest + 1, newest = newest + 1
                 WHERE slot = 1 AND former IS NULL",
            )
            .execute()
            .await?;
            let epoch = tx
                .query("SELECT epoch FROM blob_storage WHERE slot = 1")
                .fetch_one()
                .await?;
            Ok(Switch(epoch))
        })
    })
    .await
}

/// Lets them add rows again, if a switch was under way. A server that opened the database meanwhile is kept from it
/// until it is restarted, also by every later switch: no epoch is used twice.
pub async fn cancel_switch(db: &Db) -> Result<(), StoreError> {
    db.transact(|tx| {
        Box::pin(async move {
            tx.query(
                "UPDATE blob_storage SET epoch = former, former = NULL
                 WHERE slot = 1 AND former IS NOT NULL",
            )
            .execute()
            .await
            .map(drop)
        })
    })
    .await
}

/// Whether a switch was not cancelled since it began: if it was, rows may have been added.
pub async fn is_under_way(db: &Db, Switch(begun): Switch) -> Result<bool, StoreError> {
    let now: Option<Epoch> = db
        .read("SELECT epoch FROM blob_storage WHERE slot = 1 AND former IS NOT NULL")
        .fetch_optional()
        .await?;
    Ok(now == Some(begun))
}

/// Makes a switch final, after servers may use the new place.
pub async fn complete_switch(db: &Db) -> Result<(), StoreError> {
    db.transact(|tx| {
        Box::pin(async move {
            tx.query("UPDATE blob_storage SET former = NULL WHERE slot = 1")
                .execute()
                .await
                .map(drop)
        })
    })
    .await
}

/// A page of the packs and files that rows name, in the order of their texts.
pub async fn list_places(
    db: &Db,
    after: Option<ObjectId>,
    limit: u32,
) -> Result<Vec<ObjectId>, StoreError> {
    let places: Vec<Place> = db
        .read("SELECT DISTINCT place FROM blobs WHERE place > $1 ORDER BY place LIMIT $2")
        .bind(after.map_or_else(String::new, |id| id.to_string()))
        .bind(limit)
        .fetch_all()
        .await?;
    Ok(places.into_iter().map(|Place(id)| id).collect())
}

struct Place(ObjectId);

impl Record for Place {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.parse()?))
    }
}

/// How many contents have rows, and how many bytes they are together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredTotal {
    pub contents: u64,
    pub bytes: u64,
}

impl Record for StoredTotal {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            contents: row.take()?,
            bytes: row.take()?,
        })
    }
}

/// What is stored in all.
pub async fn read_total(db: &Db) -> Result<StoredTotal, StoreError> {
    db.read("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM blobs")
        .fetch_one()
        .await
}

/// Whether any content has a row.
pub async fn has_blobs(db: &Db) -> Result<bool, StoreError> {
    let found: Option<Place> = db
        .read("SELECT place FROM blobs LIMIT 1")
        .fetch_optional()
        .await?;
    Ok(found.is_some())
}
