//! How an instance ends: no new visitors, time for those that it has, SIGTERM, SIGKILL, removed.

use super::fleet::DRAIN_TIMEOUT;
use crate::Core;
use estrade_model::error::error_chain;
use estrade_runtime::{Instance, InstanceId};
use std::time::Duration;

/// The time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an instance ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Others take over its visitors.
    Replaced,
    /// Its project is gone or switched off: nobody is sent to it any more.
    Unwanted,
}

/// Ends an instance, unless somebody does already. False when the engine could not: it is tried again.
pub(super) async fn shutdown(core: &Core, instance: Instance, why: StopReason) -> bool {
    if !core.fleet.begin_leaving(&instance.id) {
        return true;
    }
    // Given back even if this future is dropped: nobody else may end it until then.
    let _leaving = ShutdownGuard(core, &instance.id);
    let limit = match why {
        StopReason::Replaced => DRAIN_TIMEOUT,
        StopReason::Unwanted => Duration::ZERO,
    };
    let publisher = core.publisher();
    core.fleet.leave(publisher.as_ref(), &instance, limit).await;
    let ended = end(core, &instance).await;
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

struct ShutdownGuard<'g>(&'g Core, &'g InstanceId);

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        self.0.fleet.end_leaving(self.1);
    }
}

async fn end(core: &Core, instance: &Instance) -> Result<(), estrade_runtime::Error> {
    core.runtime
        .stop_instance(&instance.id, STOP_TIMEOUT)
        .await?;
    core.settle_logs(&instance.id).await;
    core.runtime.remove_instance(&instance.id).await
}
