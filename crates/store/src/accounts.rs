//! Accounts, and the owner row that each account and team has.

use crate::{Db, Record, Row, StoreError, Tx, value};
use estrade_model::{AccountId, OwnerId, Timestamp};

/// An account as stored.
#[derive(Debug, Clone)]
pub struct AccountRow {
    /// Identifier; also the id of its owner row.
    pub id: AccountId,
    /// Address, in lower case.
    pub email: String,
    pub fullname: String,
    /// Whether it may use the admin API.
    pub admin: bool,
    /// Whether it is locked out.
    pub disabled: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

macro_rules! columns {
    () => {
        "id, email, fullname, admin, disabled, created_at"
    };
}

impl Record for AccountRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            email: row.take()?,
            fullname: row.take()?,
            admin: row.take()?,
            disabled: row.take()?,
            created_at: row.take()?,
        })
    }
}

/// The stored password hash of an account, in PHC form; never logged.
pub struct PasswordRow {
    pub account: AccountId,
    /// Its hash; none when only tokens open it.
    pub hash: Option<String>,
    /// Whether it is locked out.
    pub disabled: bool,
}

impl Record for PasswordRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            account: row.take()?,
            hash: row.take()?,
            disabled: row.take()?,
        })
    }
}

/// Makes the row that everything of an account or team hangs on.
pub async fn insert_owner(tx: &mut Tx, id: OwnerId) -> Result<(), StoreError> {
    tx.query("INSERT INTO owners (id) VALUES ($1)")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Adds an account; [`StoreError::Duplicate`] when the address is taken.
pub async fn insert_account(
    tx: &mut Tx,
    account: &AccountRow,
    password: Option<&str>,
) -> Result<(), StoreError> {
    insert_owner(tx, account.id.cast()).await?;
    tx.query(
        "INSERT INTO accounts (id, email, fullname, password, admin, disabled, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(account.id)
    .bind(&account.email)
    .bind(&account.fullname)
    .bind(password)
    .bind(account.admin)
    .bind(account.disabled)
    .bind(account.created_at)
    .execute()
    .await
    .map(drop)
}

/// The account of that id.
pub async fn account_by_id(db: &Db, id: AccountId) -> Result<Option<AccountRow>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM accounts WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional()
    .await
}

/// The same inside a transaction.
pub async fn find_account(tx: &mut Tx, id: AccountId) -> Result<Option<AccountRow>, StoreError> {
    tx.query(concat!(
        "SELECT ",
        columns!(),
        " FROM accounts WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional()
    .await
}

/// The account with that address.
pub async fn account_by_email(db: &Db, email: &str) -> Result<Option<AccountRow>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM accounts WHERE email = $1"
    ))
    .bind(email)
    .fetch_optional()
    .await
}

/// Every account, oldest first.
pub async fn list_accounts(db: &Db) -> Result<Vec<AccountRow>, StoreError> {
    db.read(concat!("SELECT ", columns!(), " FROM accounts ORDER BY id"))
        .fetch_all()
        .await
}

/// A page of the accounts whose address or name contains a text, newest first. The text is empty or a pattern of
/// `LIKE` with `\\` as its escape character.
pub async fn search_accounts(
    db: &Db,
    pattern: &str,
    before: Option<AccountId>,
    count: u32,
) -> Result<Vec<AccountRow>, StoreError> {
    db.read(concat!(
        "SELECT ",
        columns!(),
        " FROM accounts WHERE id < $1
           AND ($2 = '' OR email LIKE $2 ESCAPE '\\' OR LOWER(fullname) LIKE $2 ESCAPE '\\')
          ORDER BY id DESC LIMIT $3"
    ))
    .bind(value::before(before))
    .bind(pattern)
    .bind(count)
    .fetch_all()
    .await
}

/// How many accounts there are, and how many of them are locked out.
pub async fn count_accounts(db: &Db) -> Result<(u64, u64), StoreError> {
    let all = db.read("SELECT COUNT(*) FROM accounts").fetch_one().await?;
    let disabled = db.read("SELECT COUNT(*) FROM accounts WHERE disabled");
    Ok((all, disabled.fetch_one().await?))
}

/// The password hash of the account with that address.
pub async fn password_by_email(db: &Db, email: &str) -> Result<Option<PasswordRow>, StoreError> {
    db.read("SELECT id, password, disabled FROM accounts WHERE email = $1")
        .bind(email)
        .fetch_optional()
        .await
}

/// The password hash of an account.
pub async fn password_by_id(db: &Db, id: AccountId) -> Result<Option<PasswordRow>, StoreError> {
    db.read("SELECT id, password, disabled FROM accounts WHERE id = $1")
        .bind(id)
        .fetch_optional()
        .await
}

/// The password hash of an account, inside a transaction that depends on it.
pub async fn find_password(tx: &mut Tx, id: AccountId) -> Result<Option<PasswordRow>, StoreError> {
    tx.query("SELECT id, password, disabled FROM accounts WHERE id = $1")
        .bind(id)
        .fetch_optional()
        .await
}

/// Whether an account is an administrator and not locked out, inside a transaction that depends on it.
pub async fn is_admin(tx: &mut Tx, id: AccountId) -> Result<bool, StoreError> {
    let sql = if tx.has_many_writers() {
        "SELECT id FROM accounts WHERE id = $1 AND admin AND NOT disabled FOR SHARE"
    } else {
        "SELECT id FROM accounts WHERE id = $1 AND admin AND NOT disabled"
    };
    let row: Option<AccountId> = tx.query(sql).bind(id).fetch_optional().await?;
    Ok(row.is_some())
}

/// Sets a password hash; false when there is no such account.
pub async fn set_password(tx: &mut Tx, id: AccountId, hash: &str) -> Result<bool, StoreError> {
    let touched = tx
        .query("UPDATE accounts SET password = $2 WHERE id = $1")
        .bind(id)
        .bind(hash)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Sets the name of a person; false when there is no such account.
pub async fn set_fullname(tx: &mut Tx, id: AccountId, name: &str) -> Result<bool, StoreError> {
    let touched = tx
        .query("UPDATE accounts SET fullname = $2 WHERE id = $1")
        .bind(id)
        .bind(name)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Locks an account out, or lets it in again.
pub async fn set_disabled(tx: &mut Tx, id: AccountId, disabled: bool) -> Result<bool, StoreError> {
    let touched = tx
        .query("UPDATE accounts SET disabled = $2 WHERE id = $1")
        .bind(id)
        .bind(disabled)
        .execute()
        .await?;
    Ok(touched > 0)
}
