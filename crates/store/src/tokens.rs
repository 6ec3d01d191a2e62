//! Account tokens: hashes of their secrets, names, and when they end.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::token_scope::TokenScope;
use estrade_model::{AccountId, Timestamp, TokenId};
use std::net::IpAddr;

/// A new token, as stored.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Identifier, the `sub` of the JWT.
    pub id: TokenId,
    /// Whose token it is.
    pub account: AccountId,
    pub name: String,
    /// What it is good for; never changes.
    pub scope: TokenScope,
    /// Hash of the JWT's `jti`.
    pub secret_hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; never when none.
    pub expires_at: Option<Timestamp>,
    /// Whether logging in made it.
    pub session: bool,
}

/// A token as listed.
#[derive(Debug, Clone)]
pub struct TokenRow {
    pub id: TokenId,
    pub name: String,
    pub scope: TokenScope,
    /// When it was made.
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// The address that used it then.
    pub last_address: Option<String>,
}

impl Record for TokenRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
            scope: row.parse()?,
            created_at: row.take()?,
            expires_at: row.take()?,
            last_used_at: row.take()?,
            last_address: row.take()?,
        })
    }
}

/// What a request with a token needs to know: the token and the account behind it.
#[derive(Debug, Clone)]
pub struct TokenState {
    /// Hash of the JWT's `jti`.
    pub secret_hash: [u8; 32],
    pub scope: TokenScope,
    pub expires_at: Option<Timestamp>,
    /// When it was last used, as far as the database knows.
    pub last_used_at: Option<Timestamp>,
    /// Whose token it is.
    pub account: AccountId,
    pub email: String,
    pub fullname: String,
    /// Whether the account may use the admin API.
    pub admin: bool,
    /// Whether the account is locked out.
    pub disabled: bool,
}

impl Record for TokenState {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            secret_hash: row.take()?,
            scope: row.parse()?,
            expires_at: row.take()?,
            last_used_at: row.take()?,
            account: row.take()?,
            email: row.take()?,
            fullname: row.take()?,
            admin: row.take()?,
            disabled: row.take()?,
        })
    }
}

/// Adds a token.
pub async fn insert_token(tx: &mut Tx, token: &NewToken) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO tokens (id, account_id, name, secret_hash, created_at, expires_at, session, scope)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(token.id)
    .bind(token.account)
    .bind(&token.name)
    .bind(token.secret_hash)
    .bind(token.created_at)
    .bind(token.expires_at)
    .bind(token.session)
    .bind(token.scope.to_string())
    .execute()
    .await
    .map(drop)
}

/// The live state of a token.
pub async fn token_state(db: &Db, id: TokenId) -> Result<Option<TokenState>, StoreError> {
    db.read(
        "SELECT t.secret_hash, t.scope, t.expires_at, t.last_used_at, a.id, a.email, a.fullname, a.admin, a.disabled
         FROM tokens t JOIN accounts a ON a.id = t.account_id WHERE t.id = $1",
    )
    .bind(id)
    .fetch_optional()
    .await
}

/// A page of an account's tokens, newest first, strictly before `before`.
pub async fn list_tokens(
    db: &Db,
    account: AccountId,
    before: Option<TokenId>,
    count: u32,
    skip: u64,
) -> Result<Vec<TokenRow>, StoreError> {
    db.read(
        "SELECT id, name, scope, created_at, expires_at, last_used_at, last_address FROM tokens
         WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4",
    )
    .bind(account)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// A token that is gone.
#[derive(Debug, Clone)]
pub struct RemovedToken {
    pub account: AccountId,
    pub name: String,
}

impl Record for RemovedToken {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            account: row.take()?,
            name: row.take()?,
        })
    }
}

/// Removes a token of an account; none when it has none of that id.
pub async fn delete_token(
    tx: &mut Tx,
    account: AccountId,
    id: TokenId,
) -> Result<Option<RemovedToken>, StoreError> {
    tx.query("DELETE FROM tokens WHERE id = $1 AND account_id = $2 RETURNING account_id, name")
        .bind(id)
        .bind(account)
        .fetch_optional()
        .await
}

/// Removes a token of any owner, for the administrator's command line.
pub async fn delete_any_token(
    tx: &mut Tx,
    id: TokenId,
) -> Result<Option<RemovedToken>, StoreError> {
    tx.query("DELETE FROM tokens WHERE id = $1 RETURNING account_id, name")
        .bind(id)
        .fetch_optional()
        .await
}

/// Whether an account still has a token.
pub async fn has_token(tx: &mut Tx, account: AccountId, id: TokenId) -> Result<bool, StoreError> {
    let row: Option<TokenId> = tx
        .query("SELECT id FROM tokens WHERE id = $1 AND account_id = $2")
        .bind(id)
        .bind(account)
        .fetch_optional()
        .await?;
    Ok(row.is_some())
}

/// How many tokens an account has that have not ended, besides those that logging in made.
pub async fn count_tokens(
    tx: &mut Tx,
    account: AccountId,
    now: Timestamp,
) -> Result<u64, StoreError> {
    tx.query(
        "SELECT COUNT(*) FROM tokens
         WHERE account_id = $1 AND NOT session AND (expires_at IS NULL OR expires_at > $2)",
    )
    .bind(account)
    .bind(now)
    .fetch_one()
    .await
}

/// Removes all but the `most` newest tokens that logging in made; returns which.
pub async fn delete_old_sessions(
    tx: &mut Tx,
    account: AccountId,
    limit: u32,
) -> Result<Vec<TokenId>, StoreError> {
    tx.query(
        "DELETE FROM tokens WHERE id IN
         (SELECT id FROM tokens WHERE account_id = $1 AND session
          ORDER BY id DESC LIMIT 1000 OFFSET $2)
         RETURNING id",
    )
    .bind(account)
    .bind(limit)
    .fetch_all()
    .await
}

/// Removes the tokens of an account that logging in made; returns how many there were.
pub async fn delete_sessions(tx: &mut Tx, account: AccountId) -> Result<u64, StoreError> {
    tx.query("DELETE FROM tokens WHERE account_id = $1 AND session")
        .bind(account)
        .execute()
        .await
}

/// Removes every token of an account; returns how many there were.
pub async fn delete_tokens(tx: &mut Tx, account: AccountId) -> Result<u64, StoreError> {
    tx.query("DELETE FROM tokens WHERE account_id = $1")
        .bind(account)
        .execute()
        .await
}

/// Accounts that have tokens.
pub async fn list_holders(tx: &mut Tx) -> Result<Vec<AccountId>, StoreError> {
    tx.query("SELECT DISTINCT account_id FROM tokens")
        .fetch_all()
        .await
}

/// The last use of a token.
#[derive(Debug, Clone, Copy)]
pub struct TokenUse {
    pub at: Timestamp,
    pub address: Option<IpAddr>,
}

/// Notes when and from where tokens were last used.
pub async fn touch_tokens(tx: &mut Tx, used: &[(TokenId, TokenUse)]) -> Result<(), StoreError> {
    let rows = used
        .iter()
        .map(|(id, TokenUse { at, address })| {
            let address = address.map(|address| address.to_string());
            vec![Value::from(*id), Value::from(*at), Value::from(address)]
        })
        .collect();
    let sql = "UPDATE tokens SET last_used_at = $2, last_address = $3 WHERE id = $1";
    tx.execute_many(sql, rows).await
}

/// Removes up to `most` tokens that ended before a moment; returns how many there were.
pub async fn prune_tokens(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM tokens WHERE id IN
               (SELECT id FROM tokens WHERE expires_at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}
