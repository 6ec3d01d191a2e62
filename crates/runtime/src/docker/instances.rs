//! Instances: the containers of releases.
//!
//! Every call may be repeated: to make what is made, to start what runs, to stop what stands still and to
//! remove what is gone are no errors.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, SETTLE_DELAY, WORK_TIMEOUT};
use crate::docker::half_started::end_half_started;
use crate::docker::instance_state;
use crate::docker::labels::INSTANCE;
use crate::error::Error;
use crate::instance::{Instance, InstanceId};
use crate::instance_spec::InstanceSpec;
use bollard::models;
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptions, RemoveContainerOptions,
    StartContainerOptions, StopContainerOptions, WaitContainerOptions,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many containers are looked at at once.
const MAX_CONCURRENT_INSPECTS: usize = 8;
/// What the engine may need beyond the grace to stop a container.
const STOP_MARGIN: Duration = Duration::from_secs(30);

/// A container that was made, or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub id: InstanceId,
    /// Whether it was made just now.
    pub new: bool,
}

impl Engine {
    /// Makes an instance, or finds the one that was made from the same before. It does not run yet. Its
    /// owner's network must be there when it starts.
    pub async fn create_instance(&self, spec: &InstanceSpec) -> Result<Created, Error> {
        let quota = self.has_quota().await?;
        let most_cpus = self.most_nano_cpus().await?;
        let create = |quota| self.create(spec, self.container(spec, quota, most_cpus));
        match create(quota).await {
            Err(Error::Refused { message, .. }) if quota && message.contains("storage-opt") => {
                self.quota_refused();
                create(false).await
            }
            other => other,
        }
    }

    async fn create(
        &self,
        spec: &InstanceSpec,
        container: models::ContainerCreateBody,
    ) -> Result<Created, Error> {
        let name = self.container_name(spec);
        let deadline = Instant::now() + WORK_TIMEOUT;
        loop {
            let options = CreateContainerOptions {
                name: Some(name.clone()),
                ..Default::default()
            };
            let created = self
                .docker
                .create_container(Some(options), container.clone());
            let refused = match self.call("making an instance", WORK_TIMEOUT, created).await {
                Ok(created) => {
                    return Ok(Created {
                        id: InstanceId(created.id),
                        new: true,
                    });
                }
                Err(error @ Error::Conflict { .. }) => error,
                Err(error) => return Err(error),
            };
            match self.inspect(&name, false).await? {
                Some(found) => {
                    let labels = found.config.and_then(|config| config.labels);
                    let ours = self.installation.made(labels.as_ref());
                    let id = found.id.filter(|_| ours).ok_or(refused)?;
                    return Ok(Created {
                        id: InstanceId(id),
                        new: false,
                    });
                }
                // Its name is taken before it is there and given back after it is gone.
                None if Instant::now() < deadline => sleep(SETTLE_DELAY).await,
                None => return Err(refused),
            }
        }
    }

    /// Starts an instance.
    pub async fn start_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let started = self
            .docker
            .start_container(&id.0, None::<StartContainerOptions>);
        self.call("starting an instance", WORK_TIMEOUT, started)
            .await
    }

    /// Makes an instance and starts it. One that was made earlier and cannot be started is made anew.
    pub async fn run_instance(&self, spec: &InstanceSpec) -> Result<InstanceId, Error> {
        let Created { id, new } = self.create_instance(spec).await?;
        match self.start_instance(&id).await {
            Ok(()) if new || !self.is_half_started(&id).await => return Ok(id),
            Ok(()) => tracing::debug!("an instance that was made earlier has not begun"),
            Err(error) if new || error.is_engine_away() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "an instance that was made earlier does not start");
            }
        }
        end_half_started(&id).await;
        self.remove_instance(&id).await?;
        let Created { id, .. } = self.create_instance(spec).await?;
        self.start_instance(&id).await?;
        Ok(id)
    }

    /// Stops an instance: SIGTERM, and SIGKILL when the grace is over. Returns when it has stopped.
    pub async fn stop_instance(&self, id: &InstanceId, grace: Duration) -> Result<(), Error> {
        let seconds = grace.as_millis().div_ceil(1000);
        let options = StopContainerOptions {
            t: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            ..Default::default()
        };
        let stopped = self.docker.stop_container(&id.0, Some(options));
        match self
            .call("stopping an instance", grace + STOP_MARGIN, stopped)
            .await
        {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes an instance, at once if it runs, with what it wrote outside of volumes of ours.
    pub async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let what = "removing an instance";
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            ..Default::default()
        };
        let deadline = Instant::now() + WORK_TIMEOUT;
        loop {
            let removed = self.docker.remove_container(&id.0, Some(options.clone()));
            match self.call(what, WORK_TIMEOUT, removed).await {
                Ok(()) | Err(Error::NotFound { .. }) => return Ok(()),
                // It is being removed already: wait until it is gone.
                Err(Error::Conflict { .. }) if Instant::now() < deadline => {
                    sleep(SETTLE_DELAY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Every instance of this installation, running or not. Those that run have no start time.
    pub async fn instances(&self) -> Result<Vec<Instance>, Error> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(self.installation.filter(&[INSTANCE.to_owned()])),
            ..Default::default()
        };
        let listed = self.docker.list_containers(Some(options));
        let listed = self
            .call("listing instances", QUICK_TIMEOUT, listed)
            .await?;
        stream::iter(listed)
            .map(|summary| self.complete(summary))
            .buffered(MAX_CONCURRENT_INSPECTS)
            .try_filter_map(|instance| async { Ok(instance) })
            .try_collect()
            .await
    }

    /// Adds how a stopped container ended, which the list leaves out. One that the engine cannot inspect must
    /// not hide all others.
    async fn complete(&self, summary: models::ContainerSummary) -> Result<Option<Instance>, Error> {
        match (instance_state::read_running(&summary), &summary.id) {
            (Some(instance), _) => Ok(Some(instance)),
            (None, Some(id)) => match self.instance(&InstanceId(id.clone())).await {
                Err(Error::TimedOut(_)) => Ok(instance_state::read_unclear(summary)),
                looked => looked,
            },
            (None, None) => Ok(None),
        }
    }

    /// One instance; none: it is gone.
    pub async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>, Error> {
        Ok(self
            .inspect(&id.0, false)
            .await?
            .and_then(instance_state::read))
    }

    /// How many bytes an instance has added to its root, outside of volumes. The engine counts files for it.
    pub async fn disk_use(&self, id: &InstanceId) -> Result<Option<u64>, Error> {
        let found = self.inspect(&id.0, true).await?;
        Ok(found.map(|found| {
            found
                .size_rw
                .and_then(|size| size.try_into().ok())
                .unwrap_or(0)
        }))
    }

    /// Waits until an instance does not run any more, however long that takes. None: it is gone.
    pub async fn wait_for_exit(&self, id: &InstanceId) -> Result<Option<Instance>, Error> {
        let mut responses = self
            .docker
            .wait_container(&id.0, None::<WaitContainerOptions>);
        match responses.next().await {
            // bollard takes a code that is not 0 as an error.
            None | Some(Ok(_) | Err(bollard::errors::Error::DockerContainerWaitError { .. })) => {}
            Some(Err(error)) => match Error::from_bollard("waiting for an instance", error) {
                Error::NotFound { .. } => return Ok(None),
                error => return Err(error),
            },
        }
        self.instance(id).await
    }

    async fn inspect(
        &self,
        name: &str,
        size: bool,
    ) -> Result<Option<models::ContainerInspectResponse>, Error> {
        let options = InspectContainerOptions { size };
        let limit = if size { WORK_TIMEOUT } else { QUICK_TIMEOUT };
        let inspected = self.docker.inspect_container(name, Some(options));
        match self.call("looking at an instance", limit, inspected).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
