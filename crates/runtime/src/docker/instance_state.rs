//! The state of an instance, from the engine's responses.

use crate::docker::labels::{self, DISK, PORT, SPEC};
use crate::instance::{Exit, Instance, InstanceId, InstanceKey, InstanceState};
use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, EndpointSettings,
};
use estrade_model::Timestamp;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// A running instance from an entry of the container list; none: the entry has not enough data.
pub(crate) fn read_running(summary: &ContainerSummary) -> Option<Instance> {
    if summary.state != Some(ContainerSummaryStateEnum::RUNNING) {
        return None;
    }
    let labels = summary.labels.as_ref()?;
    let networks = summary.network_settings.as_ref()?.networks.as_ref();
    let instance = Instance {
        id: InstanceId(summary.id.clone()?),
        key: InstanceKey::read(labels)?,
        digest: labels.get(SPEC).cloned().unwrap_or_default(),
        state: InstanceState::Running,
        address: address(labels, networks),
        disk_limited: is_disk_limited(labels),
        started_at: None,
    };
    // Between start and the list its address may have been missing.
    instance.address.is_some().then_some(instance)
}

/// An instance that does not run, out of a list, when a close look at it took too long.
pub(crate) fn read_unclear(summary: ContainerSummary) -> Option<Instance> {
    let labels = summary.labels?;
    Some(Instance {
        id: InstanceId(summary.id?),
        key: InstanceKey::read(&labels)?,
        digest: labels.get(SPEC).cloned().unwrap_or_default(),
        state: InstanceState::Unclear,
        address: None,
        disk_limited: is_disk_limited(&labels),
        started_at: None,
    })
}

/// An instance, out of a close look.
pub(crate) fn read(found: ContainerInspectResponse) -> Option<Instance> {
    let labels = found.config?.labels?;
    let state = found.state.unwrap_or_default();
    let networks = found
        .network_settings
        .and_then(|settings| settings.networks);
    let started_at = moment(state.started_at.as_deref());
    let state = read_state(&state);
    // After a crash the engine still tells the address that a container had.
    let networks = networks.filter(|_| state == InstanceState::Running);
    Some(Instance {
        id: InstanceId(found.id?),
        key: InstanceKey::read(&labels)?,
        digest: labels.get(SPEC).cloned().unwrap_or_default(),
        address: address(&labels, networks.as_ref()),
        disk_limited: is_disk_limited(&labels),
        started_at,
        state,
    })
}

fn read_state(state: &ContainerState) -> InstanceState {
    match state.status {
        Some(ContainerStateStatusEnum::CREATED) => InstanceState::Created,
        // A container that is being stopped still runs.
        Some(ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::STOPPING) => {
            InstanceState::Running
        }
        Some(ContainerStateStatusEnum::EXITED) => InstanceState::Exited(Exit {
            code: state.exit_code.unwrap_or(-1),
            oom_killed: state.oom_killed.unwrap_or(false),
            at: moment(state.finished_at.as_deref()),
            error: state.error.clone().filter(|error| !error.is_empty()),
        }),
        _ => InstanceState::Other,
    }
}

fn address(
    labels: &HashMap<String, String>,
    networks: Option<&HashMap<String, EndpointSettings>>,
) -> Option<SocketAddr> {
    let port: u16 = labels::read(labels, PORT)?;
    let ip = |network: &EndpointSettings| network.ip_address.as_ref()?.parse::<IpAddr>().ok();
    let ip = networks?.values().find_map(ip)?;
    Some(SocketAddr::new(ip, port))
}

fn is_disk_limited(labels: &HashMap<String, String>) -> bool {
    labels.get(DISK).is_some_and(|disk| disk == "quota")
}

/// A moment; the engine writes the year 1 for never.
fn moment(text: Option<&str>) -> Option<Timestamp> {
    let moment: Timestamp = text?.parse().ok()?;
    (moment.millis() > 0).then_some(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_year_one_is_never() {
        assert_eq!(moment(Some("0001-01-01T00:00:00Z")), None);
        assert_eq!(moment(None), None);
        let moment = moment(Some("2026-11-15T01:02:03.004567891Z")).unwrap();
        assert_eq!(moment.to_string(), "2026-11-15T01:02:03.004Z");
    }
}
