//! Browsers that are signed in to the account panel: hashes of their cookies, and when they were used.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{AccountId, SessionId, Timestamp};
use std::net::IpAddr;

/// A new session, as stored.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub account: AccountId,
    /// Hash of the cookie.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    /// From which address it was made.
    pub address: String,
    /// What the browser called itself.
    pub user_agent: String,
}

/// A session as listed.
#[derive(Debug, Clone)]
pub struct SessionRow {
    pub id: SessionId,
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_seen_at: Timestamp,
    /// When the person last gave the password or the second factor.
    pub authenticated_at: Timestamp,
    /// From which address it was last used.
    pub address: String,
    /// What the browser called itself when it signed in.
    pub user_agent: String,
}

impl Record for SessionRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            created_at: row.take()?,
            last_seen_at: row.take()?,
            authenticated_at: row.take()?,
            address: row.take()?,
            user_agent: row.take()?,
        })
    }
}

/// What a request with a session needs to know: the session and the account behind it.
#[derive(Debug, Clone)]
pub struct SessionState {
    /// Hash of the cookie.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    /// When it was last used, as far as the database knows.
    pub last_seen_at: Timestamp,
    pub authenticated_at: Timestamp,
    pub account: AccountId,
    pub email: String,
    pub fullname: String,
    /// Whether the account may use the admin API.
    pub admin: bool,
    /// Whether the account is locked out.
    pub disabled: bool,
}

impl Record for SessionState {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            secret_hash: row.take()?,
            created_at: row.take()?,
            last_seen_at: row.take()?,
            authenticated_at: row.take()?,
            account: row.take()?,
            email: row.take()?,
            fullname: row.take()?,
            admin: row.take()?,
            disabled: row.take()?,
        })
    }
}

/// Adds a session.
pub async fn insert_session(tx: &mut Tx, session: &NewSession) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO sessions (id, account_id, secret_hash, created_at, last_seen_at, authenticated_at,
                               address, user_agent)
         VALUES ($1, $2, $3, $4, $4, $4, $5, $6)",
    )
    .bind(session.id)
    .bind(session.account)
    .bind(session.secret_hash)
    .bind(session.created_at)
    .bind(&session.address)
    .bind(&session.user_agent)
    .execute()
    .await
    .map(drop)
}

/// The live state of a session.
pub async fn session_state(db: &Db, id: SessionId) -> Result<Option<SessionState>, StoreError> {
    db.read(
        "SELECT s.secret_hash, s.created_at, s.last_seen_at, s.authenticated_at,
                a.id, a.email, a.fullname, a.admin, a.disabled
         FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.id = $1",
    )
    .bind(id)
    .fetch_optional()
    .await
}

/// A page of an account's sessions, newest first, strictly before `before`: those that were made after
/// `made_after` and used after `used_after`.
pub async fn list_sessions(
    db: &Db,
    account: AccountId,
    made_after: Timestamp,
    used_after: Timestamp,
    before: Option<SessionId>,
    count: u32,
) -> Result<Vec<SessionRow>, StoreError> {
    db.read(
        "SELECT id, created_at, last_seen_at, authenticated_at, address, user_agent FROM sessions
         WHERE account_id = $1 AND id < $2 AND created_at > $3 AND last_seen_at > $4
         ORDER BY id DESC LIMIT $5",
    )
    .bind(account)
    .bind(crate::value::before(before))
    .bind(made_after)
    .bind(used_after)
    .bind(count)
    .fetch_all()
    .await
}

/// Whether an account still has a session, inside a transaction that depends on it.
pub async fn has_session(
    tx: &mut Tx,
    account: AccountId,
    id: SessionId,
) -> Result<bool, StoreError> {
    // The row lock keeps a transaction that began before a revocation from committing after it.
    let sql = if tx.has_many_writers() {
        "SELECT id FROM sessions WHERE id = $1 AND account_id = $2 FOR SHARE"
    } else {
        "SELECT id FROM sessions WHERE id = $1 AND account_id = $2"
    };
    let row: Option<SessionId> = tx
        .query(sql)
        .bind(id)
        .bind(account)
        .fetch_optional()
        .await?;
    Ok(row.is_some())
}

/// Notes that the person has given the password or the second factor again; false when there is no such
/// session.
pub async fn set_authenticated(
    tx: &mut Tx,
    account: AccountId,
    id: SessionId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let touched = tx
        .query("UPDATE sessions SET authenticated_at = $3 WHERE id = $1 AND account_id = $2")
        .bind(id)
        .bind(account)
        .bind(now)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Removes a session of an account; false when it has none of that id.
pub async fn delete_session(
    tx: &mut Tx,
    account: AccountId,
    id: SessionId,
) -> Result<bool, StoreError> {
    let gone = tx
        .query("DELETE FROM sessions WHERE id = $1 AND account_id = $2")
        .bind(id)
        .bind(account)
        .execute()
        .await?;
    Ok(gone > 0)
}

/// Removes the sessions of an account, but for one that is kept; returns which they were.
pub async fn delete_sessions(
    tx: &mut Tx,
    account: AccountId,
    kept: Option<SessionId>,
) -> Result<Vec<SessionId>, StoreError> {
    // No id is empty.
    let kept = kept.map_or_else(|| Value::Text(String::new()), Value::from);
    tx.query("DELETE FROM sessions WHERE account_id = $1 AND id <> $2 RETURNING id")
        .bind(account)
        .bind(kept)
        .fetch_all()
        .await
}

/// Removes all but the `limit` newest sessions of an account; returns which they were.
pub async fn delete_oldest_sessions(
    tx: &mut Tx,
    account: AccountId,
    limit: u32,
) -> Result<Vec<SessionId>, StoreError> {
    tx.query(
        "DELETE FROM sessions WHERE id IN
         (SELECT id FROM sessions WHERE account_id = $1 ORDER BY id DESC LIMIT 1000 OFFSET $2)
         RETURNING id",
    )
    .bind(account)
    .bind(limit)
    .fetch_all()
    .await
}

/// Accounts that have sessions.
pub async fn list_holders(tx: &mut Tx) -> Result<Vec<AccountId>, StoreError> {
    tx.query("SELECT DISTINCT account_id FROM sessions")
        .fetch_all()
        .await
}

/// A use of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionUse {
    pub at: Timestamp,
    /// Where the request came from.
    pub address: IpAddr,
}

/// Notes when and from where sessions were last used.
pub async fn touch_sessions(
    tx: &mut Tx,
    used: &[(SessionId, SessionUse)],
) -> Result<(), StoreError> {
    let rows = used
        .iter()
        .map(|(id, SessionUse { at, address })| {
            let address = address.to_canonical().to_string();
            vec![Value::from(*id), Value::from(*at), Value::from(address)]
        })
        .collect();
    // Another node may have seen it later.
    tx.execute_many(
        "UPDATE sessions SET last_seen_at = $2, address = $3 WHERE id = $1 AND last_seen_at < $2",
        rows,
    )
    .await
}

/// Removes up to `limit` sessions that were not used since `before`; returns how many there were.
pub async fn prune_sessions(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM sessions WHERE id IN
               (SELECT id FROM sessions WHERE last_seen_at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}
