//! Teams. Their members are in [`crate::members`], invitations in [`crate::invitations`].

use crate::accounts::insert_owner;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::team::Team;
use estrade_model::{AccountId, TeamId, Timestamp};

impl Record for Team {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
        })
    }
}

/// Adds a team without members.
pub async fn insert_team(tx: &mut Tx, team: &Team, now: Timestamp) -> Result<(), StoreError> {
    insert_owner(tx, team.id.cast()).await?;
    tx.query("INSERT INTO teams (id, name, created_at) VALUES ($1, $2, $3)")
        .bind(team.id)
        .bind(&team.name)
        .bind(now)
        .execute()
        .await
        .map(drop)
}

/// The team of that id.
pub async fn team_by_id(tx: &mut Tx, team: TeamId) -> Result<Option<Team>, StoreError> {
    tx.query("SELECT id, name FROM teams WHERE id = $1")
        .bind(team)
        .fetch_optional()
        .await
}

/// A page of the teams that an account is a member of, newest first.
pub async fn list_teams(
    db: &Db,
    account: AccountId,
    before: Option<TeamId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Team>, StoreError> {
    db.read(
        "SELECT t.id, t.name FROM team_members m JOIN teams t ON t.id = m.team_id
         WHERE m.account_id = $1 AND m.team_id < $2 ORDER BY m.team_id DESC LIMIT $3 OFFSET $4",
    )
    .bind(account)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// How many teams an account is a member of.
pub async fn count_teams(db: &Db, account: AccountId) -> Result<u64, StoreError> {
    db.read("SELECT COUNT(*) FROM team_members WHERE account_id = $1")
        .bind(account)
        .fetch_one()
        .await
}

/// Whether a team still owns projects or keys.
pub async fn owns_something(tx: &mut Tx, team: TeamId) -> Result<bool, StoreError> {
    tx.query(
        "SELECT EXISTS (SELECT 1 FROM projects WHERE owner_id = $1)
             OR EXISTS (SELECT 1 FROM keys WHERE owner_id = $1)",
    )
    .bind(team)
    .fetch_one()
    .await
}

/// Removes a team with its members, invitations, networks and workspaces; false when there is none.
///
/// [`StoreError::Reference`] when it owns projects or keys.
pub async fn delete_team(tx: &mut Tx, team: TeamId) -> Result<bool, StoreError> {
    for sql in [
        "DELETE FROM workspaces WHERE owner_id = $1",
        "DELETE FROM teams WHERE id = $1",
    ] {
        tx.query(sql).bind(team).execute().await?;
    }
    let gone = tx
        .query("DELETE FROM owners WHERE id = $1")
        .bind(team)
        .execute()
        .await?;
    Ok(gone > 0)
}
