//! What an instance shall be, and how that is said to the engine.

use crate::docker::engine::Engine;
use crate::docker::labels::{DISK, INSTANCE, InstanceKey, OWNER, PORT, PROJECT, RELEASE, SPEC};
use crate::docker::volumes::VolumeKey;
use crate::image_ref::ImageRef;
use bollard::models;
use estrade_model::secret::Secret;
use std::collections::HashMap;
use std::net::IpAddr;

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

/// The engine keeps so many files of this size of what an instance has written: room for a burst, until
/// somebody has read it.
const LOG_FILES: &str = "3";
const LOG_FILE: &str = "16m";

/// What an instance shall be.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// Which one it is.
    pub key: InstanceKey,
    /// Raise it to get a new container where everything else stays the same.
    pub revision: u32,
    /// What to run.
    pub image: ImageRef,
    /// The command, instead of the image's.
    pub command: Option<Vec<String>>,
    /// Environment variables. Their values do not show in `Debug`.
    pub env: Vec<(String, Secret)>,
    /// The port that it listens on.
    pub port: u16,
    /// What it may use.
    pub limits: Limits,
    /// The user to run as, instead of the image's.
    pub user: Option<String>,
    /// Whether only volumes and `tmpfs` can be written to.
    pub read_only_root: bool,
    /// Directories in memory, besides `/tmp` or instead of it. They count as memory of the instance.
    pub tmpfs: Vec<Tmpfs>,
    /// Volumes.
    pub mounts: Vec<Mount>,
    /// Names in `/etc/hosts`, such as one for the AI listener.
    pub hosts: Vec<(String, IpAddr)>,
}

/// What an instance may use. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory, without any swap.
    pub memory: u64,
    /// CPU time, in billionths of a core; no more than the machine has.
    pub nano_cpus: u64,
    /// Processes and threads.
    pub pids: u32,
    /// What it may add to its root; held by the engine where it can.
    pub disk: u64,
    /// The size of `/tmp`, which is in memory.
    pub tmp: u64,
}

/// A directory in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmpfs {
    /// Where it is.
    pub path: String,
    /// How much fits in.
    pub size: u64,
}

/// A volume and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The volume.
    pub volume: VolumeKey,
    /// Where it is.
    pub path: String,
    /// Whether it can only be read.
    pub read_only: bool,
}

impl InstanceSpec {
    /// What it shall be, in short. Two containers of one instance are the same if this is; a plan, a
    /// variable or a revision that changes gives another one.
    pub fn digest(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        let env = self.env.iter().map(|(name, value)| (name, value.expose()));
        let rest = (
            &self.image,
            &self.command,
            self.revision,
            self.port,
            &self.limits,
            &self.user,
            self.read_only_root,
            &self.tmpfs,
            &self.mounts,
            &self.hosts,
        );
        add(format!("{rest:?}").as_bytes());
        for (name, value) in env {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        hex::encode(&hash.finalize().as_bytes()[..8])
    }
}

impl Engine {
    /// The container's name. It says what it is made from, so making the same again finds the first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::{OwnerId, ProjectId, ReleaseId};

    fn spec() -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey {
                owner: OwnerId::generate(1, 1),
                project: ProjectId::generate(1, 1),
                release: ReleaseId::generate(1, 1),
                number: 1,
            },
            revision: 0,
            image: "app".parse().unwrap(),
            command: None,
            env: vec![("TOKEN".into(), Secret("hush".into()))],
            port: 80,
            limits: Limits {
                memory: 1 << 20,
                nano_cpus: 1,
                pids: 1,
                disk: 1,
                tmp: 1,
            },
            user: None,
            read_only_root: false,
            tmpfs: Vec::new(),
            mounts: Vec::new(),
            hosts: Vec::new(),
        }
    }

    #[test]
    fn the_digest_changes_with_everything_that_makes_another_container() {
        let changes: [fn(&mut InstanceSpec); 7] = [
            |spec| spec.revision = 1,
            |spec| spec.env[0].1 = Secret("other".into()),
            |spec| spec.env[0].0 = "TOKE".into(),
            |spec| spec.limits.memory += 1,
            |spec| spec.command = Some(vec!["x".into()]),
            |spec| spec.image = "app:2".parse().unwrap(),
            |spec| spec.read_only_root = true,
        ];
        let digest = spec().digest();
        for change in changes {
            let mut other = spec();
            change(&mut other);
            assert_ne!(other.digest(), digest, "{other:?}");
        }
        assert_eq!(spec().digest(), digest);
    }

    #[test]
    fn secrets_do_not_show() {
        assert!(!format!("{:?}", spec()).contains("hush"));
    }
}
