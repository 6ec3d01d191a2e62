//! Second factors (TOTP) and recovery codes of accounts.

use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{AccountId, Timestamp};

/// A second factor as stored.
#[derive(Debug, Clone)]
pub struct SecondFactorRow {
    /// The secret, sealed.
    pub sealed_secret: Vec<u8>,
    pub created_at: Timestamp,
    /// Since when it is in force; none before the first right code.
    pub enabled_at: Option<Timestamp>,
    /// Time step of the last code that was taken.
    pub last_step: i64,
}

impl Record for SecondFactorRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            sealed_secret: row.take()?,
            created_at: row.take()?,
            enabled_at: row.take()?,
            last_step: row.take()?,
        })
    }
}

macro_rules! select_factor {
    () => {
        "SELECT sealed_secret, created_at, enabled_at, last_step FROM second_factors
         WHERE account_id = $1"
    };
}

/// The second factor of an account.
pub async fn read_factor(
    db: &Db,
    account: AccountId,
) -> Result<Option<SecondFactorRow>, StoreError> {
    db.read(select_factor!())
        .bind(account)
        .fetch_optional()
        .await
}

/// The second factor of an account, inside a transaction that depends on it.
pub async fn find_factor(
    tx: &mut Tx,
    account: AccountId,
) -> Result<Option<SecondFactorRow>, StoreError> {
    tx.query(select_factor!())
        .bind(account)
        .fetch_optional()
        .await
}

/// Whether an account has a second factor in force, inside a transaction that depends on it.
pub async fn is_enabled(tx: &mut Tx, account: AccountId) -> Result<bool, StoreError> {
    let factor = find_factor(tx, account).await?;
    Ok(factor.is_some_and(|factor| factor.enabled_at.is_some()))
}

/// Stores a second factor that is not in force yet, in place of one that is not in force either.
pub async fn set_pending_factor(
    tx: &mut Tx,
    account: AccountId,
    sealed_secret: &[u8],
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO second_factors (account_id, sealed_secret, created_at, last_step)
         VALUES ($1, $2, $3, 0)
         ON CONFLICT (account_id) DO UPDATE SET sealed_secret = excluded.sealed_secret,
             created_at = excluded.created_at, last_step = 0
         WHERE second_factors.enabled_at IS NULL",
    )
    .bind(account)
    .bind(sealed_secret)
    .bind(now)
    .execute()
    .await
    .map(drop)
}

/// Puts a second factor in force.
pub async fn enable_factor(
    tx: &mut Tx,
    account: AccountId,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query("UPDATE second_factors SET enabled_at = $2 WHERE account_id = $1")
        .bind(account)
        .bind(now)
        .execute()
        .await
        .map(drop)
}

/// Takes the code of a time step; false when that of this step or of a later one was taken before.
pub async fn take_step(tx: &mut Tx, account: AccountId, step: i64) -> Result<bool, StoreError> {
    let taken = tx
        .query("UPDATE second_factors SET last_step = $2 WHERE account_id = $1 AND last_step < $2")
        .bind(account)
        .bind(step)
        .execute()
        .await?;
    Ok(taken > 0)
}

/// Removes the second factor of an account with its recovery codes; false when it has none.
pub async fn delete_factor(tx: &mut Tx, account: AccountId) -> Result<bool, StoreError> {
    delete_recovery_codes(tx, account).await?;
    let gone = tx
        .query("DELETE FROM second_factors WHERE account_id = $1")
        .bind(account)
        .execute()
        .await?;
    Ok(gone > 0)
}

/// Removes a second factor that is not in force yet.
pub async fn delete_pending_factor(tx: &mut Tx, account: AccountId) -> Result<(), StoreError> {
    tx.query("DELETE FROM second_factors WHERE account_id = $1 AND enabled_at IS NULL")
        .bind(account)
        .execute()
        .await
        .map(drop)
}

async fn delete_recovery_codes(tx: &mut Tx, account: AccountId) -> Result<(), StoreError> {
    tx.query("DELETE FROM recovery_codes WHERE account_id = $1")
        .bind(account)
        .execute()
        .await
        .map(drop)
}

/// Replaces the recovery codes of an account.
pub async fn set_recovery_codes(
    tx: &mut Tx,
    account: AccountId,
    hashes: &[[u8; 32]],
) -> Result<(), StoreError> {
    delete_recovery_codes(tx, account).await?;
    let rows = hashes
        .iter()
        .map(|hash| vec![Value::from(account), Value::from(hash)])
        .collect();
    tx.execute_many(
        "INSERT INTO recovery_codes (account_id, code_hash) VALUES ($1, $2)",
        rows,
    )
    .await
}

/// Uses a recovery code up; false when the account has none of that hash.
pub async fn take_recovery_code(
    tx: &mut Tx,
    account: AccountId,
    hash: [u8; 32],
) -> Result<bool, StoreError> {
    let gone = tx
        .query("DELETE FROM recovery_codes WHERE account_id = $1 AND code_hash = $2")
        .bind(account)
        .bind(hash)
        .execute()
        .await?;
    Ok(gone > 0)
}

/// How many recovery codes an account has left.
pub async fn count_recovery_codes(db: &Db, account: AccountId) -> Result<u64, StoreError> {
    db.read("SELECT COUNT(*) FROM recovery_codes WHERE account_id = $1")
        .bind(account)
        .fetch_one()
        .await
}
