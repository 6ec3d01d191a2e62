//! What an engine that is killed while it starts a container leaves behind.
//!
//! - It may have forgotten that it did, and from then on can neither start it ("id already in use") nor stop
//!   it. Where the engine's machine is this one, its processes are found by their control group and ended.
//! - It may take it for one that runs, although its program has not begun and never will: the process that
//!   shall become it waits for a word from an engine that is gone.
//! - It may take it for one that runs, rightly, but without a network.
//!
//! In each case [`Engine::run_instance`] makes it anew.

use crate::docker::engine::{Engine, QUICK_TIMEOUT};
use crate::instance::{InstanceId, InstanceState};
use bollard::query_parameters::TopOptions;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// Where the kernel shows control groups.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// How deep those of containers are, at most: in a hierarchy of version 1, in a slice, in another container.
const MAX_CGROUP_DEPTH: usize = 5;

/// What the process is called that shall become the program of a container.
const INIT_COMMAND: &str = "runc init";
/// Longer than it takes until the program begins.
const START_TIMEOUT: Duration = Duration::from_secs(2);

impl Engine {
    /// Whether an instance is reported as running, but its program has never begun or it cannot be reached.
    pub async fn is_half_started(&self, id: &InstanceId) -> bool {
        if !self.looks_half_started(id).await {
            return false;
        }
        // Each does, for a moment.
        sleep(START_TIMEOUT).await;
        self.looks_half_started(id).await
    }

    async fn looks_half_started(&self, id: &InstanceId) -> bool {
        match self.instance(id).await {
            Ok(Some(it)) if it.state == InstanceState::Running => {
                it.address.is_none() || self.is_waiting(id).await
            }
            // Unknown counts as running.
            _ => false,
        }
    }

    async fn is_waiting(&self, id: &InstanceId) -> bool {
        let listed = self.docker.top_processes(&id.0, None::<TopOptions>);
        let listed = self.call("listing processes", QUICK_TIMEOUT, listed).await;
        let processes = listed.ok().and_then(|listed| listed.processes);
        processes.is_some_and(|all| {
            let waits = |process: &Vec<String>| {
                let command = process.last().map(String::as_str);
                command.is_some_and(|it| it.trim_end().ends_with(INIT_COMMAND))
            };
            !all.is_empty() && all.iter().all(waits)
        })
    }
}

/// Ends what runs of a container.
pub(crate) async fn end_half_started(id: &InstanceId) {
    let id = id.as_str().to_owned();
    // An id that is not whole could be part of another one.
    if id.len() != 64 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return;
    }
    let end = move || {
        for group in groups_of(Path::new(CGROUP_ROOT), &id, 0) {
            end_group(&group);
        }
    };
    // A panic in it cannot be handled.
    drop(tokio::task::spawn_blocking(end).await);
}

fn end_group(group: &Path) {
    // Version 2 does it at once, also for those that are just being started.
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|line| line.parse().ok()) {
        if let Some(process) = Pid::from_raw(process) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// The groups of a container: `<id>`, or `docker-<id>.scope`.
fn groups_of(within: &Path, id: &str, depth: usize) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(within) else {
        return Vec::new();
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    let folders = entries.flatten().filter(is_folder).map(|it| it.path());
    let mut found = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(id) {
            found.push(folder);
        } else if depth < MAX_CGROUP_DEPTH {
            found.extend(groups_of(&folder, id, depth + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_wherever_they_are() {
        let root = tempfile::tempdir().unwrap();
        let id = "ab".repeat(32);
        let ours = [
            format!("memory/docker/{id}"),
            format!("system.slice/docker-{id}.scope"),
        ];
        for path in ours.iter().map(String::as_str).chain(["pids/docker/other"]) {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let mut found = groups_of(root.path(), &id, 0);
        found.sort();
        assert_eq!(found, ours.map(|path| root.path().join(path)));
    }
}
