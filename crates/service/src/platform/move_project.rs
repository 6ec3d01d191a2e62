//! Moving a project to a team.

use crate::audit::PendingEntry;
use crate::identity::access::Operation;
use crate::platform::project_lookup::{NOT_FOUND, parse_key};
use crate::{Core, Error, Result, Scope};
use estrade_model::audit::Action;
use estrade_model::platform::Platform;
use estrade_model::team::Role;
use estrade_model::{AccountId, OwnerId, TeamId};
use estrade_store::projects::{self, ProjectRow};
use estrade_store::quotas::{self, Counted};
use estrade_store::{ChangeKind, StoreError, Tx, disks, domains, members, networks};

/// Gives a project to a team of the caller's, with its releases, variables and domains; returns its name.
///
/// The caller may delete projects where it is, and create them where it goes. It must not run in containers
/// meanwhile, which belong to a network of their owner, nor have disks, which do as well.
pub async fn move_project(
    core: &Core,
    scope: &Scope,
    project: &str,
    team: TeamId,
) -> Result<String> {
    let permission = scope.require(Operation::WritePlatform, Role::Admin)?;
    let (key, from, account) = (
        parse_key(project)?,
        permission.projects(),
        scope.caller.account,
    );
    let to: OwnerId = team.cast();
    if from.owner() == to {
        return Err(Error::conflict(
            "same_owner",
            "the project is there already",
        ));
    }
    let now = core.now();
    let caller = &scope.caller;
    let arrival = PendingEntry::of(core, caller, to, Action::MoveProject, team)?;
    let departure = PendingEntry::of(core, caller, from.owner(), Action::MoveProject, team)?;
    let quotas = (core.settings.quotas.projects, core.settings.quotas.domains);
    permission
        .transact(core, move |tx| {
            let (key, arrival, departure) = (key.clone(), arrival.clone(), departure.clone());
            Box::pin(async move {
                let row = projects::find_project(tx, from, &key).await?;
                let row = row.ok_or(NOT_FOUND)?;
                require_developer(tx, team, account).await?;
                require_movable(tx, &row).await?;
                hand_over(tx, &row, from.owner(), to, quotas).await?;
                tx.changed(ChangeKind::Route, row.id, now).await?;
                tx.changed(ChangeKind::Project, row.id, now).await?;
                arrival.on(row.id, &row.name).write(tx).await?;
                let departure = departure.on(row.id, &row.name);
                departure.detail(team.to_string()).write(tx).await?;
                Ok(row.name)
            })
        })
        .await
}

async fn require_developer(tx: &mut Tx, team: TeamId, account: AccountId) -> Result<()> {
    let role = members::current_role(tx, team, account).await?;
    let role = role.ok_or(Error::NotFound("the team"))?;
    if role < Role::Developer {
        return Err(Error::Forbidden(
            "this needs the role developer in the team that gets the project".into(),
        ));
    }
    Ok(())
}

async fn require_movable(tx: &mut Tx, row: &ProjectRow) -> Result<()> {
    if projects::has_unfinished_release(tx, row.id).await? {
        return Err(Error::conflict(
            "release_in_progress",
            "a release of this project is on its way; wait for it or cancel it",
        ));
    }
    if disks::find_reserved_space(tx, row.id).await? > 0 {
        return Err(Error::conflict(
            "project_has_disks",
            "a project with disks cannot move: what is on them would stay behind; delete its disks first",
        ));
    }
    let is_running = row.platform != Platform::Static && row.current_release.is_some();
    if is_running && row.scale > 0 {
        return Err(Error::conflict(
            "project_running",
            "the project runs in the network of its owner; scale it to 0, move it, and scale it up again",
        ));
    }
    Ok(())
}

async fn hand_over(
    tx: &mut Tx,
    row: &ProjectRow,
    from: OwnerId,
    to: OwnerId,
    (max_projects, max_domains): (u64, u64),
) -> Result<()> {
    if !quotas::count_up(tx, to, Counted::Projects, max_projects).await? {
        return Err(Error::Quota {
            what: "projects of the team",
            limit: max_projects,
        });
    }
    quotas::count_down(tx, from, Counted::Projects).await?;
    let network = networks::find_network(tx, to, networks::DEFAULT).await?;
    let network = network.ok_or(Error::NotFound("the network of the team"))?;
    match projects::set_owner(tx, row.id, to, network.id).await {
        Err(StoreError::Duplicate) => {
            return Err(Error::conflict(
                "domain_exists",
                "the team has a domain of this project already; delete one of them first",
            ));
        }
        other => other?,
    }
    if max_domains > 0 && domains::count_of_owner(tx, to).await? > max_domains {
        return Err(Error::Quota {
            what: "domains of the team",
            limit: max_domains,
        });
    }
    Ok(())
}
