//! Accounts at ACME servers, and the responses to their challenges.

use crate::prune::prune;
use crate::{Db, StoreError, Tx};
use estrade_model::Timestamp;
use estrade_model::domain::HostName;

/// The sealed account at a server, by the address of its directory.
pub async fn read_account(db: &Db, directory: &str) -> Result<Option<Vec<u8>>, StoreError> {
    db.read("SELECT sealed FROM acme_accounts WHERE directory = $1")
        .bind(directory)
        .fetch_optional()
        .await
}

/// Keeps an account, unless another node was faster.
pub async fn insert_account(
    tx: &mut Tx,
    directory: &str,
    sealed: &[u8],
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO acme_accounts (directory, sealed, created_at) VALUES ($1, $2, $3)
         ON CONFLICT (directory) DO NOTHING",
    )
    .bind(directory)
    .bind(sealed)
    .bind(now)
    .execute()
    .await
    .map(drop)
}

/// A pending ACME challenge for a host.
#[derive(Debug, Clone)]
pub struct NewChallenge {
    /// The token of the challenge.
    pub token: String,
    /// The host that it checks.
    pub host: HostName,
    pub response: String,
    pub expires_at: Timestamp,
}

/// Gets ready for a check.
pub async fn insert_challenge(tx: &mut Tx, new: &NewChallenge) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO acme_challenges (token, host, answer, expires_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (token) DO UPDATE SET answer = $3, expires_at = $4",
    )
    .bind(&new.token)
    .bind(new.host.as_str())
    .bind(&new.response)
    .bind(new.expires_at)
    .execute()
    .await
    .map(drop)
}

/// The response to the challenge with this token.
pub async fn response_to_token(
    db: &Db,
    token: &str,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    db.read("SELECT answer FROM acme_challenges WHERE token = $1 AND expires_at > $2")
        .bind(token)
        .bind(now)
        .fetch_optional()
        .await
}

/// The response to the newest challenge for this host.
pub async fn response_for_host(
    db: &Db,
    host: &HostName,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    db.read(
        "SELECT answer FROM acme_challenges WHERE host = $1 AND expires_at > $2
         ORDER BY expires_at DESC, token LIMIT 1",
    )
    .bind(host.as_str())
    .bind(now)
    .fetch_optional()
    .await
}

/// Forgets the checks of a host.
pub async fn delete_challenges(tx: &mut Tx, host: &HostName) -> Result<(), StoreError> {
    tx.query("DELETE FROM acme_challenges WHERE host = $1")
        .bind(host.as_str())
        .execute()
        .await
        .map(drop)
}

/// Removes up to `most` checks that have ended; returns how many there were.
pub async fn prune_challenges(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM acme_challenges WHERE token IN
               (SELECT token FROM acme_challenges WHERE expires_at < $1 LIMIT $2)";
    prune(db, sql, now, limit).await
}
