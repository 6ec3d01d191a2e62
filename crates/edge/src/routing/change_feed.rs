//! Follows the change feed of the database, and brings the route table up to it.
//!
//! A change marks its route as stale right after the commit, before the change is acknowledged to its caller,
//! and is recorded as pending. The next request for the project or the follower in the background applies it,
//! whichever comes first.

use crate::routing::route::State;
use crate::routing::route_table::{Routes, lock};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_service::{Error, Result};
use estrade_store::routes::{self, NamedProject};
use estrade_store::{Change, ChangeKind};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the follower waits before it tries again what failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Routes {
    /// Keeps the table up to date until `stop`, so that requests rarely have to wait for it.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut failing = false;
        while stop
            .run_until_cancelled(self.wake.notified())
            .await
            .is_some()
        {
            let settled = self.apply_changes().await;
            if let Err(error) = &settled {
                if !failing {
                    tracing::warn!(error = error_chain(error), "cannot follow what is served");
                }
                let pause = tokio::time::sleep(RETRY_DELAY);
                stop.run_until_cancelled(pause).await;
                self.wake.notify_one();
            }
            failing = settled.is_err();
        }
    }

    pub(super) fn on_change(&self, change: &Change) {
        let mut dirty = lock(&self.dirty);
        match change.kind {
            ChangeKind::Route => {
                let Ok(project) = change.id.parse() else {
                    return;
                };
                if let Some(route) = self.projects().get(&project) {
                    route.hot.generation.mark_stale();
                }
                dirty.projects.insert(project);
            }
            ChangeKind::Everything => {
                self.projects()
                    .values()
                    .for_each(|route| route.hot.generation.mark_stale());
                dirty.everything = true;
            }
            _ => return,
        }
        self.any_dirty.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Applies the pending changes to the table. A project that cannot be read is left for the
    /// next time and does not keep the others waiting.
    pub(super) async fn apply_changes(&self) -> Result<()> {
        let _one_at_a_time = self.settling.lock().await;
        let pending = lock(&self.dirty).clone();
        if pending.everything {
            self.read_all().await?;
        }
        let (mut unsettled, mut outcome) = (HashSet::new(), Ok(()));
        for project in &pending.projects {
            if let Err(error) = self.apply_project_change(*project).await {
                unsettled.insert(*project);
                outcome = Err(error);
            }
        }
        // Changes that arrived meanwhile stay pending.
        let mut dirty = lock(&self.dirty);
        if pending.everything {
            dirty.everything = false;
        }
        dirty.projects.retain(|project| {
            let settled = pending.projects.contains(project) && !unsettled.contains(project);
            let stale = || {
                self.projects()
                    .get(project)
                    .is_some_and(|route| route.current().is_none())
            };
            !settled || stale()
        });
        self.any_dirty.store(!dirty.is_empty(), Ordering::Release);
        outcome
    }

    pub(super) async fn apply_project_change(&self, project: ProjectId) -> Result<()> {
        let known = self.projects().get(&project).cloned();
        let route = match known {
            Some(route) => route,
            None => match self
                .on_runtime(
                    move |core| async move { Ok(routes::read_route(&core.db, project).await?) },
                )
                .await?
            {
                Some(row) => {
                    let named = NamedProject {
                        id: project,
                        name: row.name,
                    };
                    self.add([named])
                        .into_iter()
                        .next()
                        .ok_or_else(|| Error::internal("no route"))?
                }
                None => return Ok(()),
            },
        };
        if route.current().is_none() {
            let live = self.refresh(&route).await?;
            if let State::Files(site) = &live.state {
                // Warms the cache for the first request; a failure is ignored, since that request loads it again.
                drop(self.sites.get(&site.row).await);
            }
        }
        Ok(())
    }
}
