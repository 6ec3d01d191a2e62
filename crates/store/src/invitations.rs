//! Invitations into teams: hashes of their links, addressees and expiry.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, value};
use estrade_model::id::kind;
use estrade_model::team::Role;
use estrade_model::{AccountId, Id, TeamId, Timestamp};

/// An invitation as stored.
#[derive(Debug, Clone)]
pub struct InvitationRow {
    pub id: Id<kind::Invitation>,
    /// Into which team.
    pub team: TeamId,
    /// For the account with this address, and no other.
    pub email: String,
    /// The role that the account will have.
    pub role: Role,
    /// Hash of the token in the link.
    pub secret_hash: [u8; 32],
    pub expires_at: Timestamp,
    /// The inviter: the invitation ends with their right to make it.
    pub invited_by: AccountId,
}

/// What an invitation grants.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// In which team.
    pub team: TeamId,
    pub role: Role,
    pub invited_by: AccountId,
}

impl Record for Grant {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            team: row.take()?,
            role: row.parse()?,
            invited_by: row.take()?,
        })
    }
}

/// Adds an invitation; it takes the place of an earlier one of the same address into the same team.
pub async fn insert_invitation(tx: &mut Tx, invitation: &InvitationRow) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO invitations (id, team_id, email, role, secret_hash, expires_at, invited_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (team_id, email) DO UPDATE SET id = excluded.id, role = excluded.role,
             secret_hash = excluded.secret_hash, expires_at = excluded.expires_at,
             invited_by = excluded.invited_by",
    )
    .bind(invitation.id)
    .bind(invitation.team)
    .bind(&invitation.email)
    .bind(invitation.role.as_str())
    .bind(invitation.secret_hash)
    .bind(invitation.expires_at)
    .bind(invitation.invited_by)
    .execute()
    .await
    .map(drop)
}

/// How many invitations into a team are open, besides one for `email`, which a new one replaces.
pub async fn count_open(
    tx: &mut Tx,
    team: TeamId,
    email: &str,
    now: Timestamp,
) -> Result<u64, StoreError> {
    tx.query(
        "SELECT COUNT(*) FROM invitations WHERE team_id = $1 AND email <> $2 AND expires_at > $3",
    )
    .bind(team)
    .bind(email)
    .bind(now)
    .fetch_one()
    .await
}

/// An invitation that is open, with what people see of it.
#[derive(Debug, Clone)]
pub struct OpenInvitation {
    pub id: Id<kind::Invitation>,
    pub team: TeamId,
    /// The team's name.
    pub team_name: String,
    pub email: String,
    pub role: Role,
    pub expires_at: Timestamp,
    pub invited_by: AccountId,
}

impl Record for OpenInvitation {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            team: row.take()?,
            team_name: row.take()?,
            email: row.take()?,
            role: row.parse()?,
            expires_at: row.take()?,
            invited_by: row.take()?,
        })
    }
}

macro_rules! select_open {
    ($condition:literal) => {
        concat!(
            "SELECT i.id, i.team_id, t.name, i.email, i.role, i.expires_at, i.invited_by
             FROM invitations i JOIN teams t ON t.id = i.team_id WHERE ",
            $condition
        )
    };
}

/// A page of the open invitations into a team, newest first.
pub async fn list_open(
    db: &Db,
    team: TeamId,
    now: Timestamp,
    before: Option<Id<kind::Invitation>>,
    count: u32,
) -> Result<Vec<OpenInvitation>, StoreError> {
    db.read(select_open!(
        "i.team_id = $1 AND i.expires_at > $2 AND i.id < $3 ORDER BY i.id DESC LIMIT $4"
    ))
    .bind(team)
    .bind(now)
    .bind(value::before(before))
    .bind(count)
    .fetch_all()
    .await
}

/// The open invitation of a link; it stays open.
pub async fn read_open(
    db: &Db,
    secret_hash: [u8; 32],
    now: Timestamp,
) -> Result<Option<OpenInvitation>, StoreError> {
    db.read(select_open!(
        "i.secret_hash = $1 AND i.expires_at > $2
         AND NOT EXISTS (SELECT 1 FROM accounts d WHERE d.id = i.invited_by AND d.disabled)"
    ))
    .bind(secret_hash)
    .bind(now)
    .fetch_optional()
    .await
}

/// Removes an invitation into a team; returns the address that it was for, none when there is no such invitation.
pub async fn delete_invitation(
    tx: &mut Tx,
    team: TeamId,
    id: Id<kind::Invitation>,
) -> Result<Option<String>, StoreError> {
    tx.query("DELETE FROM invitations WHERE team_id = $1 AND id = $2 RETURNING email")
        .bind(team)
        .bind(id)
        .fetch_optional()
        .await
}

/// Uses up an invitation and returns what it grants; none unless it is for `email` and still good. One of an
/// account that is locked out is not: it would be a way back in.
pub async fn take_invitation(
    tx: &mut Tx,
    secret_hash: [u8; 32],
    email: &str,
    now: Timestamp,
) -> Result<Option<Grant>, StoreError> {
    tx.query(
        "DELETE FROM invitations WHERE secret_hash = $1 AND email = $2 AND expires_at > $3
         AND NOT EXISTS (SELECT 1 FROM accounts d WHERE d.id = invited_by AND d.disabled)
         RETURNING team_id, role, invited_by",
    )
    .bind(secret_hash)
    .bind(email)
    .bind(now)
    .fetch_optional()
    .await
}

/// Removes what would let an account into a team (again), and what it gave out itself.
pub async fn delete_invitations_of(
    tx: &mut Tx,
    team: TeamId,
    account: AccountId,
) -> Result<(), StoreError> {
    tx.query(
        "DELETE FROM invitations
         WHERE team_id = $1
           AND (invited_by = $2 OR email = (SELECT email FROM accounts WHERE id = $2))",
    )
    .bind(team)
    .bind(account)
    .execute()
    .await
    .map(drop)
}

/// Removes up to `most` invitations that have ended; returns how many there were.
pub async fn prune_invitations(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM invitations WHERE id IN
               (SELECT id FROM invitations WHERE expires_at <= $1 LIMIT $2)";
    prune(db, sql, now, limit).await
}
