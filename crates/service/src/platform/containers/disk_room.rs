//! How much room the engine's disk has: images are removed early when it is little, and builds that would
//! fill it are stopped.

use crate::Core;
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked at while something is built.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A build may take the free space down to this part of what shall be free.
const RESERVE_DIVISOR: u64 = 4;

/// Whether less is free than shall be; no when the disk is not on this machine.
pub(crate) async fn is_low(core: &Core) -> bool {
    let floor = core.settings.containers.free_disk;
    core.image_builder
        .free_disk()
        .await
        .is_some_and(|free| free < floor)
}

/// Ends when so little is free that nothing more may be built; never, when that does not happen.
pub(crate) async fn ran_out(core: &Core) {
    let reserve = core.settings.containers.free_disk / RESERVE_DIVISOR;
    loop {
        if core
            .image_builder
            .free_disk()
            .await
            .is_some_and(|free| free < reserve)
        {
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}
