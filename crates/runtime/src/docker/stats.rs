//! What an instance uses.

use crate::docker::engine::{Engine, QUICK_TIMEOUT};
use crate::error::Error;
use crate::instance::InstanceId;
use crate::stats::Stats;
use bollard::models;
use bollard::query_parameters::StatsOptions;
use futures_util::TryStreamExt;

impl Engine {
    /// Resource usage of an instance; none: it does not run, or is gone. The engine measures once a second and
    /// responds with its next measurement: query many concurrently.
    pub async fn stats(&self, id: &InstanceId) -> Result<Option<Stats>, Error> {
        let options = StatsOptions {
            stream: false,
            one_shot: true,
        };
        let mut responses = self.docker.stats(&id.0, Some(options));
        match self
            .call("measuring an instance", QUICK_TIMEOUT, responses.try_next())
            .await
        {
            Ok(response) => Ok(response.and_then(read)),
            Err(Error::NotFound { .. } | Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// None for an instance that does not run, whose response has no numbers.
fn read(response: models::ContainerStatsResponse) -> Option<Stats> {
    let memory = response.memory_stats?;
    let kept = memory.stats.unwrap_or_default();
    // The first is the name with version 1 of control groups, the second with version 2.
    let files = ["total_inactive_file", "inactive_file"]
        .iter()
        .find_map(|name| kept.get(*name));
    let networks = response.networks.unwrap_or_default();
    let sum = |bytes: fn(&models::ContainerNetworkStats) -> Option<u64>| {
        networks.values().filter_map(bytes).sum()
    };
    Some(Stats {
        cpu_ns: response.cpu_stats?.cpu_usage?.total_usage?,
        memory: memory.usage?.saturating_sub(files.copied().unwrap_or(0)),
        pids: response.pids_stats?.current?,
        received: sum(|network| network.rx_bytes),
        sent: sum(|network| network.tx_bytes),
    })
}
