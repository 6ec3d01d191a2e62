//! Builds: a directory with a Dockerfile becomes an image.
//!
//! The engine's classic builder is used, which every version has. It stops a build when its connection is
//! closed, so dropping a [`DockerBuild`] kills it.
//!
//! Layers and stages of a build have no label and no name, and would stay for ever. So each gets a
//! name of ours as soon as the engine tells of it: they serve as cache until
//! [`Engine::prune_images`] removes them.
//!
//! The builder knows no limit of processes, and what it is given as argument can be read in the image's
//! history.

use crate::build::{BuildError, BuildSpec};
use crate::docker::build_log::{BuildLog, Message};
use crate::docker::cache_guard::Building;
use crate::docker::engine::Engine;
use crate::error::Error;
use crate::image::OwnImage;
use bollard::models::ImageInspect;
use bytes::Bytes;
use estrade_model::built_image::LAYERS;
use estrade_model::image_ref::ImageRef;
use estrade_model::sync::MutexExt;
use estrade_model::{OwnerId, ProjectId, Timestamp};
use futures_util::{Stream, StreamExt};
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

const WHAT: &str = "building an image";
/// Build arguments that every step gets without declaring them.
const PROXIES: [&str; 5] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// Period of the CPU quota: a tenth of a second.
const CPU_PERIOD: u64 = 100_000;
/// The arguments are part of the request's address, which cannot be longer than 64 KiB.
const MAX_QUERY: usize = 60_000;
/// The engine's messages for an image or a layer that was removed during the build.
const LOST_LAYER_MESSAGES: [&str; 9] = [
    "failed to get digest",
    "failed to get layer",
    "layer does not exist",
    "layer not found",
    "unknown parent image",
    "failed to set parent",
    "unable to find image",
    "No such image",
    "no such image",
];
/// How many layers and stages of a build get a name; more are no cache for later builds.
const MAX_LAYERS: usize = 1000;
const MAX_STAGES: usize = 50;
/// How far the engine's clock may be from ours.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

impl BuildError {
    /// Whether the engine had lost an image or a layer that it was about to use. Without the cache it does not look for
    /// those.
    pub fn lost_cache(&self) -> bool {
        match self {
            // The message of a failed command is not interpreted.
            Self::Failed {
                code: None,
                message,
                ..
            } => LOST_LAYER_MESSAGES
                .iter()
                .any(|words| message.contains(words)),
            Self::Failed { .. } | Self::TimedOut(_) | Self::Context(_) => false,
            Self::Engine(error) => error.is_not_found(),
        }
    }
}

type Sent = (http::Response<Incoming>, Building);
type Sending = Pin<Box<dyn Future<Output = Result<Sent, Error>> + Send>>;

enum State {
    /// The directory is on its way.
    Sending(Sending),
    Reading {
        body: Incoming,
        /// Keeps the base images from being removed.
        _building: Building,
    },
    Ended(Result<ImageRef, BuildError>),
}

/// A running build. It makes progress only while its lines are read; dropping it cancels it.
pub struct DockerBuild {
    engine: Engine,
    image: OwnImage,
    /// When its layers are made, by the engine's clock.
    made_within: RangeInclusive<Timestamp>,
    /// The label of the builds of its project.
    label: String,
    limit: Duration,
    deadline: Instant,
    state: State,
    log: BuildLog,
    lines: VecDeque<String>,
    /// Layers that need a name: the stage and the id.
    layers: VecDeque<(usize, String)>,
    /// How many the log has named.
    layer_count: usize,
    context_error: Arc<Mutex<Option<io::Error>>>,
}

impl Engine {
    /// Builds an image out of a directory, which comes as a tar and is passed on as it comes.
    pub fn build(
        &self,
        spec: &BuildSpec,
        context: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> DockerBuild {
        let context_error = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&context_error);
        let context = context.map(move |part| {
            part.inspect_err(|error| {
                let error = io::Error::new(error.kind(), error.to_string());
                *noted.lock_ignoring_poison() = Some(error);
            })
        });
        let engine = self.clone();
        let args = spec
            .args
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()));
        let label = self.cache_label(spec.owner, spec.image.project, args);
        let query = self.build_query(spec);
        let sending: Sending = Box::pin(async move {
            let query = query.map_err(|error| Error::broken(WHAT, error))?;
            if query.len() > MAX_QUERY {
                let message = "the build arguments are too long".to_owned();
                return Err(Error::from_status(WHAT, 400, message));
            }
            let request = Request::post(format!("/build?{query}"))
                .header(CONTENT_TYPE, "application/x-tar")
                .body(bollard::body_try_stream(context))
                .map_err(|error| Error::broken(WHAT, error))?;
            let building = engine.cache.build().await;
            Ok((engine.send(WHAT, request).await?, building))
        });
        DockerBuild {
            engine: self.clone(),
            image: spec.image,
            made_within: spec.now.before(CLOCK_SLACK)..=spec.now.after(spec.limit + CLOCK_SLACK),
            label,
            limit: spec.limit,
            deadline: Instant::now() + spec.limit,
            state: State::Sending(sending),
            log: BuildLog::new(&spec.secrets),
            lines: VecDeque::new(),
            layers: VecDeque::new(),
            layer_count: 0,
            context_error,
        }
    }

    fn build_query(
        &self,
        spec: &BuildSpec,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        // One, because each is a step that shows in the log; the image's name has the others.
        let labels = self.installation.labels([]);
        let args = spec
            .args
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()));
        let args: HashMap<&str, &str> = args.collect();
        let quota = spec.nano_cpus / (1_000_000_000 / CPU_PERIOD);
        let query = [
            ("t", self.image_name(spec.image).to_string()),
            ("dockerfile", spec.dockerfile.clone()),
            ("buildargs", serde_json::to_string(&args)?),
            ("labels", serde_json::to_string(&labels)?),
            ("nocache", (!spec.cache).to_string()),
            ("rm", "true".to_owned()),
            ("forcerm", "true".to_owned()),
            ("memory", spec.memory.to_string()),
            ("memswap", spec.memory.to_string()),
            ("cpuperiod", CPU_PERIOD.to_string()),
            ("cpuquota", quota.to_string()),
            ("networkmode", self.network_name(spec.owner)),
            ("version", "1".to_owned()),
        ];
        Ok(serde_urlencoded::to_string(query)?)
    }
}

impl DockerBuild {
    /// The next line of the log; none: the build has ended, and [`DockerBuild::finish`] knows how. Nothing is lost
    /// when this is dropped half-way and called again.
    pub async fn next_line(&mut self) -> Option<String> {
        loop {
            self.name_layers().await;
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            match &mut self.state {
                State::Ended(_) => return None,
                State::Sending(sending) => {
                    self.state = match timeout_at(self.deadline, sending).await {
                        Ok(Ok((response, building))) => State::Reading {
                            body: response.into_body(),
                            _building: building,
                        },
                        Ok(Err(error)) => State::Ended(Err(self.blame(error))),
                        Err(_) => State::Ended(Err(BuildError::TimedOut(self.limit))),
                    };
                }
                State::Reading { body, .. } => {
                    let read = timeout_at(self.deadline, body.frame()).await;
                    let ended = match read {
                        Ok(Some(Ok(frame))) => self.take(&frame.into_data().unwrap_or_default()),
                        Ok(Some(Err(error))) => Some(Err(self.blame(Error::broken(WHAT, error)))),
                        Ok(None) => Some(self.end()),
                        Err(_) => Some(Err(BuildError::TimedOut(self.limit))),
                    };
                    if let Some(ended) = ended {
                        self.lines.extend(self.log.rest());
                        // With this the connection closes, and the engine stops what still runs.
                        self.state = State::Ended(ended);
                    }
                }
            }
        }
    }

    /// How it ended, once it has.
    pub async fn finish(mut self) -> Result<ImageRef, BuildError> {
        while self.next_line().await.is_some() {}
        match self.state {
            State::Ended(Ok(image)) => {
                // The image has a name of its own now; another one would keep it when that is gone.
                if let Some(stage) = self.log.stage() {
                    let layer = self.engine.layer_name(self.image, stage);
                    if let Err(error) = self.engine.untag(&layer).await {
                        tracing::debug!(%error, "a layer keeps its name for a while");
                    }
                }
                Ok(image)
            }
            State::Ended(Err(error)) => Err(error),
            State::Sending(_) | State::Reading { .. } => Err(Error::broken(WHAT, "no end").into()),
        }
    }

    /// Reads a part of the response; some: the result of the build.
    fn take(&mut self, part: &[u8]) -> Option<Result<ImageRef, BuildError>> {
        for message in self.log.read(part) {
            match message {
                Ok(Message::Line(line)) => self.lines.push_back(line),
                // A step can print such lines, too, as many as it likes.
                Ok(Message::Layer { stage, id }) => {
                    self.layer_count += 1;
                    if self.layer_count <= MAX_LAYERS && stage < MAX_STAGES {
                        self.layers.push_back((stage, id));
                    }
                }
                Ok(Message::Failed { code, message }) => {
                    return Some(Err(BuildError::Failed {
                        step: self.log.step(),
                        code,
                        message,
                    }));
                }
                Err(error) => return Some(Err(Error::broken(WHAT, error).into())),
            }
        }
        None
    }

    /// The response has ended without an error: then it contained the image's id.
    fn end(&mut self) -> Result<ImageRef, BuildError> {
        let image = self.log.image().and_then(|id| id.parse().ok());
        image.ok_or_else(|| Error::broken(WHAT, "the response ended without an image").into())
    }

    /// What is behind an error of the engine.
    fn blame(&self, error: Error) -> BuildError {
        let noted = self.context_error.lock_ignoring_poison().take();
        match (noted, error) {
            (Some(error), _) => BuildError::Context(error),
            // Before the first step only the directory and the Dockerfile can be wrong.
            (
                None,
                Error::Refused {
                    message,
                    status: 400 | 500,
                    ..
                },
            ) => BuildError::Failed {
                step: None,
                code: None,
                message: self.log.mask(&message),
            },
            (None, error) => BuildError::Engine(error),
        }
    }

    /// Whether an image is a layer of this build. A step can write anything into the log, also the id of an image of another
    /// owner. So it is one that was made during this build, or one that an earlier build of the same project has
    /// named: with the name of this one it stays for as long as builds use it. One of a registry says itself when it was
    /// made, and is never a layer.
    fn may_name(&self, found: &ImageInspect) -> bool {
        if found
            .repo_digests
            .as_ref()
            .is_some_and(|digests| !digests.is_empty())
        {
            return false;
        }
        let made = found.created.as_deref().and_then(|made| made.parse().ok());
        if made.is_some_and(|made: Timestamp| self.made_within.contains(&made)) {
            return true;
        }
        let layers = format!("{}:", self.engine.repository(LAYERS));
        let names = found.repo_tags.as_deref().unwrap_or_default();
        names.iter().any(|name| name.starts_with(&layers)) && has_label(found, &self.label)
    }

    async fn name_layers(&mut self) {
        while let Some((stage, id)) = self.layers.front() {
            let name = ImageRef::trusted(id.clone());
            let found = self.engine.inspect_image(&name).await.ok().flatten();
            if found.is_some_and(|found| self.may_name(&found)) {
                let layer = self.engine.layer_name(self.image, *stage);
                let named = self.engine.tag_as(id, &layer).await;
                if let Err(error) = named {
                    tracing::debug!(%error, "a layer stays without a name");
                }
            }
            self.layers.pop_front();
        }
    }
}

/// Whether an image has a label, which is written as `name=value`.
pub(crate) fn has_label(image: &ImageInspect, label: &str) -> bool {
    let labels = image.config.as_ref().and_then(|it| it.labels.as_ref());
    let found = |(name, value): (&str, &str)| labels?.get(name).filter(|found| *found == value);
    label.split_once('=').and_then(found).is_some()
}

impl Engine {
    /// The label with which every stage of a project's builds begins, so that layers are shared neither between owners nor
    /// between projects. The proxies are in it because the engine leaves them out when it compares layers.
    pub fn cache_label<'a>(
        &self,
        owner: OwnerId,
        project: ProjectId,
        args: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("estrade build cache of a project");
        let mut add = |text: &str| {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(&self.installation.to_string());
        add(&owner.to_string());
        add(&project.to_string());
        for (name, value) in args {
            if PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name)) {
                add(name);
                add(value);
            }
        }
        let name = self.installation.cache_label();
        format!("{name}={}", &hasher.finalize().to_hex()[..32])
    }

    pub(crate) fn layer_name(&self, image: OwnImage, stage: usize) -> ImageRef {
        ImageRef::trusted(format!(
            "{}:{}-{stage}",
            self.repository(LAYERS),
            image.release
        ))
    }
}
