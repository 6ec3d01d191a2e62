//! Failed logins and known networks, for the throttling of password guessing.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{AccountId, Timestamp};

/// The failures of a scope: an account, a network, or one account from one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failures {
    /// In thousandths of a failure.
    pub weight: i64,
    /// As of this moment.
    pub last_at: Timestamp,
}

impl Record for Failures {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            weight: row.take()?,
            last_at: row.take()?,
        })
    }
}

/// The failures of a scope, if any are known.
pub async fn find_failures(tx: &mut Tx, scope: [u8; 32]) -> Result<Option<Failures>, StoreError> {
    tx.query("SELECT weight, last_at FROM login_failures WHERE scope = $1")
        .bind(scope)
        .fetch_optional()
        .await
}

/// Writes down the failures of a scope.
pub async fn set_failures(
    tx: &mut Tx,
    scope: [u8; 32],
    failures: Failures,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO login_failures (scope, weight, last_at) VALUES ($1, $2, $3)
         ON CONFLICT (scope) DO UPDATE SET weight = excluded.weight, last_at = excluded.last_at",
    )
    .bind(scope)
    .bind(failures.weight)
    .bind(failures.last_at)
    .execute()
    .await
    .map(drop)
}

/// Takes `weight` from each of the scopes: a try that was counted did not fail.
pub async fn forgive(tx: &mut Tx, scopes: &[[u8; 32]], weight: i64) -> Result<(), StoreError> {
    let rows = |scopes: &[[u8; 32]]| -> Vec<Vec<Value>> {
        let row = |scope: &[u8; 32]| vec![scope.into(), weight.into()];
        scopes.iter().map(row).collect()
    };
    tx.execute_many(
        "DELETE FROM login_failures WHERE scope = $1 AND weight <= $2",
        rows(scopes),
    )
    .await?;
    tx.execute_many(
        "UPDATE login_failures SET weight = weight - $2 WHERE scope = $1",
        rows(scopes),
    )
    .await
}

/// Whether there was a successful login to an account from a network.
pub async fn is_known_network(db: &Db, scope: [u8; 32]) -> Result<bool, StoreError> {
    let known: Option<Timestamp> = db
        .read("SELECT last_at FROM login_networks WHERE scope = $1")
        .bind(scope)
        .fetch_optional()
        .await?;
    Ok(known.is_some())
}

/// Records a successful login to an account from a network; keeps the `most` latest ones.
pub async fn remember_network(
    tx: &mut Tx,
    account: AccountId,
    scope: [u8; 32],
    now: Timestamp,
    limit: u32,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO login_networks (scope, account_id, last_at) VALUES ($1, $2, $3)
         ON CONFLICT (scope) DO UPDATE SET last_at = excluded.last_at",
    )
    .bind(scope)
    .bind(account)
    .bind(now)
    .execute()
    .await?;
    tx.query(
        "DELETE FROM login_networks WHERE scope IN
         (SELECT scope FROM login_networks WHERE account_id = $1
          ORDER BY last_at DESC, scope LIMIT 100 OFFSET $2)",
    )
    .bind(account)
    .bind(limit)
    .execute()
    .await
    .map(drop)
}

/// Removes up to `most` sums of failures that have faded; returns how many there were.
pub async fn prune_failures(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM login_failures WHERE scope IN
               (SELECT scope FROM login_failures WHERE last_at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}

/// Removes up to `limit` networks without a successful login since `before`.
pub async fn prune_networks(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM login_networks WHERE scope IN
               (SELECT scope FROM login_networks WHERE last_at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}

/// When the `nth` latest failure was; none when there are not so many sums. What is older than it can
/// go, so that an attacker with endless addresses does not fill the disk.
pub async fn nth_latest_failure(db: &Db, nth: u32) -> Result<Option<Timestamp>, StoreError> {
    db.read("SELECT last_at FROM login_failures ORDER BY last_at DESC LIMIT 1 OFFSET $1")
        .bind(nth)
        .fetch_optional()
        .await
}
