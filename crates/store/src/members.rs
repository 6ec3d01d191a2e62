//! Members of teams and their roles.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::team::{Member, Role};
use estrade_model::{AccountId, TeamId, Timestamp};

impl Record for Member {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            email: row.take()?,
            fullname: row.take()?,
            role: row.parse()?,
        })
    }
}

/// A role in a row of its own.
struct RoleRow(Role);

impl Record for RoleRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        row.parse().map(Self)
    }
}

const ROLE: &str = "SELECT role FROM team_members WHERE team_id = $1 AND account_id = $2";
const ROLE_FOR_SHARE: &str =
    "SELECT role FROM team_members WHERE team_id = $1 AND account_id = $2 FOR SHARE";

/// The role of an account in a team; none when it is not a member or there is no such team.
pub async fn member_role(
    db: &Db,
    team: TeamId,
    account: AccountId,
) -> Result<Option<Role>, StoreError> {
    let row: Option<RoleRow> = db
        .read(ROLE)
        .bind(team)
        .bind(account)
        .fetch_optional()
        .await?;
    Ok(row.map(|row| row.0))
}

/// The same inside a transaction that depends on it: the role is locked until the commit.
pub async fn current_role(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
) -> Result<Option<Role>, StoreError> {
    // Where writers run beside each other, a snapshot alone would let a transaction that began before a
    // demotion commit after it. The row lock makes one of them wait or begin again.
    let sql = if tx.has_many_writers() {
        ROLE_FOR_SHARE
    } else {
        ROLE
    };
    let row: Option<RoleRow> = tx
        .query(sql)
        .bind(team)
        .bind(account)
        .fetch_optional()
        .await?;
    Ok(row.map(|row| row.0))
}

/// Adds a member; [`StoreError::Duplicate`] when the account is one already.
pub async fn insert_member(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
    role: Role,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO team_members (team_id, account_id, role, joined_at) VALUES ($1, $2, $3, $4)",
    )
    .bind(team)
    .bind(account)
    .bind(role.as_str())
    .bind(now)
    .execute()
    .await
    .map(drop)
}

/// A page of a team's members, in the order in which they joined, after the member `after`.
pub async fn list_members(
    db: &Db,
    team: TeamId,
    after: Option<AccountId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Member>, StoreError> {
    db.read(
        "SELECT a.id, a.email, a.fullname, m.role
         FROM team_members m JOIN accounts a ON a.id = m.account_id
         WHERE m.team_id = $1 AND ($2 = '' OR (m.joined_at, m.account_id) >
             (SELECT joined_at, account_id FROM team_members WHERE team_id = $1 AND account_id = $2))
         ORDER BY m.joined_at, m.account_id LIMIT $3 OFFSET $4",
    )
    .bind(team)
    .bind(after.map_or_else(String::new, |id| id.to_string()))
    .bind(count)
    .bind(i64::try_from(skip).unwrap_or(i64::MAX))
    .fetch_all()
    .await
}

/// One member of a team.
pub async fn read_member(
    db: &Db,
    team: TeamId,
    account: AccountId,
) -> Result<Option<Member>, StoreError> {
    db.read(
        "SELECT a.id, a.email, a.fullname, m.role
         FROM team_members m JOIN accounts a ON a.id = m.account_id
         WHERE m.team_id = $1 AND m.account_id = $2",
    )
    .bind(team)
    .bind(account)
    .fetch_optional()
    .await
}

/// Whether a team has another owner than `account` who is not locked out.
pub async fn has_other_owner(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
) -> Result<bool, StoreError> {
    tx.query(
        "SELECT EXISTS (SELECT 1 FROM team_members m JOIN accounts a ON a.id = m.account_id
         WHERE m.team_id = $1 AND m.role = $2 AND m.account_id <> $3 AND NOT a.disabled)",
    )
    .bind(team)
    .bind(Role::Owner.as_str())
    .bind(account)
    .fetch_one()
    .await
}

/// How many teams an account owns.
pub async fn count_owned_teams(tx: &mut Tx, account: AccountId) -> Result<u64, StoreError> {
    tx.query("SELECT COUNT(*) FROM team_members WHERE account_id = $1 AND role = $2")
        .bind(account)
        .bind(Role::Owner.as_str())
        .fetch_one()
        .await
}

/// Gives a member another role.
pub async fn set_role(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
    role: Role,
) -> Result<(), StoreError> {
    tx.query("UPDATE team_members SET role = $3 WHERE team_id = $1 AND account_id = $2")
        .bind(team)
        .bind(account)
        .bind(role.as_str())
        .execute()
        .await
        .map(drop)
}

/// Removes a member.
pub async fn delete_member(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
) -> Result<(), StoreError> {
    tx.query("DELETE FROM team_members WHERE team_id = $1 AND account_id = $2")
        .bind(team)
        .bind(account)
        .execute()
        .await
        .map(drop)
}
