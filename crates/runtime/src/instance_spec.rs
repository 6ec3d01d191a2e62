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
    ///
    /// Running containers have it in a label, and one with another digest is replaced: so it must stay the same across
    /// upgrades. What is hashed is written in an encoding of its own ([`digest_v1`]), not in the names of these types.
    pub fn digest(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(digest_v1::encode(self).as_bytes());
        for (name, value) in &self.env {
            let value = value.expose();
            add(name.as_bytes());
            add(value.as_bytes());
        }
        hex::encode(&hash.finalize().as_bytes()[..8])
    }
}

/// The first version of what [`InstanceSpec::digest`] hashes, besides the variables.
///
/// It was the `Debug` text of the types above. These copies have the names of then, so that fields can be renamed
/// without a restart of every container. A new field belongs into a second version, for those specs alone that use it.
mod digest_v1 {
    use std::net::IpAddr;

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct ImageRef<'a>(&'a str);

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct Limits {
        memory: u64,
        nano_cpus: u64,
        pids: u32,
        disk: u64,
        tmp: u64,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct Tmpfs<'a> {
        path: &'a str,
        size: u64,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct Mount<'a> {
        volume: VolumeKey<'a>,
        path: &'a str,
        read_only: bool,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct VolumeKey<'a> {
        owner: Plain,
        project: Plain,
        name: VolumeName<'a>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct VolumeName<'a>(&'a str);

    /// Text without quotes.
    struct Plain(String);

    impl std::fmt::Debug for Plain {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    pub(super) fn encode(spec: &super::InstanceSpec) -> String {
        // Every field by name: a new one does not compile until it is decided whether it changes the digest.
        let super::InstanceSpec {
            key: _,
            env: _,
            revision,
            image,
            command,
            port,
            limits,
            user,
            read_only_root,
            tmpfs,
            mounts,
            hosts,
        } = spec;
        let super::Limits {
            memory,
            nano_cpus,
            pids,
            disk,
            tmp,
        } = *limits;
        let tmpfs = tmpfs.iter().map(|it| Tmpfs {
            path: &it.path,
            size: it.size,
        });
        let mounts = mounts.iter().map(|it| Mount {
            volume: VolumeKey {
                owner: Plain(it.volume.owner.to_string()),
                project: Plain(it.volume.project.to_string()),
                name: VolumeName(it.volume.name.as_str()),
            },
            path: &it.path,
            read_only: it.read_only,
        });
        let hosts: &[(String, IpAddr)] = hosts;
        let fields = (
            ImageRef(image.as_str()),
            command,
            revision,
            port,
            Limits {
                memory,
                nano_cpus,
                pids,
                disk,
                tmp,
            },
            user,
            read_only_root,
            tmpfs.collect::<Vec<_>>(),
            mounts.collect::<Vec<_>>(),
            hosts,
        );
        format!("{fields:?}")
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

    /// Digests that earlier versions have written into labels of containers that still run.
    #[test]
    fn the_digest_is_that_of_earlier_versions() {
        assert_eq!(spec().digest(), "20abc28b81423f4f");
        let full = InstanceSpec {
            revision: 3,
            command: Some(vec!["sh".into(), "-c".into(), "echo \"hi\"\n".into()]),
            user: Some("1000:1000".into()),
            read_only_root: true,
            tmpfs: vec![Tmpfs {
                path: "/run".into(),
                size: 65536,
            }],
            mounts: vec![Mount {
                volume: VolumeKey {
                    owner: "0123456789abcdef01234567".parse().unwrap(),
                    project: "89abcdef0123456789abcdef".parse().unwrap(),
                    name: "data".parse().unwrap(),
                },
                path: "/data".into(),
                read_only: false,
            }],
            hosts: vec![
                ("ai".into(), "172.17.0.1".parse().unwrap()),
                ("ai".into(), "fd00::1".parse().unwrap()),
            ],
            ..spec()
        };
        assert_eq!(full.digest(), "03109ac8889f4e4b");
    }

    #[test]
    fn secrets_do_not_show() {
        assert!(!format!("{:?}", spec()).contains("hush"));
    }
}
