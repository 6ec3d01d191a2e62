//! Custom domains in the route table.

use crate::routing::route::Route;
use crate::routing::route_table::{PAGE_SIZE, Routes, lock};
use estrade_model::domain::HostName;
use estrade_service::Result;
use estrade_store::domains::{self, ActiveDomain};
use std::collections::HashSet;
use std::sync::Arc;

impl Routes {
    /// Reads all custom domains.
    pub(super) async fn read_hosts(&self) -> Result<()> {
        let mut after: Option<HostName> = None;
        loop {
            let from = after.take();
            let page = self
                .on_runtime(move |core| async move {
                    Ok(domains::list_active_domains(&core.db, from.as_ref(), PAGE_SIZE).await?)
                })
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.name.clone());
            let mut found = Vec::new();
            for ActiveDomain { name, project } in page {
                // One that is not there is new, and will be announced.
                if let Some(route) = self.projects().get(&project) {
                    found.push((name.as_str().into(), Arc::clone(route)));
                    lock(&route.hosts).insert(name);
                }
            }
            self.hosts.extend(found);
        }
    }

    /// Makes exactly these domains lead to a project.
    ///
    /// Reads everything before it changes anything, so that a caller that is dropped in between (the client may
    /// have disconnected) leaves the table unchanged for the next one.
    pub(super) async fn set_hosts(&self, route: &Arc<Route>, hosts: Vec<HostName>) -> Result<()> {
        let new: HashSet<HostName> = hosts.into_iter().collect();
        let old = lock(&route.hosts).clone();
        let lost: Vec<HostName> = old.difference(&new).cloned().collect();
        // They may lead elsewhere by now, and we may have been slower than that.
        let names = lost.clone();
        let owners = self.on_runtime(move |core| async move {
            let mut owners = Vec::new();
            for name in names {
                owners.push(domains::project_of(&core.db, &name).await?);
            }
            Ok(owners)
        });
        let owners = if lost.is_empty() {
            Vec::new()
        } else {
            owners.await?
        };
        let added = new.difference(&old).map(|host| host.as_str().into());
        let added: Vec<_> = added.map(|host| (host, Arc::clone(route))).collect();
        *lock(&route.hosts) = new;
        self.hosts.extend(added);
        for (host, owner) in lost.into_iter().zip(owners) {
            self.hosts.remove(host.as_str(), route);
            let owner = owner.and_then(|project| self.projects().get(&project).cloned());
            if let Some(owner) = owner {
                self.hosts
                    .extend([(host.as_str().into(), Arc::clone(&owner))]);
                lock(&owner.hosts).insert(host);
                // If that is not so any more, it finds out before it serves.
                owner.hot.generation.mark_stale();
            }
        }
        Ok(())
    }
}
