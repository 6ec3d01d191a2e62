//! Private networks.

use crate::audit::PendingEntry;
use crate::identity::access::Operation;
use crate::{Core, Error, Result, Scope};
use estrade_model::audit::Action;
use estrade_model::names::NetworkName;
use estrade_model::project::{Network, NetworkId};
use estrade_model::team::Role;
use estrade_store::{StoreError, networks};

const NOT_FOUND: Error = Error::NotFound("the network");

/// A page of the owner's networks, newest first.
pub async fn list_networks(
    core: &Core,
    scope: &Scope,
    before: Option<NetworkId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Network>> {
    Ok(networks::list_networks(
        &core.db,
        scope.read(Operation::ReadPlatform)?,
        before,
        count,
        skip,
    )
    .await?)
}

/// Makes a network; 409 when the owner has one of that name, 403 `quota` when they have too many.
pub async fn create_network(core: &Core, scope: &Scope, name: NetworkName) -> Result<Network> {
    let permission = scope.require(Operation::WritePlatform, Role::Developer)?;
    let network = Network {
        id: core.new_id()?,
        name: name.into(),
        created_at: core.now(),
    };
    let (owner, row, quota) = (
        permission.owner(),
        network.clone(),
        core.settings.quotas.networks,
    );
    let note = PendingEntry::creation(scope, Action::CreateNetwork, row.id, row.created_at);
    let note = note.about(&row.name);
    permission
        .transact(core, move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move {
                match networks::insert_network(tx, owner, row.id, &row.name, row.created_at).await {
                    Err(StoreError::Duplicate) => Err(Error::conflict(
                        "network_exists",
                        "you have a network of this name; choose another one",
                    )),
                    other => Ok(other?),
                }?;
                if quota > 0 && networks::count_networks(tx, owner).await? > quota {
                    return Err(Error::Quota {
                        what: "networks",
                        limit: quota,
                    });
                }
                note.write(tx).await
            })
        })
        .await?;
    Ok(network)
}

/// A network of the owner.
pub async fn read_network(core: &Core, scope: &Scope, id: NetworkId) -> Result<Network> {
    let owner = scope.read(Operation::ReadPlatform)?;
    let network = networks::read_network(&core.db, owner, id).await?;
    network.ok_or(NOT_FOUND)
}

/// Deletes a network; 409 when it is the default one, or a project is in it.
pub async fn delete_network(core: &Core, scope: &Scope, id: NetworkId) -> Result<()> {
    let permission = scope.require(Operation::WritePlatform, Role::Admin)?;
    let name = read_network(core, scope, id).await?.name;
    if name == networks::DEFAULT {
        return Err(Error::conflict(
            "network_default",
            "the network default stays: projects that name no other one are in it",
        ));
    }
    let note = PendingEntry::new(core, scope, Action::DeleteNetwork, id)?.about(&name);
    permission
        .transact(core, move |tx| {
            let note = note.clone();
            Box::pin(async move {
                if networks::is_used(tx, id).await? {
                    return Err(Error::conflict(
                        "network_in_use",
                        "a project is in this network; delete the project first",
                    ));
                }
                networks::delete_network(tx, id).await?;
                note.write(tx).await
            })
        })
        .await
}
