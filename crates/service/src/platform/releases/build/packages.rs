//! What package managers have downloaded in builds is kept for the next ones: after a release is READY, so that nobody
//! waits for it, a few at a time, and one of an owner.

use super::bases::Packages;
use crate::platform::containers::{is_disk_low, ran_out};
use crate::platform::releases::claim::Claim;
use crate::{Core, Result};
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_model::{OwnerId, ReleaseId};
use estrade_runtime::{BuiltCache, SavedCache};
use estrade_store::images;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many caches are saved at once.
const MAX_SAVING: usize = 2;
/// How many wait for it; what comes then is not kept.
const MAX_WAITING: usize = 64;
/// How many of one owner wait; the oldest gives way.
const MAX_WAITING_OF_OWNER: usize = 4;

/// The output of the step that installs.
pub(super) struct InstallStep {
    /// How the line begins that announces it.
    begins: String,
    is_now: bool,
    is_cached: bool,
}

impl InstallStep {
    pub(super) fn new(packages: &Packages) -> Self {
        Self {
            begins: format!("Step {}/", packages.step),
            is_now: false,
            is_cached: false,
        }
    }

    /// Reads a line of the engine.
    pub(super) fn read(&mut self, line: &str) {
        if line.starts_with("Step ") && line.contains(" : ") {
            self.is_now = line.starts_with(&self.begins);
        } else if self.is_now && line.trim() == "---> Using cache" {
            self.is_cached = true;
        }
    }

    /// Whether a layer of an earlier build was used.
    pub(super) fn is_cached(&self) -> bool {
        self.is_cached
    }
}

/// A cache to be kept.
#[derive(Debug)]
pub(in crate::platform::releases) struct CacheJob {
    owner: OwnerId,
    built: BuiltCache,
}

impl CacheJob {
    pub(super) fn new(claim: &Claim, owner: OwnerId, packages: Packages) -> Self {
        let built = BuiltCache {
            key: packages.key,
            release: claim.release(),
            stage: packages.stage,
            max_bytes: claim.core().settings.containers.build_cache,
        };
        Self { owner, built }
    }

    fn release(&self) -> ReleaseId {
        self.built.release
    }
}

/// Caches that wait to be kept.
#[derive(Debug, Default)]
pub(crate) struct CacheQueue {
    waiting: Mutex<VecDeque<CacheJob>>,
    added: Notify,
}

impl CacheQueue {
    /// Adds one. It replaces one of the same project.
    pub(in crate::platform::releases) fn push(&self, job: CacheJob) {
        let mut waiting = self.waiting.lock_ignoring_poison();
        waiting.retain(|it| it.built.key.project != job.built.key.project);
        let of_owner = || {
            waiting
                .iter()
                .enumerate()
                .filter(|(_, it)| it.owner == job.owner)
        };
        if of_owner().count() >= MAX_WAITING_OF_OWNER {
            let oldest = of_owner().next().map(|(at, _)| at);
            oldest.and_then(|at| waiting.remove(at));
        }
        if waiting.len() < MAX_WAITING {
            waiting.push_back(job);
            self.added.notify_one();
        }
    }

    /// The next one of an owner who is not among these.
    fn take(&self, busy: &HashSet<OwnerId>) -> Option<CacheJob> {
        let mut waiting = self.waiting.lock_ignoring_poison();
        let at = waiting.iter().position(|it| !busy.contains(&it.owner));
        waiting.remove(at?)
    }
}

/// Keeps caches until `stop`; those that are not whole by then are not kept.
pub(in crate::platform::releases) async fn save_caches(
    core: &Core,
    queue: &CacheQueue,
    stop: &CancellationToken,
) {
    let mut saving = FuturesUnordered::new();
    let mut busy = HashSet::new();
    loop {
        while saving.len() < MAX_SAVING
            && let Some(job) = queue.take(&busy)
        {
            busy.insert(job.owner);
            saving.push(async move {
                save(core, &job).await;
                job.owner
            });
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Some(owner) = saving.next() => { busy.remove(&owner); }
            () = queue.added.notified() => {}
        }
    }
}

async fn save(core: &Core, job: &CacheJob) {
    let (release, now) = (job.release(), core.now());
    if is_disk_low(core).await {
        tracing::info!(%release, "the disk is too full to keep a package cache");
        return;
    }
    let saved = tokio::select! {
        saved = core.image_builder.save_cache(&job.built, now) => Some(saved),
        () = ran_out(core) => None,
    };
    let Some(saved) = saved else {
        tracing::info!(%release, "the disk is too full to keep a package cache");
        return remove_if_gone(core, job).await;
    };
    match saved {
        Ok(SavedCache::Kept { bytes }) => {
            tracing::debug!(%release, bytes, "kept a package cache");
        }
        Ok(SavedCache::TooLarge) => {
            tracing::info!(%release, "a package cache is too large to be kept");
        }
        Ok(SavedCache::Missing) => {
            tracing::debug!(%release, "a build has left no package cache");
        }
        Err(error) => {
            let error = error_chain(&error);
            tracing::info!(%release, error, "cannot keep a package cache");
        }
    }
    remove_if_gone(core, job).await;
}

async fn remove_if_gone(core: &Core, job: &CacheJob) {
    if let Err(error) = remove_if_deleted(core, job).await {
        let (release, error) = (job.release(), error_chain(&error));
        tracing::info!(%release, error, "cannot look at a package cache again");
    }
}

/// Garbage collection may have looked for caches of a deleted project before this one was there.
async fn remove_if_deleted(core: &Core, job: &CacheJob) -> Result<()> {
    let project = [job.built.key.project];
    if images::known_projects(&core.db, &project).await?.is_empty() {
        core.image_builder.remove_caches(&project).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::ProjectId;
    use estrade_runtime::CacheKey;

    #[test]
    fn only_the_step_that_installs_counts() {
        let lines = |middle: &str| {
            let mut step = InstallStep {
                begins: "Step 3/".to_owned(),
                is_now: false,
                is_cached: false,
            };
            for line in [
                "Step 2/13 : LABEL a=b",
                " ---> Using cache",
                "Step 3/13 : RUN npm ci",
                middle,
                "Step 13/13 : CMD x",
                " ---> Using cache",
            ] {
                step.read(line);
            }
            step.is_cached()
        };
        assert!(lines(" ---> Using cache"));
        assert!(!lines(" ---> Running in 0123456789ab"));
    }

    fn job(owner: OwnerId, project: ProjectId, installs: &str) -> CacheJob {
        let key = CacheKey {
            project,
            label: "a=b".to_owned(),
            base: "sha256:1".parse().unwrap(),
            secrets: String::new(),
            installs: installs.to_owned(),
        };
        let built = BuiltCache {
            key,
            release: ReleaseId::generate(1, 1),
            stage: 0,
            max_bytes: 1,
        };
        CacheJob { owner, built }
    }

    #[test]
    fn one_of_an_owner_and_the_newest_of_a_project_is_saved() {
        let (queue, mut busy) = (CacheQueue::default(), HashSet::new());
        let (one, two) = (OwnerId::generate(1, 1), OwnerId::generate(1, 2));
        let projects: [ProjectId; 3] = std::array::from_fn(|_| ProjectId::generate(1, 1));
        queue.push(job(one, projects[0], "a"));
        queue.push(job(one, projects[0], "b"));
        queue.push(job(one, projects[1], "c"));
        queue.push(job(two, projects[2], "d"));
        let mut take = || {
            let job = queue.take(&busy)?;
            busy.insert(job.owner);
            Some(job.built.key.installs)
        };
        assert_eq!(take().as_deref(), Some("b"));
        assert_eq!(take().as_deref(), Some("d"));
        assert_eq!(take(), None);
        busy.clear();
        assert!(queue.take(&busy).is_some());
        let waiting = || queue.waiting.lock_ignoring_poison().len();
        let before = waiting();
        for _ in 0..2 * MAX_WAITING {
            queue.push(job(one, ProjectId::generate(1, 1), "x"));
        }
        assert!(waiting() <= before + MAX_WAITING_OF_OWNER);
        for number in 0..2 * MAX_WAITING {
            let owner = OwnerId::generate(2, number as u64);
            queue.push(job(owner, ProjectId::generate(1, 1), "x"));
        }
        assert_eq!(waiting(), MAX_WAITING);
    }
}
