//! The route table as the services see it: they publish releases and addresses, and read traffic.

use crate::routing::route::Route;
use crate::routing::route_table::Routes;
use estrade_model::{ProjectId, ReleaseId};
use estrade_service::{Publisher, Result, Traffic};
use estrade_store::routes::LiveRow;
use estrade_store::variants::VariantRow;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

impl Publisher for Routes {
    fn traffic(&self, project: ProjectId) -> Option<Traffic> {
        let route = self.projects().get(&project).cloned()?;
        traffic_of(&route)
    }

    fn all_traffic(&self) -> Vec<(ProjectId, Traffic)> {
        let visited = self.visited();
        let counted = |route: &Arc<Route>| Some((route.project, traffic_of(route)?));
        visited.iter().filter_map(counted).collect()
    }

    fn prepare<'p>(
        &'p self,
        project: ProjectId,
        release: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> BoxFuture<'p, Result<()>> {
        Box::pin(self.sites.prepare(project, release, fresh))
    }

    fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> BoxFuture<'static, ()> {
        let draining = self.endpoints.publish(project, release, addresses);
        Box::pin(async move {
            draining.drained(limit).await;
        })
    }
}

fn traffic_of(route: &Route) -> Option<Traffic> {
    let counted = route.counters().snapshot()?;
    Some(Traffic {
        requests: counted.classes,
        bytes: counted.bytes,
        times: counted.buckets,
    })
}
