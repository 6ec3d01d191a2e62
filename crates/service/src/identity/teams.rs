//! Teams: created, listed, deleted. Their members are in [`crate::identity::members`].

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::{Operation, require_in_team};
use crate::{Caller, Core, Error, Result};
use estrade_model::TeamId;
use estrade_model::audit::Action;
use estrade_model::team::{CreateTeam, Role, Team};
use estrade_store::{StoreError, Tx, former_names, members, networks, teams};

/// Makes a team; the caller becomes its owner. 403 `quota` when they own too many.
pub async fn create_team(core: &Core, caller: &Caller, new: CreateTeam) -> Result<Team> {
    let account = caller.require(Operation::WriteTeams)?;
    let (now, network) = (core.now(), core.new_id()?);
    let team = Team {
        id: core.new_id()?,
        name: new.name.into(),
    };
    let (row, quota) = (team.clone(), core.settings.quotas.teams);
    let actor = Actor::caller(caller);
    let note = PendingEntry::creation_by(actor, row.id.cast(), Action::CreateTeam, row.id, now);
    let note = note.about(&row.name);
    core.db
        .transact(move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move {
                if quota > 0 && members::count_owned_teams(tx, account).await? >= quota {
                    return Err(Error::Quota {
                        what: "teams",
                        limit: quota,
                    });
                }
                teams::insert_team(tx, &row, now).await?;
                members::insert_member(tx, row.id, account, Role::Owner, now).await?;
                let owner = row.id.cast();
                networks::insert_network(tx, owner, network, networks::DEFAULT, now).await?;
                note.write(tx).await
            })
        })
        .await?;
    Ok(team)
}

/// A page of the teams that the caller is a member of, newest first.
pub async fn list_teams(
    core: &Core,
    caller: &Caller,
    before: Option<TeamId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Team>> {
    let account = caller.require(Operation::ReadTeams)?;
    Ok(teams::list_teams(&core.db, account, before, count, skip).await?)
}

/// How many teams the caller is a member of.
pub async fn count_teams(core: &Core, caller: &Caller) -> Result<u64> {
    let account = caller.require(Operation::ReadTeams)?;
    Ok(teams::count_teams(&core.db, account).await?)
}

/// Deletes a team with its networks and workspaces; 409 while it owns projects or keys.
pub async fn delete_team(core: &Core, caller: &Caller, team: TeamId) -> Result<()> {
    let permission = require_in_team(core, caller, team, Role::Owner).await?;
    // In the caller's own log: nobody reads the team's any more.
    let own = caller.account.cast();
    let note = PendingEntry::of(core, caller, own, Action::DeleteTeam, team)?;
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                let named = teams::team_by_id(tx, team).await?;
                delete_empty_team(tx, team).await?;
                let name = named.map_or_else(String::new, |team| team.name);
                note.about(&name).write(tx).await
            })
        })
        .await
}

async fn delete_empty_team(tx: &mut Tx, team: TeamId) -> Result<()> {
    let not_empty = || {
        Error::conflict(
            "team_not_empty",
            "the team still owns projects or keys; delete them first",
        )
    };
    if teams::owns_something(tx, team).await? {
        return Err(not_empty());
    }
    former_names::free_names(tx, team.cast()).await?;
    match teams::delete_team(tx, team).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::NotFound("the team")),
        Err(StoreError::Reference) => Err(not_empty()),
        Err(error) => Err(error.into()),
    }
}
