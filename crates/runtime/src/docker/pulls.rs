//! Pulls: an image comes from its registry.

use crate::docker::engine::Engine;
use crate::error::Error;
use crate::image::OwnImage;
use crate::pull::{PullProgress, RegistryLogin};
use bollard::auth::DockerCredentials;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptions;
use estrade_model::image_ref::ImageRef;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::time::Duration;
use tokio::time::timeout;

const WHAT: &str = "pulling an image";
/// How long a pull may be silent.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(2);

/// A running pull. It makes progress only while it is read; dropping it cancels it.
pub struct DockerPull {
    engine: Engine,
    name: ImageRef,
    image: Option<OwnImage>,
    /// Whether the engine had an image of that name before.
    known: bool,
    messages: BoxStream<'static, Result<CreateImageInfo, bollard::errors::Error>>,
    ended: Option<Result<(), Error>>,
}

impl Engine {
    /// Fetches an image from its registry, for a release whose image it becomes, or to build on.
    pub async fn pull(
        &self,
        name: &ImageRef,
        image: Option<OwnImage>,
        login: Option<&RegistryLogin>,
    ) -> Result<DockerPull, Error> {
        let options = CreateImageOptions {
            from_image: Some(name.as_str().to_owned()),
            ..Default::default()
        };
        let credentials = login.map(|login| DockerCredentials {
            username: Some(login.user.clone()),
            password: Some(login.password.expose().to_owned()),
            ..Default::default()
        });
        Ok(DockerPull {
            engine: self.clone(),
            name: name.clone(),
            image,
            known: self.image(name).await?.is_some(),
            messages: self
                .docker
                .create_image(Some(options), None, credentials)
                .boxed(),
            ended: None,
        })
    }
}

impl DockerPull {
    /// What happens next; none: it has ended, and [`DockerPull::finish`] knows how.
    pub async fn next_progress(&mut self) -> Option<PullProgress> {
        if self.ended.is_some() {
            return None;
        }
        self.ended = Some(match timeout(SILENCE_TIMEOUT, self.messages.next()).await {
            Ok(Some(Ok(message))) => return Some(read(message)),
            Ok(Some(Err(error))) => Err(Error::from_bollard(WHAT, error)),
            Ok(None) => Ok(()),
            Err(_) => Err(Error::TimedOut(WHAT)),
        });
        None
    }

    /// How it ended, once it has. The image of a release then has the release's name; its own stays only if
    /// it was there before, so that it goes with the release.
    pub async fn finish(mut self) -> Result<(), Error> {
        while self.next_progress().await.is_some() {}
        self.ended.unwrap_or(Ok(()))?;
        if let Some(image) = self.image {
            self.engine.tag(&self.name, image).await?;
            if !self.known {
                self.engine.untag(&self.name).await?;
            }
        }
        Ok(())
    }
}

fn read(message: CreateImageInfo) -> PullProgress {
    let bytes = message.progress_detail.and_then(|detail| {
        let number = |n: Option<i64>| u64::try_from(n?).ok();
        Some((number(detail.current)?, number(detail.total)?))
    });
    PullProgress {
        layer: message.id,
        status: message.status.unwrap_or_default(),
        bytes,
    }
}
