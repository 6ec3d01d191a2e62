//! Links with which somebody sets the password of an account: hashes of their codes, and when they end.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::{AccountId, Timestamp};

/// A link as stored.
#[derive(Debug, Clone)]
pub struct ResetLinkRow {
    pub account: AccountId,
    /// Hash of the code in the link.
    pub secret_hash: [u8; 32],
    /// What it is for.
    pub kind: &'static str,
    pub expires_at: Timestamp,
}

/// Whose password a link sets.
#[derive(Debug, Clone)]
pub struct LinkedAccount {
    pub account: AccountId,
    pub email: String,
    /// What the link is for.
    pub kind: String,
}

impl Record for LinkedAccount {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            account: row.take()?,
            email: row.take()?,
            kind: row.take()?,
        })
    }
}

/// Adds a link; it takes the place of an earlier one of the account.
pub async fn insert_link(tx: &mut Tx, link: &ResetLinkRow) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO reset_links (account_id, secret_hash, kind, expires_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (account_id) DO UPDATE SET secret_hash = excluded.secret_hash,
             kind = excluded.kind, expires_at = excluded.expires_at",
    )
    .bind(link.account)
    .bind(link.secret_hash)
    .bind(link.kind)
    .bind(link.expires_at)
    .execute()
    .await
    .map(drop)
}

/// Whether an account has a link, be it expired.
pub async fn has_link(tx: &mut Tx, account: AccountId) -> Result<bool, StoreError> {
    let row: Option<AccountId> = tx
        .query("SELECT account_id FROM reset_links WHERE account_id = $1")
        .bind(account)
        .fetch_optional()
        .await?;
    Ok(row.is_some())
}

/// Whose password a link sets that has neither ended nor is of an account that is locked out.
pub async fn find_link(
    db: &Db,
    secret_hash: [u8; 32],
    now: Timestamp,
) -> Result<Option<LinkedAccount>, StoreError> {
    db.read(
        "SELECT a.id, a.email, l.kind FROM reset_links l JOIN accounts a ON a.id = l.account_id
         WHERE l.secret_hash = $1 AND l.expires_at > $2 AND NOT a.disabled",
    )
    .bind(secret_hash)
    .bind(now)
    .fetch_optional()
    .await
}

/// Uses a link up; false when it has ended, was used, or is of another account.
pub async fn take_link(
    tx: &mut Tx,
    account: AccountId,
    secret_hash: [u8; 32],
    now: Timestamp,
) -> Result<bool, StoreError> {
    let gone = tx
        .query(
            "DELETE FROM reset_links
             WHERE account_id = $1 AND secret_hash = $2 AND expires_at > $3",
        )
        .bind(account)
        .bind(secret_hash)
        .bind(now)
        .execute()
        .await?;
    Ok(gone > 0)
}

/// Removes the link of an account: its password was set in another way.
pub async fn delete_link(tx: &mut Tx, account: AccountId) -> Result<(), StoreError> {
    tx.query("DELETE FROM reset_links WHERE account_id = $1")
        .bind(account)
        .execute()
        .await
        .map(drop)
}

/// Removes up to `limit` links that have ended, but for that of a first start; returns how many there were.
pub async fn prune_links(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM reset_links WHERE account_id IN
               (SELECT account_id FROM reset_links WHERE expires_at <= $1 AND kind <> 'welcome' LIMIT $2)";
    prune(db, sql, now, limit).await
}
