//! What an instance shall be.

use crate::instance::InstanceKey;
use crate::volume::VolumeKey;
use estrade_model::image_ref::ImageRef;
use estrade_model::secret::Secret;
use std::net::IpAddr;

/// What an instance shall be.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// Which one it is.
    pub key: InstanceKey,
    /// Raise it to get a new container where everything else stays the same.
    pub revision: u32,
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
    pub path: String,
    /// How much fits in.
    pub size: u64,
}

/// A volume and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub volume: VolumeKey,
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
