//! Teams, their members and invitations.

use crate::{Db, StoreError};
use estrade_model::team::Role;
use estrade_model::{AccountId, TeamId};

/// The role of an account in a team; none when it is not a member or there is no such team.
pub async fn member_role(
    db: &Db,
    team: TeamId,
    account: AccountId,
) -> Result<Option<Role>, StoreError> {
    let role: Option<String> = db
        .read("SELECT role FROM team_members WHERE team_id = $1 AND account_id = $2")
        .bind(team)
        .bind(account)
        .fetch_optional()
        .await?;
    role.map(|text| text.parse().map_err(StoreError::bug))
        .transpose()
}
