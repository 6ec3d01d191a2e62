//! What is done for a release in each of its states.
//!
//! A step may be repeated: by a worker that takes over after a crash, and it may be dropped at any
//! await when the claim is lost. So every step must be safe to begin again.

use super::build::{Built, CacheJob, broken, build_files, is_built, use_image};
use super::claim::{Claim, PendingCommit};
use super::compress::{EagerCompressor, MissingVariants, PreparedVariants};
use super::sealed_settings::open_settings;
use super::site_rules::check_rules;
use super::step_error::{StepError, source_gone};
use super::transition::Failure;
use super::unpack::unpack_source;
use crate::Error;
use crate::platform::containers::{BringUpError, Fleet, bring_up};
use crate::platform::envs::seal_release_env;
use estrade_model::platform::Platform;
use estrade_model::release::ReleaseState;
use estrade_store::routes::LiveRow;
use std::sync::Arc;

/// Lines of a failure that the build log has, too.
const MAX_LINES: usize = 50;
/// Compressing this many bytes takes longer than writing down that it has begun.
const MIN_BYTES_TO_REPORT: u64 = 1 << 20;

/// How a builder of images ends its output. Public clients look for it: until they have seen it, they answer Ctrl-C by
/// canceling the release, also when all they do is to show the logs of what is READY.
const BUILD_END: &str = "Successfully tagged";

/// How the work on a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunOutcome {
    /// It is finished, or the lease was lost.
    Settled,
    /// It must be built first, and waits for a build slot.
    NeedsBuild,
}

/// Brings a claimed release to a terminal state, from wherever it stands.
pub(super) async fn run_release(
    claim: Claim,
    fleet: &Fleet,
    eager_compressor: &EagerCompressor,
) -> crate::Result<RunOutcome> {
    let mut run = ReleaseRun {
        claim,
        fleet,
        eager_compressor,
        entered: Vec::new(),
        pending: PendingCommit::default(),
        cache: None,
    };
    let error = match run_steps(&mut run).await {
        Err(StepError::Failed(failure)) => run.fail(ReleaseState::Failed, failure).await.err(),
        Err(StepError::Ended(state, failure)) => run.fail(state, failure).await.err(),
        other => other.err(),
    };
    match error {
        None => Ok(RunOutcome::Settled),
        Some(StepError::Lost) => {
            tracing::debug!(release = %run.claim.release(), "the release is not ours any more");
            Ok(RunOutcome::Settled)
        }
        Some(StepError::NeedsBuild) => Ok(RunOutcome::NeedsBuild),
        Some(StepError::Failed(failure) | StepError::Ended(_, failure)) => {
            Err(Error::internal(failure.message))
        }
        Some(StepError::Broken(error)) => Err(error),
    }
}

async fn run_steps(run: &mut ReleaseRun<'_>) -> Result<(), StepError> {
    run.enter(ReleaseState::Building);
    if run.state() == ReleaseState::Building {
        build(run).await?;
        run.claim.release_build_slot();
        compress(run).await?;
        run.enter(ReleaseState::Deploying);
    }
    deploy(run).await?;
    run.enter(ReleaseState::Ready);
    run.commit(None).await?;
    if let Some(cache) = run.cache.take() {
        run.fleet.package_caches.push(cache);
    }
    Ok(())
}

/// BUILDING: makes what will be served. Files of a static site are served as they came, those of an
/// archive are unpacked, unless an earlier worker came that far.
///
/// Work that takes time belongs after a `run.commit(None).await?`, which makes the state visible
/// before the work begins.
async fn build(run: &mut ReleaseRun<'_>) -> Result<(), StepError> {
    if run.claim.spec().platform != Platform::Static {
        return build_or_reuse(run).await;
    }
    let spec = run.claim.spec();
    match (spec.artifact, spec.source) {
        (Some(_), _) => Ok(()),
        (None, Some(source)) => {
            run.commit(None).await?;
            unpack_source(&mut run.claim, source).await?;
            run.push_build_end();
            Ok(())
        }
        (None, None) => Err(StepError::Failed(source_gone())),
    }
}

/// BUILDING what is not served as it came, unless an earlier release or worker made it.
async fn build_or_reuse(run: &mut ReleaseRun<'_>) -> Result<(), StepError> {
    let spec = run.claim.spec().clone();
    let (core, project) = (Arc::clone(run.claim.core()), run.claim.project());
    // A site that was built.
    if spec.origin.is_some() {
        return Ok(());
    }
    if let Some(image) = spec.built
        && is_built(&core, project, image).await?
    {
        return Ok(());
    }
    // Before anything is written down: waiting for a build slot is PENDING, not BUILDING.
    if !run.claim.may_build() {
        return Err(StepError::NeedsBuild);
    }
    run.commit(None).await?;
    if let Some(name) = &spec.image {
        return use_image(&mut run.claim, name).await;
    }
    if let (None, Some(source)) = (spec.artifact, spec.source) {
        unpack_source(&mut run.claim, source).await?;
    }
    match run.claim.spec().artifact {
        Some(files) => {
            match build_files(&mut run.claim, files).await? {
                Built::AsSent => run.push_build_end(),
                Built::ByEngine(cache) => run.cache = cache,
            }
            Ok(())
        }
        None => Err(StepError::Failed(source_gone())),
    }
}

/// BUILDING, at its end: makes the compressed variants, unless an earlier release of the same did.
async fn compress(run: &mut ReleaseRun<'_>) -> Result<(), StepError> {
    let spec = run.claim.spec();
    let served = spec.artifact.filter(|_| spec.built.is_none());
    let (Some(artifact), false) = (served, run.claim.is_compressed()) else {
        return Ok(());
    };
    let (core, eager) = (Arc::clone(run.claim.core()), run.eager_compressor);
    check_rules(&core, artifact).await?;
    let missing = MissingVariants::find(&core, run.claim.project(), artifact).await?;
    let made = if missing.bytes() < MIN_BYTES_TO_REPORT {
        missing.compress(&core, eager).await?
    } else {
        let (made, ()) = tokio::try_join!(
            async {
                missing
                    .compress(&core, eager)
                    .await
                    .map_err(StepError::Broken)
            },
            run.commit(None),
        )?;
        made
    };
    run.pending.made = Some(made);
    Ok(())
}

/// DEPLOYING: gets this node ready to serve it; other nodes do so when the change feed reports the switch.
/// READY, which switches traffic, comes with the commit.
async fn deploy(run: &mut ReleaseRun<'_>) -> Result<(), StepError> {
    if run.claim.spec().built.is_some() {
        // Instances of a release that is not DEPLOYING are taken for leftovers.
        run.commit(None).await?;
        return start_instances(run.fleet, &mut run.claim).await;
    }
    let claim = &run.claim;
    if let Some(publisher) = run.fleet.publisher.get() {
        let release = LiveRow {
            release: claim.release(),
            runs: false,
            artifact: claim.spec().artifact,
            site: claim.spec().site.clone(),
            since: claim.core().now(),
            until: None,
        };
        let fresh = run.pending.made.as_ref().map(PreparedVariants::variants);
        publisher
            .prepare(claim.project(), &release, fresh.unwrap_or_default())
            .await?;
    }
    Ok(())
}

/// DEPLOYING what runs: its instances are started, and can be reached once they are healthy.
async fn start_instances(fleet: &Fleet, claim: &mut Claim) -> Result<(), StepError> {
    let core = Arc::clone(claim.core());
    if claim.spec().env.is_none() {
        let settings = open_settings(&core, claim.project(), &claim.spec().settings)?;
        let env = seal_release_env(&core, claim.project(), &settings).await?;
        if !claim.keep_env(env).await? {
            return Err(StepError::Lost);
        }
    }
    match bring_up(fleet, claim.project(), claim.release()).await {
        Ok(()) => Ok(()),
        Err(BringUpError::Gone) => Err(StepError::Lost),
        Err(BringUpError::Refused(failure)) => Err(StepError::Failed(failure)),
        Err(BringUpError::Unhealthy(failure)) => {
            Err(StepError::Ended(ReleaseState::Unhealthy, failure))
        }
        Err(BringUpError::Engine(error)) => Err(broken(error)),
        Err(BringUpError::Service(error)) => Err(StepError::Broken(error)),
    }
}

/// One worker's pass over a release. States that were entered but have no work in them yet are committed
/// together, in one transaction.
struct ReleaseRun<'r> {
    claim: Claim,
    fleet: &'r Fleet,
    eager_compressor: &'r EagerCompressor,
    entered: Vec<ReleaseState>,
    /// Committed with the next state change.
    pending: PendingCommit,
    /// What the package manager has left behind, to be kept once the release is READY.
    cache: Option<CacheJob>,
}

impl ReleaseRun<'_> {
    /// The state that the release is in, or will be at the next [`commit`](Self::commit).
    fn state(&self) -> ReleaseState {
        self.entered.last().copied().unwrap_or(self.claim.state())
    }

    /// Goes on to `state`, unless an earlier worker came that far already.
    fn enter(&mut self, state: ReleaseState) {
        if self.state().may_become(state) {
            self.entered.push(state);
        }
    }

    /// Ends the build log as a builder of images does.
    fn push_build_end(&mut self) {
        let release = self.claim.release();
        self.pending.log.push(format!("{BUILD_END} {release}"));
    }

    /// Commits the states that were entered.
    async fn commit(&mut self, failure: Option<Failure>) -> Result<(), StepError> {
        let steps = std::mem::take(&mut self.entered);
        if steps.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        if self.claim.advance_with(&steps, failure, pending).await? {
            return Ok(());
        }
        Err(StepError::Lost)
    }

    async fn fail(&mut self, state: ReleaseState, failure: Failure) -> Result<(), StepError> {
        for (at, line) in failure.message.lines().take(MAX_LINES).enumerate() {
            let begin = if at == 0 { "Failed: " } else { "" };
            self.pending.log.push(format!("{begin}{line}"));
        }
        self.enter(state);
        self.commit(Some(failure)).await
    }
}
