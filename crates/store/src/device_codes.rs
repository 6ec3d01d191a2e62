//! Logins of the command line that wait for a person: hashes of their codes, and who approved them.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::id::kind;
use estrade_model::token_scope::TokenScope;
use estrade_model::{AccountId, Id, SessionId, Timestamp};

/// A login that was begun.
#[derive(Debug, Clone)]
pub struct NewDeviceCode {
    pub id: Id<kind::DeviceCode>,
    /// Hash of the code that the client keeps.
    pub device_hash: [u8; 32],
    /// Hash of the code that the person types.
    pub user_hash: [u8; 32],
    /// The machine, as it calls itself.
    pub host: String,
    /// The program, as it calls itself.
    pub user_agent: String,
    pub address: String,
    /// The network of the address, for which codes are counted. It begins with the larger network that it is part of.
    pub network: String,
    pub scope: TokenScope,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// How many logins wait: of a network, of the larger one that it is part of, and of all of them.
#[derive(Debug, Clone, Copy)]
pub struct OpenCodes {
    pub of_network: u64,
    pub of_site: u64,
    pub all: u64,
}

impl Record for OpenCodes {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            all: row.take()?,
            of_network: row.take()?,
            of_site: row.take()?,
        })
    }
}

macro_rules! count_codes {
    () => {
        "SELECT COUNT(*), COUNT(CASE WHEN network = $1 THEN 1 END), COUNT(CASE WHEN network LIKE $2 THEN 1 END)
         FROM device_codes"
    };
}

/// Counts the rows that there are, ended or not: they are what fills the table. `site` is the beginning of all networks
/// that are counted together.
pub async fn count_codes(tx: &mut Tx, network: &str, site: &str) -> Result<OpenCodes, StoreError> {
    let query = tx.query(count_codes!()).bind(network);
    query.bind(format!("{site}%")).fetch_one().await
}

/// The same without a transaction: what is refused anyway takes no turn of the writer.
pub async fn read_count(db: &Db, network: &str, site: &str) -> Result<OpenCodes, StoreError> {
    let query = db.read(count_codes!()).bind(network);
    query.bind(format!("{site}%")).fetch_one().await
}

/// Whether a login has this user code, be it answered or expired.
pub async fn is_user_code_taken(tx: &mut Tx, user_hash: [u8; 32]) -> Result<bool, StoreError> {
    let row: Option<Id<kind::DeviceCode>> = tx
        .query("SELECT id FROM device_codes WHERE user_hash = $1")
        .bind(user_hash)
        .fetch_optional()
        .await?;
    Ok(row.is_some())
}

/// Adds a login; [`StoreError::Duplicate`] when another has the same code.
pub async fn insert_code(tx: &mut Tx, code: &NewDeviceCode) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO device_codes (id, device_hash, user_hash, host, user_agent, address, network, scope,
                                   created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(code.id)
    .bind(code.device_hash)
    .bind(code.user_hash)
    .bind(&code.host)
    .bind(&code.user_agent)
    .bind(&code.address)
    .bind(&code.network)
    .bind(code.scope.to_string())
    .bind(code.created_at)
    .bind(code.expires_at)
    .execute()
    .await
    .map(drop)
}

/// A login that waits for its person, or for its client, as the person sees it.
#[derive(Debug, Clone)]
pub struct WaitingLogin {
    pub id: Id<kind::DeviceCode>,
    pub host: String,
    pub user_agent: String,
    pub address: String,
    pub scope: TokenScope,
    pub created_at: Timestamp,
    /// The account that has approved it.
    pub account: Option<AccountId>,
}

impl Record for WaitingLogin {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            host: row.take()?,
            user_agent: row.take()?,
            address: row.take()?,
            scope: row.parse()?,
            created_at: row.take()?,
            account: row.take()?,
        })
    }
}

/// The login that waits for this user code, or for its client since the account approved it.
pub async fn find_waiting(
    db: &Db,
    user_hash: [u8; 32],
    account: AccountId,
    now: Timestamp,
) -> Result<Option<WaitingLogin>, StoreError> {
    db.read(
        "SELECT id, host, user_agent, address, scope, created_at, account_id FROM device_codes
         WHERE user_hash = $1 AND expires_at > $2 AND (account_id IS NULL OR account_id = $3) AND NOT denied",
    )
    .bind(user_hash)
    .bind(now)
    .bind(account)
    .fetch_optional()
    .await
}

/// The approval of a person, which lets a client in.
#[derive(Debug, Clone, Copy)]
pub struct Approval {
    pub account: AccountId,
    /// The session that approves.
    pub session: SessionId,
    pub at: Timestamp,
    /// How long the client has to fetch its token, unless the login ends sooner.
    pub expires_at: Timestamp,
}

/// Approves a login for an account; false when it was answered or has ended meanwhile.
pub async fn approve(
    tx: &mut Tx,
    id: Id<kind::DeviceCode>,
    approval: Approval,
) -> Result<bool, StoreError> {
    let touched = tx
        .query(
            "UPDATE device_codes SET account_id = $2, session_id = $3,
                    expires_at = CASE WHEN expires_at < $5 THEN expires_at ELSE $5 END
             WHERE id = $1 AND expires_at > $4 AND account_id IS NULL AND NOT denied",
        )
        .bind(id)
        .bind(approval.account)
        .bind(approval.session)
        .bind(approval.at)
        .bind(approval.expires_at)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Denies a login, also one that the account approved; false when it was answered otherwise or has ended meanwhile.
pub async fn deny(
    tx: &mut Tx,
    id: Id<kind::DeviceCode>,
    account: AccountId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let touched = tx
        .query(
            "UPDATE device_codes SET denied = TRUE
             WHERE id = $1 AND expires_at > $2 AND (account_id IS NULL OR account_id = $3) AND NOT denied",
        )
        .bind(id)
        .bind(now)
        .bind(account)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Takes back what an account has approved and no client has fetched.
pub async fn withdraw_approvals(tx: &mut Tx, account: AccountId) -> Result<(), StoreError> {
    tx.query("UPDATE device_codes SET denied = TRUE WHERE account_id = $1 AND NOT denied")
        .bind(account)
        .execute()
        .await
        .map(drop)
}

/// How a login stands, for the client that polls.
#[derive(Debug, Clone)]
pub struct CodeState {
    pub id: Id<kind::DeviceCode>,
    /// When the client last asked and was told to go on waiting.
    pub polled_at: Option<Timestamp>,
    pub denied: bool,
    /// Whose token it will be; none while nobody has approved it.
    pub account: Option<AccountId>,
}

impl Record for CodeState {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            polled_at: row.take()?,
            denied: row.take()?,
            account: row.take()?,
        })
    }
}

/// The login of a device code that has not ended.
pub async fn find_code(
    db: &Db,
    device_hash: [u8; 32],
    now: Timestamp,
) -> Result<Option<CodeState>, StoreError> {
    db.read(
        "SELECT id, polled_at, denied, account_id FROM device_codes
         WHERE device_hash = $1 AND expires_at > $2",
    )
    .bind(device_hash)
    .bind(now)
    .fetch_optional()
    .await
}

/// Notes that the client asked; false when another poll was noted after `since`. One of a time after `until` is of a
/// clock that was ahead, and does not count.
pub async fn touch_code(
    tx: &mut Tx,
    id: Id<kind::DeviceCode>,
    now: Timestamp,
    (since, until): (Timestamp, Timestamp),
) -> Result<bool, StoreError> {
    let touched = tx
        .query(
            "UPDATE device_codes SET polled_at = $2
             WHERE id = $1 AND (polled_at IS NULL OR polled_at <= $3 OR polled_at > $4)",
        )
        .bind(id)
        .bind(now)
        .bind(since)
        .bind(until)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// What an approved login makes.
#[derive(Debug, Clone)]
pub struct ApprovedLogin {
    pub id: Id<kind::DeviceCode>,
    pub account: AccountId,
    /// The session that approved it.
    pub session: SessionId,
    pub host: String,
    pub scope: TokenScope,
}

impl Record for ApprovedLogin {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            account: row.take()?,
            session: row.take()?,
            host: row.take()?,
            scope: row.parse()?,
        })
    }
}

/// Uses an approved login up: of two who try, one gets it.
pub async fn take_approved(
    tx: &mut Tx,
    device_hash: [u8; 32],
    now: Timestamp,
) -> Result<Option<ApprovedLogin>, StoreError> {
    tx.query(
        "DELETE FROM device_codes
         WHERE device_hash = $1 AND expires_at > $2 AND account_id IS NOT NULL AND NOT denied
         RETURNING id, account_id, session_id, host, scope",
    )
    .bind(device_hash)
    .bind(now)
    .fetch_optional()
    .await
}

/// Removes up to `limit` logins that have ended; returns how many there were.
pub async fn prune_codes(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM device_codes WHERE id IN
               (SELECT id FROM device_codes WHERE expires_at <= $1 LIMIT $2)";
    prune(db, sql, now, limit).await
}
