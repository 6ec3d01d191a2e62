//! BUILDING a release that is not served as it came: sources become an image that runs, or a site.

mod bases;
mod cause;
mod engine;
mod image;
mod live_log;
mod packages;
mod plain;
mod secrets;
mod sources;

use super::archive::{Archive, Packing};
use super::claim::Claim;
use super::create::requested_port;
use super::sealed_settings::open_settings;
use super::step_error::{StepError, source_gone};
use super::transition::Failure;
use super::unpack::{SiteTar, unpack_site};
use crate::platform::containers::ran_out;
use crate::{Core, Error};
use cause::{StepOutput, explain, refused};
use engine::{own_image, require_engine};
use estrade_buildpacks::{BuildPlan, Outcome, Settings, readable_step};
use estrade_model::error::error_chain;
use estrade_model::platform::Platform;
use estrade_model::release::ArtifactId;
use estrade_model::secret::Secret;
use estrade_model::site::SiteConfig;
use estrade_runtime::{BuildError, BuildSpec};
use estrade_store::artifacts;
use estrade_store::manifest::ManifestFile;
use estrade_store::workloads::{self, WorkloadRow};
use futures_util::StreamExt;
use live_log::LiveLog;
use packages::InstallStep;
use plain::serve_plain;
use secrets::{forms, is_secret};
use sources::StoredSources;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::io::SyncIoBridge;

pub(super) use engine::{broken, is_built};
pub(crate) use packages::CacheQueue;
pub(super) use packages::{CacheJob, save_caches};

/// How much of a site is between the engine and the blob store at once.
const COPY_BUFFER: usize = 256 * 1024;
/// How long a build waits for a removal that it met.
const REPEAT_PAUSE: Duration = Duration::from_secs(2);
/// What the log says before the first and the second repetition of a build that met one.
const REPEATS: [&str; 2] = [
    "A layer of an earlier build is gone; building once more",
    "A layer of an earlier build is gone; building once more without them",
];
/// What the engine prints before it runs anything.
const FIRST_STEP: &str = "Step 1/";
const NANOS_PER_CPU: u64 = 1_000_000_000;

/// How what a release runs or serves was made.
pub(super) enum Built {
    /// Nothing was built: it is served as it came.
    AsSent,
    /// By an engine, which may have a package manager's cache to keep.
    ByEngine(Option<CacheJob>),
}

/// Makes what a release runs or serves out of the files of an artifact.
pub(super) async fn build_files(claim: &mut Claim, files: ArtifactId) -> Result<Built, StepError> {
    let core = Arc::clone(claim.core());
    let mut sources = open_sources(claim, files).await?;
    if claim.spec().platform == Platform::Auto {
        let sent = sent_settings(claim)?;
        let workload = workload(claim).await?;
        match serve_plain(claim, sources, &sent, &workload.plan).await? {
            Some(to_build) => sources = to_build,
            None => return Ok(Built::AsSent),
        }
    }
    require_engine(&core).await?;
    let (plan, files) = plan_build(claim, sources).await?;
    let workload = workload(claim).await?;
    let mut log = LiveLog::new(claim);
    let build = Box::pin(build_image(claim, &workload, &plan, files, &mut log));
    let done = while_there_is_room(&core, build).await;
    // Why it failed matters more than a line of the log that could not be written.
    let flushed = log.flush().await;
    let cache = done?;
    flushed?;
    match &plan.outcome {
        Outcome::Runs { command, port } => keep_image(claim, command.as_deref(), *port).await,
        Outcome::Static { folder, spa, .. } => take_site(claim, &workload, folder, *spa).await,
    }?;
    Ok(Built::ByEngine(cache))
}

/// Makes a named image the one that a release runs.
pub(super) async fn use_image(claim: &mut Claim, name: &str) -> Result<(), StepError> {
    let core = Arc::clone(claim.core());
    require_engine(&core).await?;
    while_there_is_room(&core, Box::pin(image::fetch(claim, name))).await?;
    let settings = sent_settings(claim)?;
    let asked = requested_port(&settings);
    let settings = Settings::from_release(asked, &settings).map_err(refused)?;
    let port = port_of_image(claim, asked).await?;
    keep_image(claim, settings.args(), port).await
}

/// Does what takes room on the engine's disk, as long as there is some: a full one stops everybody.
async fn while_there_is_room<T>(
    core: &Core,
    work: impl Future<Output = Result<T, StepError>>,
) -> Result<T, StepError> {
    tokio::select! {
        done = work => done,
        () = ran_out(core) => Err(StepError::Failed(Failure {
            reason: "disk_full",
            message: "the disk of the container engine is nearly full; remove what is not needed and try again"
                .to_owned(),
        })),
    }
}

async fn open_sources(claim: &Claim, files: ArtifactId) -> Result<StoredSources, StepError> {
    let core = claim.core();
    let manifest = artifacts::read_manifest(&core.db, files).await;
    let manifest = manifest.map_err(Error::from)?;
    let manifest = manifest.ok_or_else(|| StepError::Failed(source_gone()))?;
    StoredSources::open(core, manifest).await
}

async fn plan_build(
    claim: &Claim,
    sources: StoredSources,
) -> Result<(BuildPlan, Vec<ManifestFile>), StepError> {
    let core = claim.core();
    let sent = sent_settings(claim)?;
    let settings = Settings::from_release(requested_port(&sent), &sent).map_err(refused)?;
    let platform = claim.spec().platform;
    let images = core.settings.containers.images.clone();
    let plan = move || {
        let plan = estrade_buildpacks::plan(platform, &sources, &settings, &images)?;
        let files = sources.into_files();
        let seen = files
            .into_iter()
            .filter(|file| !plan.ignore.excludes(file.path.as_str()));
        let files: Vec<_> = seen.collect();
        Ok((plan, files))
    };
    tokio::task::spawn_blocking(plan)
        .await
        .map_err(Error::internal)?
        .map_err(refused)
}

async fn build_image(
    claim: &Claim,
    workload: &WorkloadRow,
    plan: &BuildPlan,
    files: Vec<ManifestFile>,
    log: &mut LiveLog<'_>,
) -> Result<Option<CacheJob>, StepError> {
    for note in &plan.notes {
        log.push(note);
    }
    log.flush().await?;
    let mut tail = StepOutput::default();
    let mut attempt = Attempt {
        claim,
        workload,
        plan,
        files: &files,
        log,
        tail: &mut tail,
        packages: None,
    };
    let built = attempt.build_until_found().await?;
    let Err(error) = built else {
        return Ok(attempt.packages);
    };
    let memory = claim.core().settings.containers.build_memory;
    Err(explain(plan, &tail, memory, error))
}

/// A build that may have to be repeated.
struct Attempt<'a, 'c> {
    claim: &'a Claim,
    workload: &'a WorkloadRow,
    plan: &'a BuildPlan,
    files: &'a [ManifestFile],
    log: &'a mut LiveLog<'c>,
    /// The output of the last step.
    tail: &'a mut StepOutput,
    /// What the package manager leaves behind, unless nothing was installed.
    packages: Option<CacheJob>,
}

impl Attempt<'_, '_> {
    /// Repeats a build that met a layer that was being removed. The engine looks at layers of every project when it compares
    /// those that stand on the same base, so the layers of this project are usually whole: the first repetition uses them,
    /// the second does without.
    async fn build_until_found(&mut self) -> Result<Result<(), BuildError>, StepError> {
        for again in REPEATS {
            match self.build(self.plan.cache).await? {
                Err(error) if error.lost_cache() => {
                    tracing::info!(
                        error = error_chain(&error),
                        "a build met a layer that is gone"
                    );
                    self.log.push(again);
                    self.log.flush().await?;
                    sleep(REPEAT_PAUSE).await;
                }
                built => return Ok(built),
            }
        }
        self.build(false).await
    }

    /// Runs the build; its output goes to the log.
    async fn build(&mut self, cache: bool) -> Result<Result<(), BuildError>, StepError> {
        let (claim, plan, log) = (self.claim, self.plan, &mut *self.log);
        let (core, owner) = (claim.core(), self.workload.owner);
        let args = plan.build_args.iter().map(|arg| (arg.name(), arg.value()));
        let args: Vec<_> = args.collect();
        let label = core
            .image_builder
            .cache_label(owner, claim.project(), &args);
        let pinned = bases::pin(claim, log, plan, &label, cache).await?;
        let mut installs = pinned.packages.as_ref().map(InstallStep::new);
        let texts = plan.added_files(pinned.dockerfile);
        let context = Archive::open(core, self.files.to_vec(), Packing::Build(texts)).await?;
        let context = context.ok_or_else(|| StepError::Failed(source_gone()))?;
        let network = core.runtime.ensure_network(owner).await;
        network.map_err(broken)?;
        let spec = spec(claim, self.workload, plan, cache && pinned.cache);
        let mut build = core
            .image_builder
            .build(&spec, context.into_stream().boxed());
        while let Some(line) = log.next(build.next_line()).await? {
            self.tail.add(&line);
            if let Some(installs) = &mut installs {
                installs.read(&line);
            }
            let begins = line.starts_with(FIRST_STEP);
            log.push(readable_step(&line).unwrap_or(line));
            // Lines have the time when they are written, and this one shows when the engine began.
            if begins {
                log.flush().await?;
            }
        }
        log.flush().await?;
        let is_new = installs.is_some_and(|step| !step.is_cached());
        let packages = pinned.packages.filter(|_| is_new);
        self.packages = packages.map(|packages| CacheJob::new(claim, owner, packages));
        Ok(build.finish().await.map(|_| ()))
    }
}

fn spec(claim: &Claim, workload: &WorkloadRow, plan: &BuildPlan, cache: bool) -> BuildSpec {
    let core = claim.core();
    let limits = &core.settings.containers;
    let secret = |value: &str| Secret(value.to_owned());
    // Masked: with the names of images, a user could build on those of other owners.
    let own = Secret(core.runtime.installation().to_string());
    BuildSpec {
        image: own_image(claim),
        owner: workload.owner,
        dockerfile: plan.dockerfile_path().to_owned(),
        args: plan
            .build_args
            .iter()
            .map(|arg| (arg.name().to_owned(), secret(arg.value())))
            .collect(),
        secrets: plan
            .build_args
            .iter()
            .filter(|arg| is_secret(arg.name(), arg.value()))
            .flat_map(|arg| forms(arg.value()))
            .chain([own])
            .collect(),
        cache,
        memory: limits.build_memory,
        nano_cpus: limits.build_cpus.saturating_mul(NANOS_PER_CPU),
        limit: limits.build_limit,
        now: core.now(),
    }
}

async fn keep_image(
    claim: &mut Claim,
    command: Option<&[String]>,
    port: u16,
) -> Result<(), StepError> {
    let builder = &claim.core().image_builder;
    let image = builder.image(&builder.image_name(own_image(claim))).await;
    let volumes = image.map_err(broken)?.map(|image| image.volumes);
    let volumes = serde_json::to_string(&volumes.unwrap_or_default()).map_err(Error::internal)?;
    let command = command.map(serde_json::to_string).transpose();
    let command = command.map_err(Error::internal)?;
    if claim.keep_image(command, volumes, port).await? {
        Ok(())
    } else {
        Err(StepError::Lost)
    }
}

/// What a build left in a folder of its image becomes the files of the release; the image goes.
async fn take_site(
    claim: &mut Claim,
    workload: &WorkloadRow,
    folder: &str,
    spa: bool,
) -> Result<(), StepError> {
    let builder = Arc::clone(&claim.core().image_builder);
    let image = own_image(claim);
    let (reader, mut writer) = tokio::io::duplex(COPY_BUFFER);
    let config = SiteConfig {
        spa,
        ..SiteConfig::default()
    };
    let whole = Arc::new(AtomicBool::new(false));
    let copy = async {
        let copied = builder.copy_folder(image, folder, &mut writer).await;
        // A tar may end between any two files, so its completeness is signalled separately.
        whole.store(copied.is_ok(), Ordering::Release);
        drop(writer);
        copied.map_err(broken)
    };
    let tar = SiteTar {
        bytes: SyncIoBridge::new(reader),
        whole: Arc::clone(&whole),
    };
    let unpack = unpack_site(claim, &workload.plan, tar, config);
    let (copied, unpacked) = tokio::join!(copy, unpack);
    // Each fails when the other does: a refusal is the reason, unless it is that half was missing.
    match unpacked {
        Err(StepError::Failed(failure)) if failure.reason == "archive_invalid" => {
            copied.and(Err(StepError::Failed(failure)))?;
        }
        unpacked => unpacked.and(copied)?,
    }
    // If that fails, the next clean-up does it.
    drop(builder.remove_image(image).await);
    Ok(())
}

/// The requested port, else the only port that the image exposes, else the default.
async fn port_of_image(claim: &Claim, asked: Option<u16>) -> Result<u16, StepError> {
    let usual = claim.spec().port;
    if let Some(port) = asked {
        return Ok(port);
    }
    let builder = &claim.core().image_builder;
    let image = builder.image(&builder.image_name(own_image(claim))).await;
    let ports = image.map_err(broken)?.map(|image| image.ports);
    let ports = ports.unwrap_or_default();
    if ports.contains(&usual) {
        return Ok(usual);
    }
    Ok(ports.first().copied().unwrap_or(usual))
}

async fn workload(claim: &Claim) -> Result<WorkloadRow, StepError> {
    let row = workloads::read_workload(&claim.core().db, claim.project()).await;
    row.map_err(Error::from)?.ok_or(StepError::Lost)
}

fn sent_settings(claim: &Claim) -> Result<serde_json::Map<String, serde_json::Value>, Error> {
    open_settings(claim.core(), claim.project(), &claim.spec().settings)
}
