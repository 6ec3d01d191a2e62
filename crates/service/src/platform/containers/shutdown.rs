//! Shutdown of an instance: no new requests, drain, SIGTERM, SIGKILL, removal.

use super::fleet::{DRAIN_TIMEOUT, Fleet};
use estrade_model::error::error_chain;
use estrade_runtime::{Instance, InstanceId};
use std::time::Duration;

/// The time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an instance ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Other instances take over its requests.
    Replaced,
    /// Its project was deleted or switched off: it gets no requests.
    Unwanted,
}

/// Shuts an instance down, unless that is in progress. False when the engine could not: it is retried.
pub(super) async fn shutdown(fleet: &Fleet, instance: Instance, why: StopReason) -> bool {
    if !fleet.begin_leaving(&instance.id) {
        return true;
    }
    // Released even if this future is dropped: only the holder may shut the instance down.
    let _leaving = ShutdownGuard(fleet, &instance.id);
    let limit = match why {
        StopReason::Replaced => DRAIN_TIMEOUT,
        StopReason::Unwanted => Duration::ZERO,
    };
    fleet.leave(&instance, limit).await;
    let ended = end(fleet, &instance).await;
    if let Err(error) = &ended {
        tracing::warn!(
            project = %instance.key.project,
            release = %instance.key.release,
            error = error_chain(error),
            "an instance could not be ended; it is tried again"
        );
    }
    ended.is_ok()
}

struct ShutdownGuard<'g>(&'g Fleet, &'g InstanceId);

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        self.0.end_leaving(self.1);
    }
}

async fn end(fleet: &Fleet, instance: &Instance) -> Result<(), estrade_runtime::Error> {
    let runtime = &fleet.core.runtime;
    runtime.stop_instance(&instance.id, STOP_TIMEOUT).await?;
    fleet.settle_logs(&instance.id).await;
    runtime.remove_instance(&instance.id).await
}
