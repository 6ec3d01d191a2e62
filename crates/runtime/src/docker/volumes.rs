//! Volumes: what an instance keeps across releases.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, WORK_TIMEOUT};
use crate::docker::labels::{self, OWNER, PROJECT, VOLUME};
use crate::error::Error;
use crate::volume::VolumeKey;
use bollard::models;
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};
use std::collections::HashMap;

/// Disk use as API 1.41 tells it, and as 1.52 does.
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DiskUse {
    volumes: Option<Vec<models::Volume>>,
    volume_usage: Option<VolumeUsage>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeUsage {
    items: Option<Vec<models::Volume>>,
}

impl Engine {
    /// Makes a volume if it is not there yet. To be called before each start of an instance that has it: after a
    /// restart of the machine a disk has to be mounted again. Its size in bytes is held by the engine where it
    /// can, else by a disk of that size ([`Engine::with_disks`]); returns whether it is.
    pub async fn ensure_volume(&self, key: &VolumeKey, size: u64) -> Result<bool, Error> {
        if self.has_quota().await? {
            let options = HashMap::from([("size".to_owned(), size.to_string())]);
            match self.create_volume(key, Some(options)).await {
                Err(Error::Refused { message, .. }) if message.contains("quota") => {
                    self.quota_refused();
                }
                other => return other.map(|()| true),
            }
        }
        let Some(disks) = &self.disks else {
            return self.create_volume(key, None).await.map(|()| false);
        };
        let name = self.volume_name(key);
        let place = disks.place(&name).to_string_lossy().into_owned();
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let options = [
            option("type", "none"),
            option("o", "bind"),
            option("device", &place),
        ];
        self.create_volume(key, Some(options.into())).await?;
        disks.ensure(name, size).await.map(|()| true)
    }

    /// Whether a volume exists whose size the engine holds: it cannot be changed.
    pub async fn has_fixed_size(&self, key: &VolumeKey) -> Result<bool, Error> {
        Ok(self.has_quota().await? && self.has_volume(key).await?)
    }

    /// Makes the disk of a volume larger, if the volume exists and has one. While it is mounted, that needs the
    /// capability `CAP_SYS_RESOURCE`.
    pub async fn grow_volume(&self, key: &VolumeKey, size: u64) -> Result<(), Error> {
        let Some(disks) = &self.disks else {
            return Ok(());
        };
        if self.has_quota().await? || !self.has_volume(key).await? {
            return Ok(());
        }
        disks.grow(self.volume_name(key), size).await
    }

    /// How many bytes a volume holds, if it has a disk, which is mounted: its file system knows.
    pub async fn used_space(&self, key: &VolumeKey) -> Result<Option<u64>, Error> {
        match &self.disks {
            Some(disks) => disks.used_space(self.volume_name(key)).await,
            None => Ok(None),
        }
    }

    async fn has_volume(&self, key: &VolumeKey) -> Result<bool, Error> {
        let name = self.volume_name(key);
        let found = self.docker.inspect_volume(&name);
        match self
            .call("looking for a volume", QUICK_TIMEOUT, found)
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every volume of this installation.
    pub async fn volumes(&self) -> Result<Vec<VolumeKey>, Error> {
        let options = ListVolumesOptions {
            filters: Some(self.installation.filter(&[VOLUME.to_owned()])),
        };
        let listed = self.docker.list_volumes(Some(options));
        let listed = self.call("listing volumes", QUICK_TIMEOUT, listed).await?;
        Ok(listed
            .volumes
            .into_iter()
            .flatten()
            .filter_map(|volume| read(&volume))
            .collect())
    }

    /// How many bytes each volume holds. The engine counts files for it, of all volumes it has.
    pub async fn volume_use(&self) -> Result<Vec<(VolumeKey, u64)>, Error> {
        let path = "/system/df?type=volume&verbose=1";
        let used: DiskUse = self.get("measuring volumes", WORK_TIMEOUT, path).await?;
        let volumes = used.volumes.or_else(|| used.volume_usage?.items);
        let size = |volume: models::Volume| {
            let size = volume.usage_data.as_ref()?.size;
            let ours = self.installation.made(Some(&volume.labels));
            Some((read(&volume).filter(|_| ours)?, u64::try_from(size).ok()?))
        };
        Ok(volumes.into_iter().flatten().filter_map(size).collect())
    }

    /// Removes a volume with what is in it. One that is gone already is no error; one that an instance has is
    /// a conflict.
    pub async fn remove_volume(&self, key: &VolumeKey) -> Result<(), Error> {
        let what = "removing a volume";
        let name = self.volume_name(key);
        let removing = async {
            let found = self.docker.inspect_volume(&name).await?;
            if self.installation.made(Some(&found.labels)) {
                self.docker
                    .remove_volume(&name, None::<RemoveVolumeOptions>)
                    .await?;
            }
            Ok(())
        };
        match self.call(what, WORK_TIMEOUT, removing).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        match &self.disks {
            Some(disks) => disks.remove(name).await,
            None => Ok(()),
        }
    }

    /// What the engine calls it.
    pub(crate) fn volume_name(&self, key: &VolumeKey) -> String {
        format!("estrade-{}-{}-{}", self.installation, key.project, key.name)
    }

    async fn create_volume(
        &self,
        key: &VolumeKey,
        driver_opts: Option<HashMap<String, String>>,
    ) -> Result<(), Error> {
        let request = models::VolumeCreateRequest {
            name: Some(self.volume_name(key)),
            driver_opts,
            labels: Some(self.installation.labels([
                (OWNER, key.owner.to_string()),
                (PROJECT, key.project.to_string()),
                (VOLUME, key.name.to_string()),
            ])),
            ..Default::default()
        };
        let what = "making a volume";
        let created = self.docker.create_volume(request);
        let volume = self.call(what, QUICK_TIMEOUT, created).await?;
        // The engine returns an existing volume of that name.
        if self.installation.made(Some(&volume.labels)) {
            return Ok(());
        }
        let message = format!("{} is somebody else's", volume.name);
        Err(Error::Conflict { what, message })
    }
}

fn read(volume: &models::Volume) -> Option<VolumeKey> {
    Some(VolumeKey {
        owner: labels::read(&volume.labels, OWNER)?,
        project: labels::read(&volume.labels, PROJECT)?,
        name: labels::read(&volume.labels, VOLUME)?,
    })
}
