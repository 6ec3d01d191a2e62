//! A claim: the right of one worker to move one release, for as long as its lease lasts.

use super::build_log::{BuildLog, note_warnings};
use super::build_slots::{BuildSlot, BuildSlots};
use super::compress::PreparedVariants;
use super::create::known_contents;
use super::incoming::cleaned_up;
use super::transition::{Failure, MAX_QUEUED, Transition, apply_transition, time_allowed};
use crate::{Core, Error, Result};
use estrade_blobs::{PublishedGuard, StoredBlob};
use estrade_model::release::ReleaseState;
use estrade_model::{OwnerId, ProjectId, ReleaseId};
use estrade_store::images::{self, ImageKey};
use estrade_store::manifest::Manifest;
use estrade_store::release_queue::{self, ClaimFilter, ClaimableRow, ClaimedRow};
use estrade_store::releases::ReleaseSpec;
use estrade_store::{artifacts, blob_rows};
use std::sync::Arc;
use std::time::Duration;

/// How long a claim lasts unless it is renewed.
const LEASE_DURATION: Duration = Duration::from_secs(5);

/// One release that this process works on. Dropping it changes nothing: another worker takes the
/// release over once the lease has run out.
pub struct Claim {
    core: Arc<Core>,
    row: ClaimedRow,
    /// Unique per claim and not per worker, so that a worker that was too slow cannot be confused
    /// with the same worker that claimed the release again.
    lease: String,
    /// The right to build it, while it is needed.
    build_slot: Option<BuildSlot>,
}

impl Claim {
    /// Claims up to `limit` releases that wait, or whose worker went away, whatever they wait for.
    pub async fn take(core: &Arc<Core>, limit: u32) -> Result<Vec<Self>> {
        let filter = ClaimFilter {
            engine: true,
            builds: true,
            per_owner: limit,
            limit,
        };
        let found = release_queue::claimable_releases(&core.db, core.now(), filter).await?;
        Self::take_these(core, found).await
    }

    /// Claims those of these releases that no other worker has claimed.
    pub(super) async fn take_these(
        core: &Arc<Core>,
        found: Vec<ClaimableRow>,
    ) -> Result<Vec<Self>> {
        let now = core.now();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let lease = core.new_id::<()>()?.to_string();
        let name = lease.clone();
        let begin = now.after(time_allowed(&core.settings, ReleaseState::Pending));
        let rows: Vec<ClaimedRow> = core
            .db
            .transact(move |tx| {
                let (found, lease) = (found.clone(), name.clone());
                Box::pin(async move {
                    let mut rows = Vec::new();
                    for ClaimableRow { id, follows, .. } in found {
                        if follows {
                            release_queue::follow_live(tx, id).await?;
                        }
                        let until = now.after(LEASE_DURATION);
                        let row =
                            release_queue::claim_release(tx, id, &lease, until, begin, now).await?;
                        rows.extend(row);
                    }
                    Ok::<_, Error>(rows)
                })
            })
            .await?;
        let claim = |row| Self {
            core: Arc::clone(core),
            row,
            lease: lease.clone(),
            build_slot: None,
        };
        Ok(rows.into_iter().map(claim).collect())
    }

    pub fn release(&self) -> ReleaseId {
        self.row.id
    }

    pub fn project(&self) -> ProjectId {
        self.row.project
    }

    /// Whose the project is.
    pub(super) fn owner(&self) -> OwnerId {
        self.row.owner
    }

    /// Takes a build slot.
    pub(super) fn take_build_slot(&mut self, slots: &Arc<BuildSlots>) {
        self.build_slot
            .get_or_insert_with(|| slots.take(self.row.owner));
    }

    /// Whether it may be built now: it has a build slot. One that it had before its worker went away is gone.
    pub(super) fn may_build(&self) -> bool {
        self.build_slot.is_some()
    }

    /// Gives the build slot back.
    pub(super) fn release_build_slot(&mut self) {
        self.build_slot = None;
    }

    /// Where the release stands.
    pub fn state(&self) -> ReleaseState {
        self.row.state
    }

    pub(super) fn spec(&self) -> &ReleaseSpec {
        &self.row.spec
    }

    /// Whether the quick variants of its artifact were made when it was claimed.
    pub(super) fn is_compressed(&self) -> bool {
        self.row.compressed
    }

    /// What the services share.
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The id of the lease, for its renewal.
    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    /// Moves the release through these states in one transaction; false when the claim was lost.
    pub async fn advance(
        &mut self,
        through: &[ReleaseState],
        failure: Option<Failure>,
    ) -> Result<bool> {
        self.advance_with(through, failure, PendingCommit::default())
            .await
    }

    /// The same, together with what must be committed with it.
    pub(super) async fn advance_with(
        &mut self,
        through: &[ReleaseState],
        failure: Option<Failure>,
        PendingCommit { log, made }: PendingCommit,
    ) -> Result<bool> {
        let (release, from, now) = (self.row.id, self.row.state, self.core.now());
        let (lease, steps) = (self.lease.clone(), through.to_vec());
        let last = steps.last().copied().unwrap_or(from);
        let deadline = now.after(time_allowed(&self.core.settings, last));
        let log = Arc::new(log);
        let rows = made.as_ref().map(|made| Arc::clone(&made.rows));
        let moved = self
            .core
            .db
            .transact(move |tx| {
                let (lease, steps, failure) = (lease.clone(), steps.clone(), failure.clone());
                let (log, rows) = (Arc::clone(&log), rows.clone());
                Box::pin(async move {
                    let way = Transition {
                        release,
                        from,
                        through: &steps,
                        lease: Some(&lease),
                        deadline,
                        failure: failure.as_ref(),
                    };
                    if !apply_transition(tx, &way, now).await? {
                        return Ok(false);
                    }
                    log.write(tx, release, now).await?;
                    if let Some(rows) = rows {
                        rows.insert(tx).await?;
                    }
                    Ok(true)
                })
            })
            .await;
        if let Some(made) = made {
            made.settle(&moved);
        }
        let moved = moved?;
        if let (true, Some(state)) = (moved, through.last()) {
            self.row.state = *state;
        }
        Ok(moved)
    }
}

/// Written in the same transaction as the next state change.
#[derive(Default)]
pub(super) struct PendingCommit {
    /// Lines for the build log.
    pub(super) log: BuildLog,
    pub(super) made: Option<PreparedVariants>,
}

/// What a source was built to.
pub(super) struct Built {
    pub(super) manifest: Manifest,
    /// Contents that are new.
    pub(super) new: Vec<StoredBlob>,
    /// Held until the transaction is over, even if its future is dropped.
    pub(super) _held: PublishedGuard,
    /// How it is served, as JSON; none as usual.
    pub(super) site: Option<String>,
    /// Lines of the build log that are committed with it.
    pub(super) log: BuildLog,
    /// What the maker of the release should know.
    pub(super) warnings: Vec<String>,
}

impl Claim {
    /// Notes lines of the build log at once.
    pub(super) async fn write_log(&self, log: BuildLog) -> Result<()> {
        let (release, now, log) = (self.row.id, self.core.now(), Arc::new(log));
        self.core
            .db
            .transact(move |tx| {
                let log = Arc::clone(&log);
                Box::pin(async move { log.write(tx, release, now).await })
            })
            .await
    }

    /// Makes an image the one that the release runs; false when the claim was lost.
    pub(super) async fn keep_image(
        &mut self,
        command: Option<String>,
        volumes: String,
        port: u16,
    ) -> Result<bool> {
        let (release, lease, now) = (self.row.id, self.lease.clone(), self.core.now());
        let key = ImageKey {
            project: self.row.project,
            release,
        };
        let kept = self
            .core
            .db
            .transact(move |tx| {
                let (lease, command) = (lease.clone(), command.clone());
                let volumes = volumes.clone();
                Box::pin(async move {
                    if !release_queue::holds_build(tx, release, &lease).await? {
                        return Ok::<_, Error>(false);
                    }
                    images::insert_image(tx, key, command.as_deref(), &volumes, now).await?;
                    release_queue::set_image(tx, release, release, port).await?;
                    Ok(true)
                })
            })
            .await?;
        if kept {
            self.row.spec.built = Some(release);
            self.row.spec.port = port;
        }
        Ok(kept)
    }

    /// Stores the environment of the release's instances; false when the claim was lost.
    pub(super) async fn keep_env(&mut self, sealed: Vec<u8>) -> Result<bool> {
        let (release, lease) = (self.row.id, self.lease.clone());
        let env = sealed.clone();
        let kept = self
            .core
            .db
            .transact(move |tx| {
                let (lease, env) = (lease.clone(), env.clone());
                Box::pin(async move {
                    Ok::<_, Error>(release_queue::set_env(tx, release, &lease, &env).await?)
                })
            })
            .await?;
        if kept {
            self.row.spec.env = Some(sealed);
        }
        Ok(kept)
    }

    /// Makes what was built the artifact of the release; false when the claim was lost.
    pub(super) async fn keep_build(&mut self, built: Built) -> Result<bool> {
        let artifact = self.core.new_id()?;
        // Files that another artifact was made of, as a front end that was built.
        let origin = self.row.spec.artifact;
        let site = built.site.clone();
        let known = known_contents(&built.manifest, &built.new);
        let (release, project, lease) = (self.row.id, self.row.project, self.lease.clone());
        let (now, built) = (self.core.now(), Arc::new((built, known)));
        let kept = self
            .core
            .db
            .transact(move |tx| {
                let (built, lease) = (Arc::clone(&built), lease.clone());
                Box::pin(async move {
                    let (built, known) = built.as_ref();
                    if !release_queue::holds_build(tx, release, &lease).await? {
                        return Ok(false);
                    }
                    if !blob_rows::keep_blobs(tx, &built.new, known).await? {
                        return Err(cleaned_up());
                    }
                    artifacts::insert_artifact(tx, artifact, project, &built.manifest).await?;
                    let site = built.site.as_deref();
                    release_queue::set_build(tx, release, artifact, origin, site).await?;
                    built.log.write(tx, release, now).await?;
                    note_warnings(tx, release, &built.warnings, now).await?;
                    Ok(true)
                })
            })
            .await?;
        if kept {
            self.row.spec.artifact = Some(artifact);
            self.row.spec.origin = origin;
            self.row.spec.site = site;
        }
        Ok(kept)
    }
}

/// A lease that is renewed in the background while the work goes on.
#[derive(Debug, Clone)]
pub(super) struct HeldLease {
    pub(super) release: ReleaseId,
    pub(super) lease: String,
}

/// Extends these leases and returns the releases whose lease was lost.
pub(super) async fn renew_leases(core: &Core, held: Vec<HeldLease>) -> Result<Vec<ReleaseId>> {
    let until = core.now().after(LEASE_DURATION);
    core.db
        .transact(move |tx| {
            let held = held.clone();
            Box::pin(async move {
                let mut lost = Vec::new();
                for HeldLease { release, lease } in held {
                    if !release_queue::renew_lease(tx, release, &lease, until).await? {
                        lost.push(release);
                    }
                }
                Ok(lost)
            })
        })
        .await
}

/// Puts a release that needs a build slot back into the queue: it waits there as if it had never been
/// claimed.
pub(super) async fn requeue(core: &Core, held: HeldLease) -> Result<()> {
    let allowed = i64::try_from(MAX_QUEUED.as_millis()).unwrap_or(i64::MAX);
    core.db
        .transact(move |tx| {
            let HeldLease { release, lease } = held.clone();
            Box::pin(async move {
                Ok(release_queue::requeue_release(tx, release, &lease, allowed).await?)
            })
        })
        .await
}

/// Gives leases back, so that another worker can go on at once.
pub(super) async fn drop_leases(core: &Core, held: Vec<HeldLease>) -> Result<()> {
    core.db
        .transact(move |tx| {
            let held = held.clone();
            Box::pin(async move {
                for HeldLease { release, lease } in held {
                    release_queue::drop_lease(tx, release, &lease).await?;
                }
                Ok(())
            })
        })
        .await
}
