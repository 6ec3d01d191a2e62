//! A claim: the right of one worker to move one release, for as long as its lease lasts.

use super::transition::{Failure, Walk, walk};
use crate::{Core, Error, Result};
use estrade_model::release::ReleaseState;
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::release_queue::{self, ClaimedRow};
use estrade_store::releases::Recipe;
use std::sync::Arc;
use std::time::Duration;

/// How long a claim lasts unless it is renewed.
const LEASE: Duration = Duration::from_secs(5);

/// One release that this process works on. Dropping it changes nothing: another worker takes the
/// release over once the lease has run out.
pub struct Claim {
    core: Arc<Core>,
    row: ClaimedRow,
    /// Unique per claim and not per worker, so that a worker that was too slow cannot be confused
    /// with the same worker that claimed the release again.
    lease: String,
}

impl Claim {
    /// Claims up to `most` releases that wait, or whose worker went away.
    pub async fn take(core: &Arc<Core>, most: u32) -> Result<Vec<Self>> {
        let now = core.now();
        let found = release_queue::claimable_releases(&core.db, now, most).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let lease = core.new_id::<()>()?.to_string();
        let name = lease.clone();
        let rows: Vec<ClaimedRow> = core
            .db
            .transact(move |tx| {
                let (found, lease) = (found.clone(), name.clone());
                Box::pin(async move {
                    let mut rows = Vec::new();
                    for id in found {
                        let until = now.after(LEASE);
                        rows.extend(
                            release_queue::claim_release(tx, id, &lease, until, now).await?,
                        );
                    }
                    Ok::<_, Error>(rows)
                })
            })
            .await?;
        let claim = |row| Self {
            core: Arc::clone(core),
            row,
            lease: lease.clone(),
        };
        Ok(rows.into_iter().map(claim).collect())
    }

    /// What the services share.
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The release.
    pub fn release(&self) -> ReleaseId {
        self.row.id
    }

    /// Its project.
    pub fn project(&self) -> ProjectId {
        self.row.project
    }

    /// Where the release stands.
    pub fn state(&self) -> ReleaseState {
        self.row.state
    }

    /// What it runs.
    pub(super) fn recipe(&self) -> &Recipe {
        &self.row.recipe
    }

    /// What names the lease, for who renews it.
    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    /// Moves the release through these states in one transaction; false when the claim was lost.
    pub async fn advance(
        &mut self,
        through: &[ReleaseState],
        failure: Option<Failure>,
    ) -> Result<bool> {
        let (release, from, now) = (self.row.id, self.row.state, self.core.now());
        let (lease, steps) = (self.lease.clone(), through.to_vec());
        let moved = self
            .core
            .db
            .transact(move |tx| {
                let (lease, steps, failure) = (lease.clone(), steps.clone(), failure.clone());
                Box::pin(async move {
                    let way = Walk {
                        release,
                        from,
                        through: &steps,
                        lease: Some(&lease),
                        failure: failure.as_ref(),
                    };
                    walk(tx, &way, now).await
                })
            })
            .await?;
        if let (true, Some(state)) = (moved, through.last()) {
            self.row.state = *state;
        }
        Ok(moved)
    }
}

/// A lease that somebody keeps alive while the work goes on.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) release: ReleaseId,
    pub(super) lease: String,
}

/// Extends these leases and returns the releases whose lease was lost.
pub(super) async fn renew_leases(core: &Core, held: Vec<Held>) -> Result<Vec<ReleaseId>> {
    let until = core.now().after(LEASE);
    core.db
        .transact(move |tx| {
            let held = held.clone();
            Box::pin(async move {
                let mut lost = Vec::new();
                for Held { release, lease } in held {
                    if !release_queue::renew_lease(tx, release, &lease, until).await? {
                        lost.push(release);
                    }
                }
                Ok(lost)
            })
        })
        .await
}

/// Gives leases back, so that another worker can go on at once.
pub(super) async fn drop_leases(core: &Core, held: Vec<Held>) -> Result<()> {
    core.db
        .transact(move |tx| {
            let held = held.clone();
            Box::pin(async move {
                for Held { release, lease } in held {
                    release_queue::drop_lease(tx, release, &lease).await?;
                }
                Ok(())
            })
        })
        .await
}
