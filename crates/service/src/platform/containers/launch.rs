//! One instance on its way: made, started, and looked at until it is healthy.

use super::crash_loop;
use super::fleet::Fleet;
use super::workload::Workload;
use crate::platform::releases::Failure;
use estrade_runtime::{Error, Exit, Instance, InstanceId, InstanceState, LogsFrom, Runtime};
use futures_util::TryStreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// How many of its last lines a failure tells.
const MAX_LAST_LINES: u32 = 20;
/// How long reading them may take.
const LOG_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an instance is not healthy.
#[derive(Debug)]
pub(super) enum LaunchError {
    /// It is at fault.
    Unhealthy {
        instance: Instance,
        failure: Failure,
    },
    Engine(Error),
}

impl From<Error> for LaunchError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Makes the instance of that number unless it is there, starts it, and waits until it is healthy.
pub(super) async fn launch(
    fleet: &Fleet,
    workload: &Workload,
    number: u32,
) -> Result<Instance, LaunchError> {
    let runtime = &fleet.core.runtime;
    // The semaphore is never closed.
    let turn = fleet.starts.acquire().await.ok();
    workload.ensure_disks(&fleet.core).await?;
    let id = runtime.run_instance(&workload.spec(number)).await?;
    let instance = find(&**runtime, &id).await?;
    drop(turn);
    wait_until_healthy(fleet, workload, instance).await
}

/// Waits until an instance that was started is healthy.
pub(super) async fn wait_until_healthy(
    fleet: &Fleet,
    workload: &Workload,
    instance: Instance,
) -> Result<Instance, LaunchError> {
    let (core, runtime) = (&fleet.core, &fleet.core.runtime);
    let host = format!("{}.{}", workload.project.name, core.settings.edge_authority);
    let (probe, limit) = (workload.health.probe(&host), workload.health.limit);
    let unhealthy = tokio::select! {
        ready = runtime.wait_until_ready(&instance, &probe, limit) => match ready {
            Ok(()) => return Ok(instance),
            Err(why) => format!(
                "the instance was not healthy within {} s: {why}",
                limit.as_secs()
            ),
        },
        ended = runtime.wait_for_exit(&instance.id) => {
            let ended = ended?.unwrap_or(instance);
            let failure = tell(fleet, workload, &ended, exit_of(&ended)).await;
            return Err(LaunchError::Unhealthy { instance: ended, failure });
        }
    };
    let failure = Failure {
        reason: "unhealthy",
        message: with_lines(&unhealthy, &last_lines(&**runtime, &instance.id).await),
    };
    Err(LaunchError::Unhealthy { instance, failure })
}

async fn find(runtime: &dyn Runtime, id: &InstanceId) -> Result<Instance, Error> {
    let found = runtime.instance(id).await?;
    found.ok_or_else(|| Error::NotFound {
        what: "looking at an instance",
        message: "it is gone".to_owned(),
    })
}

fn exit_of(instance: &Instance) -> Option<&Exit> {
    match &instance.state {
        InstanceState::Exited(exit) => Some(exit),
        _ => None,
    }
}

/// Why an instance ended, with its last lines of output.
pub(super) async fn tell(
    fleet: &Fleet,
    workload: &Workload,
    instance: &Instance,
    exit: Option<&Exit>,
) -> Failure {
    if fleet.crashes(|crashes| crashes.take_full(&instance.id)) {
        return crash_loop::disk_full(&workload.project.plan);
    }
    let (reason, message) = match exit {
        Some(exit) if exit.oom_killed => (
            "out_of_memory",
            "the instance was killed because it used more memory than its plan grants; resize the project or use less".to_owned(),
        ),
        Some(Exit { error: Some(error), .. }) => ("start_failed", format!("the instance could not be started: {error}")),
        Some(exit) => ("exited", format!("the instance ended with exit code {}", exit.code)),
        None => ("exited", "the instance ended".to_owned()),
    };
    Failure {
        reason,
        message: with_lines(
            &message,
            &last_lines(&*fleet.core.runtime, &instance.id).await,
        ),
    }
}

fn with_lines(message: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return format!("{message}; it wrote nothing");
    }
    format!("{message}; its last lines:\n{}", lines.join("\n"))
}

/// The last lines of an instance's output; empty when they cannot be read.
async fn last_lines(runtime: &dyn Runtime, id: &InstanceId) -> Vec<String> {
    let from = LogsFrom {
        after: 0,
        last: Some(MAX_LAST_LINES),
        follow: false,
    };
    let reading = runtime.logs(id, from).try_collect::<Vec<_>>();
    match timeout(LOG_READ_TIMEOUT, reading).await {
        Ok(Ok(lines)) => lines
            .into_iter()
            .map(|line| {
                line.text
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(500)
                    .collect()
            })
            .collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
