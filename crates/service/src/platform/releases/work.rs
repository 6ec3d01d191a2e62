//! What is done for a release in each of its states.
//!
//! A step may be repeated: by a worker that takes over after a crash, and it may be dropped at any
//! await when the claim is lost. So every step must be safe to begin again.

use super::build::{broken, build_files, is_built, use_image};
use super::claim::{Claim, Luggage};
use super::compress::{MissingVariants, PreparedVariants};
use super::create::open_settings;
use super::site_rules::check_rules;
use super::transition::Failure;
use super::unpack::unpack_source;
use crate::Error;
use crate::platform::containers::{BringUpError, bring_up};
use crate::platform::envs::seal_release_env;
use estrade_model::platform::Platform;
use estrade_model::release::ReleaseState;
use estrade_store::routes::LiveRow;
use std::sync::Arc;

/// Lines of a failure that the build log has, too.
const MOST_LINES: usize = 50;
/// Compressing this many bytes takes longer than writing down that it has begun.
const MIN_BYTES_TO_REPORT: u64 = 1 << 20;

/// Why a release does not go on.
pub(super) enum Halt {
    /// It ends here.
    Failed(Failure),
    /// It ends here, and not as FAILED.
    Ended(ReleaseState, Failure),
    /// Somebody else ended it or took it over.
    Lost,
    /// It needs a turn at building, and none was taken for it.
    NeedsBuild,
    /// We could not; the lease runs out and the release is taken up again.
    Broken(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// How the work on a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// It is finished, or somebody else's.
    Settled,
    /// It must be built first, and waits for a turn.
    NeedsBuild,
}

/// Brings a claimed release to a terminal state, from wherever it stands.
pub(super) async fn carry_out(claim: Claim) -> crate::Result<Done> {
    let mut journey = Journey::from(claim);
    let halt = match run(&mut journey).await {
        Err(Halt::Failed(failure)) => journey.fail(ReleaseState::Failed, failure).await.err(),
        Err(Halt::Ended(state, failure)) => journey.fail(state, failure).await.err(),
        other => other.err(),
    };
    match halt {
        None => Ok(Done::Settled),
        Some(Halt::Lost) => {
            tracing::debug!(release = %journey.claim.release(), "the release is not ours any more");
            Ok(Done::Settled)
        }
        Some(Halt::NeedsBuild) => Ok(Done::NeedsBuild),
        Some(Halt::Failed(failure) | Halt::Ended(_, failure)) => {
            Err(Error::internal(failure.message))
        }
        Some(Halt::Broken(error)) => Err(error),
    }
}

async fn run(journey: &mut Journey) -> Result<(), Halt> {
    journey.enter(ReleaseState::Building);
    if journey.at() == ReleaseState::Building {
        build(journey).await?;
        journey.claim.end_turn();
        compress(journey).await?;
        journey.enter(ReleaseState::Deploying);
    }
    deploy(journey).await?;
    journey.enter(ReleaseState::Ready);
    journey.settle(None).await
}

/// BUILDING: makes what will be served. Files of a static site are served as they came, those of an
/// archive are unpacked, unless an earlier worker came that far.
///
/// Work that takes time belongs after a `journey.settle(None).await?`, which makes the state visible
/// before the work begins.
async fn build(journey: &mut Journey) -> Result<(), Halt> {
    if journey.claim.recipe().platform != Platform::Static {
        return make(journey).await;
    }
    let recipe = journey.claim.recipe();
    match (recipe.artifact, recipe.source) {
        (Some(_), _) => Ok(()),
        (None, Some(source)) => {
            journey.settle(None).await?;
            unpack_source(&mut journey.claim, source).await
        }
        (None, None) => Err(Halt::Failed(source_gone())),
    }
}

/// BUILDING what is not served as it came, unless an earlier release or worker made it.
async fn make(journey: &mut Journey) -> Result<(), Halt> {
    let recipe = journey.claim.recipe().clone();
    let (core, project) = (Arc::clone(journey.claim.core()), journey.claim.project());
    // A site that was built.
    if recipe.origin.is_some() {
        return Ok(());
    }
    if let Some(image) = recipe.built
        && is_built(&core, project, image).await?
    {
        return Ok(());
    }
    // Before anything is written down: waiting for a turn is PENDING, not BUILDING.
    if !journey.claim.may_build() {
        return Err(Halt::NeedsBuild);
    }
    journey.settle(None).await?;
    if let Some(name) = &recipe.image {
        return use_image(&mut journey.claim, name).await;
    }
    if let (None, Some(source)) = (recipe.artifact, recipe.source) {
        unpack_source(&mut journey.claim, source).await?;
    }
    match journey.claim.recipe().artifact {
        Some(files) => build_files(&mut journey.claim, files).await,
        None => Err(Halt::Failed(source_gone())),
    }
}

pub(super) fn source_gone() -> Failure {
    Failure {
        reason: "source_gone",
        message: "what this release was made of has been cleaned up; deploy the files again".into(),
    }
}

/// BUILDING, at its end: makes the compressed variants, unless an earlier release of the same did.
async fn compress(journey: &mut Journey) -> Result<(), Halt> {
    let recipe = journey.claim.recipe();
    let served = recipe.artifact.filter(|_| recipe.built.is_none());
    let (Some(artifact), false) = (served, journey.claim.is_compressed()) else {
        return Ok(());
    };
    let core = Arc::clone(journey.claim.core());
    check_rules(&core, artifact).await?;
    let missing = MissingVariants::find(&core, journey.claim.project(), artifact).await?;
    let made = if missing.bytes() < MIN_BYTES_TO_REPORT {
        missing.compress(&core).await?
    } else {
        let (made, ()) = tokio::try_join!(
            async { missing.compress(&core).await.map_err(Halt::Broken) },
            journey.settle(None),
        )?;
        made
    };
    journey.luggage.made = Some(made);
    Ok(())
}

/// DEPLOYING: gets this node ready to serve it; other nodes do so when they hear of the switch.
/// READY, which switches traffic, comes with the commit.
async fn deploy(journey: &mut Journey) -> Result<(), Halt> {
    if journey.claim.recipe().built.is_some() {
        // Instances of a release that is not DEPLOYING are taken for leftovers.
        journey.settle(None).await?;
        return put_in_place(&mut journey.claim).await;
    }
    let claim = &journey.claim;
    if let Some(publisher) = claim.core().publisher() {
        let release = LiveRow {
            release: claim.release(),
            runs: false,
            artifact: claim.recipe().artifact,
            site: claim.recipe().site.clone(),
            since: claim.core().now(),
            until: None,
        };
        let fresh = journey
            .luggage
            .made
            .as_ref()
            .map(PreparedVariants::variants);
        publisher
            .prepare(claim.project(), &release, fresh.unwrap_or_default())
            .await?;
    }
    Ok(())
}

/// DEPLOYING what runs: its instances are started, and can be reached once they are healthy.
async fn put_in_place(claim: &mut Claim) -> Result<(), Halt> {
    let core = Arc::clone(claim.core());
    if claim.recipe().env.is_none() {
        let settings = open_settings(&core, claim.project(), &claim.recipe().settings)?;
        let env = seal_release_env(&core, claim.project(), &settings).await?;
        if !claim.keep_env(env).await? {
            return Err(Halt::Lost);
        }
    }
    match bring_up(&core, claim.project(), claim.release()).await {
        Ok(()) => Ok(()),
        Err(BringUpError::Gone) => Err(Halt::Lost),
        Err(BringUpError::Refused(failure)) => Err(Halt::Failed(failure)),
        Err(BringUpError::Unhealthy(failure)) => Err(Halt::Ended(ReleaseState::Unhealthy, failure)),
        Err(BringUpError::Engine(error)) => Err(broken(error)),
        Err(BringUpError::Service(error)) => Err(Halt::Broken(error)),
    }
}

/// A release on its way: states that were entered but have no work in them yet are written
/// together, in one transaction.
struct Journey {
    claim: Claim,
    ahead: Vec<ReleaseState>,
    /// What is written down with the next step.
    luggage: Luggage,
}

impl Journey {
    fn from(claim: Claim) -> Self {
        Self {
            claim,
            ahead: Vec::new(),
            luggage: Luggage::default(),
        }
    }

    /// The state that the release is in, or will be at the next [`settle`](Self::settle).
    fn at(&self) -> ReleaseState {
        self.ahead.last().copied().unwrap_or(self.claim.state())
    }

    /// Goes on to `state`, unless an earlier worker came that far already.
    fn enter(&mut self, state: ReleaseState) {
        if self.at().may_become(state) {
            self.ahead.push(state);
        }
    }

    /// Writes down how far the release has come.
    async fn settle(&mut self, failure: Option<Failure>) -> Result<(), Halt> {
        let steps = std::mem::take(&mut self.ahead);
        if steps.is_empty() {
            return Ok(());
        }
        let luggage = std::mem::take(&mut self.luggage);
        if self.claim.advance_with(&steps, failure, luggage).await? {
            return Ok(());
        }
        Err(Halt::Lost)
    }

    async fn fail(&mut self, state: ReleaseState, failure: Failure) -> Result<(), Halt> {
        for (at, line) in failure.message.lines().take(MOST_LINES).enumerate() {
            let begin = if at == 0 { "Failed: " } else { "" };
            self.luggage.said.say(format!("{begin}{line}"));
        }
        self.enter(state);
        self.settle(Some(failure)).await
    }
}
