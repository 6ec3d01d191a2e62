//! The container of an instance, as a request to the engine.

use crate::docker::engine::Engine;
use crate::docker::labels::{DISK, INSTANCE, OWNER, PORT, PROJECT, RELEASE, SPEC};
use crate::instance::InstanceKey;
use crate::instance_spec::InstanceSpec;
use bollard::models;
use std::collections::HashMap;

/// What a web application needs of root's powers when it begins as root: to own and read its files, to become
/// another user, to stop its workers, to listen on a low port. Not: raw sockets, devices, mounts.
const CAPABILITIES: [&str; 7] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
];

/// The engine keeps so many files of this size of an instance's output: room for a burst, until the log
/// collector has read it.
const LOG_FILES: &str = "3";
const LOG_FILE: &str = "16m";

impl Engine {
    /// The container's name. It is derived from its spec, so creating the same again finds the first.
    pub(crate) fn container_name(&self, spec: &InstanceSpec) -> String {
        let InstanceKey {
            release, number, ..
        } = spec.key;
        format!(
            "estrade-{}-{release}-{number}-{}",
            self.installation,
            spec.digest()
        )
    }

    pub(crate) fn container(
        &self,
        spec: &InstanceSpec,
        quota: bool,
        most_cpus: u64,
    ) -> models::ContainerCreateBody {
        let InstanceKey {
            owner,
            project,
            release,
            number,
        } = spec.key;
        let labels = self.installation.labels([
            (OWNER, owner.to_string()),
            (PROJECT, project.to_string()),
            (RELEASE, release.to_string()),
            (INSTANCE, number.to_string()),
            (PORT, spec.port.to_string()),
            (SPEC, spec.digest()),
            (DISK, if quota { "quota" } else { "watch" }.to_owned()),
        ]);
        let env = spec
            .env
            .iter()
            .map(|(name, value)| format!("{name}={}", value.expose()));
        models::ContainerCreateBody {
            image: Some(spec.image.as_str().to_owned()),
            cmd: spec.command.clone(),
            env: Some(env.collect()),
            user: spec.user.clone(),
            labels: Some(labels),
            // Estrade probes from outside; the image's own check would only cost.
            healthcheck: Some(models::HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..Default::default()
            }),
            host_config: Some(self.host_config(spec, quota, most_cpus)),
            ..Default::default()
        }
    }

    fn host_config(&self, spec: &InstanceSpec, quota: bool, most_cpus: u64) -> models::HostConfig {
        let limits = &spec.limits;
        let number = |n: u64| Some(i64::try_from(n).unwrap_or(i64::MAX));
        let mounts = spec.mounts.iter().map(|mount| models::Mount {
            typ: Some(models::MountType::VOLUME),
            source: Some(self.volume_name(&mount.volume)),
            target: Some(mount.path.clone()),
            read_only: Some(mount.read_only),
            ..Default::default()
        });
        let size = || HashMap::from([("size".to_owned(), limits.disk.to_string())]);
        models::HostConfig {
            memory: number(limits.memory),
            // Memory and swap together: none of it is swap.
            memory_swap: number(limits.memory),
            nano_cpus: number(limits.nano_cpus.min(most_cpus)),
            pids_limit: Some(i64::from(limits.pids)),
            storage_opt: quota.then(size),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(CAPABILITIES.map(str::to_owned).into()),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            readonly_rootfs: Some(spec.read_only_root),
            tmpfs: Some(tmpfs(spec)),
            mounts: Some(mounts.collect()),
            init: Some(true),
            network_mode: Some(self.network_name(spec.key.owner)),
            extra_hosts: Some(
                spec.hosts
                    .iter()
                    .map(|(name, ip)| format!("{name}:{ip}"))
                    .collect(),
            ),
            cgroupns_mode: Some(models::HostConfigCgroupnsModeEnum::PRIVATE),
            log_config: Some(models::HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from([
                    ("max-size".to_owned(), LOG_FILE.to_owned()),
                    ("max-file".to_owned(), LOG_FILES.to_owned()),
                ])),
            }),
            // Whether and when to start again is decided by Estrade alone.
            restart_policy: Some(models::RestartPolicy {
                name: Some(models::RestartPolicyNameEnum::NO),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn tmpfs(spec: &InstanceSpec) -> HashMap<String, String> {
    let options = |size: u64| format!("rw,exec,nosuid,nodev,mode=1777,size={size}");
    let is_tmp = |path: &String| path.trim_end_matches('/') == "/tmp";
    let other = spec.mounts.iter().any(|mount| is_tmp(&mount.path))
        || spec.tmpfs.iter().any(|dir| is_tmp(&dir.path));
    let tmp = (!other).then(|| ("/tmp".to_owned(), options(spec.limits.tmp)));
    let others = spec
        .tmpfs
        .iter()
        .map(|dir| (dir.path.clone(), options(dir.size)));
    tmp.into_iter().chain(others).collect()
}
