//! Taking a folder out of an image: a build's result that is served and not run.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, WORK_TIMEOUT};
use crate::error::Error;
use crate::image::OwnImage;
use crate::instance::InstanceId;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptions, ListContainersOptions,
};
use estrade_model::Timestamp;
use estrade_model::image_ref::ImageRef;
use futures_util::TryStreamExt;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

const WHAT: &str = "taking files out of an image";
/// How long that may take.
const TIMEOUT: Duration = Duration::from_mins(5);
/// The label of a container that is only there to be read.
const READ_ONLY: &str = "estrade.reading";

impl Engine {
    /// Writes a folder of a release's image as a tar. Nothing of the image is run.
    pub async fn copy_folder(
        &self,
        image: OwnImage,
        folder: &str,
        into: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Result<(), Error> {
        let id = image.release.to_string();
        self.read_folder(&self.image_name(image), &id, folder, into)
            .await
    }

    /// Writes a folder of an image as a tar. `id` is of whoever reads it.
    pub(crate) async fn read_folder(
        &self,
        image: &ImageRef,
        id: &str,
        folder: &str,
        into: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Result<(), Error> {
        let name = format!("estrade-{}-reading-{id}", self.installation);
        // One of an attempt that broke off.
        self.remove_instance(&InstanceId(name.clone())).await?;
        let options = CreateContainerOptions {
            name: Some(name),
            ..Default::default()
        };
        let container = ContainerCreateBody {
            image: Some(image.to_string()),
            // An image without a command of its own could not be made into a container.
            cmd: Some(vec!["-".to_owned()]),
            labels: Some(self.installation.labels([(READ_ONLY, String::new())])),
            ..Default::default()
        };
        let created = self.docker.create_container(Some(options), container);
        let id = InstanceId(self.call(WHAT, WORK_TIMEOUT, created).await?.id);
        let copied = self.copy(&id, folder, into).await;
        self.remove_instance(&id).await?;
        copied
    }

    async fn copy(
        &self,
        id: &InstanceId,
        folder: &str,
        into: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Result<(), Error> {
        let options = DownloadFromContainerOptions {
            path: folder.to_owned(),
        };
        let mut pieces = self.docker.download_from_container(&id.0, Some(options));
        let copying = async {
            while let Some(piece) = pieces.try_next().await? {
                into.write_all(&piece).await?;
            }
            into.flush().await?;
            Ok(())
        };
        self.call(WHAT, TIMEOUT, copying).await
    }

    /// Removes containers that were made to be read before then, and were left behind by a crash.
    pub async fn sweep_folders(&self, made_before: Timestamp) -> Result<(), Error> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(self.installation.filter(&[READ_ONLY.to_owned()])),
            ..Default::default()
        };
        let listed = self.docker.list_containers(Some(options));
        for summary in self.call(WHAT, QUICK_TIMEOUT, listed).await? {
            let old = summary.created.unwrap_or(0) < made_before.seconds();
            if let (true, Some(id)) = (old, summary.id) {
                self.remove_instance(&InstanceId(id)).await?;
            }
        }
        Ok(())
    }
}
