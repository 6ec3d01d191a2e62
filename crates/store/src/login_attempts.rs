//! Tries to log in that failed or are still being checked, so that guessing has an end.

use crate::housekeeping::prune;
use crate::{Db, StoreError, Tx, Value};
use estrade_model::{Id, Timestamp};

/// Marks the id of a try to log in.
#[derive(Debug)]
pub enum Attempt {}
/// Identifies a try to log in.
pub type AttemptId = Id<Attempt>;

/// When the `nth` newest try of a scope since `since` was made; none when there were fewer.
pub async fn nth_attempt(
    tx: &mut Tx,
    scope: [u8; 32],
    since: Timestamp,
    nth: u32,
) -> Result<Option<Timestamp>, StoreError> {
    tx.query(
        "SELECT at FROM login_attempts WHERE scope = $1 AND at > $2
         ORDER BY at DESC LIMIT 1 OFFSET $3",
    )
    .bind(scope)
    .bind(since)
    .bind(nth.saturating_sub(1))
    .fetch_optional()
    .await
}

/// Counts a try in each of its scopes.
pub async fn insert_attempt(
    tx: &mut Tx,
    id: AttemptId,
    scopes: &[[u8; 32]],
    at: Timestamp,
) -> Result<(), StoreError> {
    tx.execute_many(
        "INSERT INTO login_attempts (id, scope, at) VALUES ($1, $2, $3)",
        rows(id, scopes, at),
    )
    .await
}

/// Forgets a try in each of its scopes.
pub async fn delete_attempt(
    tx: &mut Tx,
    id: AttemptId,
    scopes: &[[u8; 32]],
    at: Timestamp,
) -> Result<(), StoreError> {
    tx.execute_many(
        "DELETE FROM login_attempts WHERE id = $1 AND scope = $2 AND at = $3",
        rows(id, scopes, at),
    )
    .await
}

fn rows(id: AttemptId, scopes: &[[u8; 32]], at: Timestamp) -> Vec<Vec<Value>> {
    scopes
        .iter()
        .map(|scope| vec![id.into(), scope.into(), at.into()])
        .collect()
}

/// Removes up to `most` tries that are too old to count; returns how many there were.
pub async fn prune_attempts(db: &Db, before: Timestamp, most: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM login_attempts WHERE (scope, at, id) IN
               (SELECT scope, at, id FROM login_attempts WHERE at < $1 LIMIT $2)";
    prune(db, sql, before, most).await
}
