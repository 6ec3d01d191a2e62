//! What the instances of a release are made from.

use super::health::HealthCheck;
use crate::platform::disks::mounts;
use crate::platform::envs::open_release_env;
use crate::platform::releases::open_settings;
use crate::{Core, Error, Result};

use estrade_model::plan::Plan;
use estrade_model::secret::Secret;
use estrade_model::{ProjectId, ReleaseId};
use estrade_runtime::{
    ImageRef, InstanceKey, InstanceSpec, Limits, Mount, OwnImage, Tmpfs, VolumeKey, VolumeName,
};
use estrade_store::disks;
use estrade_store::workloads::{self, RunRow, WorkloadRow};
use serde_json::{Map, Value};

const MEBIBYTE: u64 = 1 << 20;
const NANO: u64 = 1_000_000_000;
/// The largest `/tmp`, which is in memory.
const MAX_TMP: u64 = 256 * MEBIBYTE;

/// A release of a project, and all that its instances depend on.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) project: WorkloadRow,
    pub(super) run: RunRow,
    pub(super) health: HealthCheck,
    image: ImageRef,
    command: Option<Vec<String>>,
    env: Vec<(String, Secret)>,
    limits: Limits,
    /// Where its image wants volumes of its own.
    volumes: Vec<String>,
    /// The disks that it mounts, with their sizes in bytes.
    disks: Vec<(Mount, u64)>,
    /// A disk that it mounts and that was deleted.
    pub(super) missing: Option<String>,
}

impl Workload {
    /// Reads it; none when the release has no image.
    pub(super) async fn read(
        core: &Core,
        project: WorkloadRow,
        release: ReleaseId,
    ) -> Result<Option<Self>> {
        let Some(run) = workloads::read_run(&core.db, release).await? else {
            return Ok(None);
        };
        let id = project.project;
        let settings = open_settings(core, id, &run.settings)?;
        let health = HealthCheck::read(&settings, core.settings.containers.health_limit);
        let command = run.command.as_deref().map(serde_json::from_str).transpose();
        let (disks, missing) = disks_of(core, &project, &settings).await?;
        Ok(Some(Self {
            health,
            missing,
            image: core.image_builder.image_name(OwnImage {
                project: id,
                release: run.image,
            }),
            command: command.map_err(Error::internal)?,
            volumes: serde_json::from_str(&run.volumes).map_err(Error::internal)?,
            disks,
            env: environment(core, id, &run)?,
            limits: limits(core.settings.plans.get(&project.plan)),
            project,
            run,
        }))
    }

    /// What its instances are made from.
    pub(super) fn image(&self) -> &ImageRef {
        &self.image
    }

    /// The instance of that number, from 1.
    pub(super) fn spec(&self, number: u32) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey {
                owner: self.project.owner,
                project: self.project.project,
                release: self.run.release,
                number,
            },
            revision: self.project.revision,
            image: self.image.clone(),
            command: self.command.clone(),
            env: self.env.clone(),
            port: self.run.port,
            limits: self.limits,
            user: None,
            read_only_root: self.project.read_only_root,
            tmpfs: self.own_volumes(),
            mounts: self.disks.iter().map(|(mount, _)| mount.clone()).collect(),
            hosts: Vec::new(),
        }
    }
}

impl Workload {
    /// What the image wants as volumes of its own is kept in memory, where the project has no disk there:
    /// a volume of the engine would have no limit.
    fn own_volumes(&self) -> Vec<Tmpfs> {
        let is_disk = |path: &String| self.disks.iter().any(|(mount, _)| mount.path == *path);
        let tmpfs = |path: &String| Tmpfs {
            path: path.clone(),
            size: self.limits.tmp,
        };
        let volumes = self.volumes.iter().filter(|path| !is_disk(path));
        volumes.map(tmpfs).collect()
    }

    /// Makes the volumes that its instances mount, where they are not there yet.
    pub(super) async fn ensure_disks(
        &self,
        core: &Core,
    ) -> std::result::Result<(), estrade_runtime::Error> {
        for (mount, size) in &self.disks {
            core.runtime.ensure_volume(&mount.volume, *size).await?;
        }
        Ok(())
    }
}

/// What a release mounts, as far as its project still has it, and the name of one that it does not have.
async fn disks_of(
    core: &Core,
    project: &WorkloadRow,
    settings: &Map<String, Value>,
) -> Result<(Vec<(Mount, u64)>, Option<String>)> {
    let mounts = mounts(settings)?;
    if mounts.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut missing = None;
    let disks = disks::read_disks(&core.db, project.project).await?;
    let mount = |(name, path): (VolumeName, String)| {
        let name = name.to_string();
        let Some(disk) = disks.iter().find(|disk| disk.name == name) else {
            missing = Some(name);
            return None;
        };
        // By its id: another disk of the same name later is another volume.
        let name = disk.id.to_string().parse().ok()?;
        let mount = Mount {
            volume: VolumeKey {
                owner: project.owner,
                project: project.project,
                name,
            },
            path,
            read_only: false,
        };
        Some((mount, disk.size.saturating_mul(1 << 30)))
    };
    let there = mounts.into_iter().filter_map(mount).collect();
    Ok((there, missing))
}

/// The environment of instances; `PORT` cannot be overridden, because requests are sent to it.
fn environment(core: &Core, project: ProjectId, run: &RunRow) -> Result<Vec<(String, Secret)>> {
    let mut all = match &run.env {
        Some(sealed) => open_release_env(core, project, sealed)?,
        None => {
            return Err(Error::internal(
                "a release runs before its variables were chosen",
            ));
        }
    };
    all.insert("PORT".to_owned(), run.port.to_string());
    Ok(all
        .into_iter()
        .map(|(key, value)| (key, Secret(value)))
        .collect())
}

/// What a plan grants. One that the configuration no longer has grants as little as the smallest.
fn limits(plan: Option<&Plan>) -> Limits {
    let (memory, cpus, disk) = plan.map_or((512, 1, 1 << 30), |plan| {
        (plan.memory_mb, plan.cpus, plan.disk_bytes())
    });
    let memory = memory.saturating_mul(MEBIBYTE);
    Limits {
        memory,
        nano_cpus: cpus.saturating_mul(NANO),
        pids: match memory / MEBIBYTE {
            0..=1024 => 256,
            1025..=4096 => 512,
            _ => 1024,
        },
        disk,
        tmp: (memory / 4).min(MAX_TMP),
    }
}
