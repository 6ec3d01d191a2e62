//! The Docker Engine as an [`ImageBuilder`]: its images are where its instances find them.

use crate::build::{BuildError, BuildSpec};
use crate::docker::builds::DockerBuild;
use crate::docker::engine::Engine;
use crate::docker::pulls::DockerPull;
use crate::error::Error;
use crate::image::{Image, OwnImage, OwnImageEntry};
use crate::image_builder::{Build, BuildContext, ImageBuilder, Pull};
use crate::package_cache::{BuiltCache, CacheKey, SavedCache};
use crate::pull::{PullProgress, RegistryLogin};
use crate::runtime::Call;
use estrade_model::image_ref::ImageRef;
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};
use futures_util::future::BoxFuture;
use std::path::Path;
use tokio::io::AsyncWrite;

impl ImageBuilder for Engine {
    fn ping(&self) -> Call<'_, ()> {
        Box::pin(async move { self.info().await.map(drop) })
    }

    fn free_disk(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async move {
            let info = self.info().await.ok()?;
            let measure = move || {
                let disk = rustix::fs::statvfs(Path::new(&info.data_root)).ok()?;
                Some(disk.f_bavail.saturating_mul(disk.f_frsize))
            };
            tokio::task::spawn_blocking(measure).await.ok()?
        })
    }

    fn image_name(&self, image: OwnImage) -> ImageRef {
        Engine::image_name(self, image)
    }

    fn image<'a>(&'a self, name: &'a ImageRef) -> Call<'a, Option<Image>> {
        Box::pin(Engine::image(self, name))
    }

    fn tag<'a>(&'a self, image: &'a ImageRef, own: OwnImage) -> Call<'a, ()> {
        Box::pin(Engine::tag(self, image, own))
    }

    fn pull<'a>(
        &'a self,
        name: &'a ImageRef,
        image: Option<OwnImage>,
        login: Option<&'a RegistryLogin>,
    ) -> Call<'a, Box<dyn Pull>> {
        Box::pin(async move {
            let pull = Engine::pull(self, name, image, login).await?;
            Ok(Box::new(pull) as Box<dyn Pull>)
        })
    }

    fn build(&self, spec: &BuildSpec, context: BuildContext) -> Box<dyn Build> {
        Box::new(Engine::build(self, spec, context))
    }

    fn cache_label(&self, owner: OwnerId, project: ProjectId, args: &[(&str, &str)]) -> String {
        Engine::cache_label(self, owner, project, args.iter().copied())
    }

    fn use_cache<'a>(&'a self, key: &'a CacheKey, now: Timestamp) -> Call<'a, Option<ImageRef>> {
        Box::pin(Engine::use_cache(self, key, now))
    }

    fn save_cache<'a>(&'a self, built: &'a BuiltCache, now: Timestamp) -> Call<'a, SavedCache> {
        Box::pin(Engine::save_cache(self, built, now))
    }

    fn projects_with_caches(&self) -> Call<'_, Vec<ProjectId>> {
        Box::pin(Engine::projects_with_caches(self))
    }

    fn remove_caches<'a>(&'a self, projects: &'a [ProjectId]) -> Call<'a, ()> {
        Box::pin(Engine::remove_caches(self, projects))
    }

    fn prune_caches(&self, used_before: Timestamp, made_before: Timestamp) -> Call<'_, bool> {
        Box::pin(Engine::prune_caches(self, used_before, made_before))
    }

    fn copy_folder<'a>(
        &'a self,
        image: OwnImage,
        folder: &'a str,
        into: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> Call<'a, ()> {
        Box::pin(Engine::copy_folder(self, image, folder, into))
    }

    fn note_base<'a>(&'a self, name: &'a ImageRef, fetched: bool, now: Timestamp) -> Call<'a, ()> {
        Box::pin(Engine::note_base(self, name, fetched, now))
    }

    fn list_images(&self) -> Call<'_, Vec<OwnImageEntry>> {
        Box::pin(Engine::images(self))
    }

    fn remove_image(&self, image: OwnImage) -> Call<'_, ()> {
        Box::pin(Engine::remove_image(self, image))
    }

    fn prune_images(&self, made_before: Timestamp) -> Call<'_, ()> {
        Box::pin(Engine::prune_images(self, made_before))
    }

    fn prune_bases(&self, used_before: Timestamp) -> Call<'_, ()> {
        Box::pin(Engine::prune_bases(self, used_before))
    }

    fn prune_temporary(&self, made_before: Timestamp) -> Call<'_, ()> {
        Box::pin(Engine::sweep_folders(self, made_before))
    }

    fn releases_with_layers(&self) -> Call<'_, Vec<ReleaseId>> {
        Box::pin(Engine::releases_with_layers(self))
    }

    fn remove_layers<'a>(&'a self, releases: &'a [ReleaseId]) -> Call<'a, bool> {
        Box::pin(Engine::remove_layers(self, releases))
    }
}

impl Build for DockerBuild {
    fn next_line(&mut self) -> BoxFuture<'_, Option<String>> {
        Box::pin(DockerBuild::next_line(self))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ImageRef, BuildError>> {
        Box::pin(DockerBuild::finish(*self))
    }
}

impl Pull for DockerPull {
    fn next_progress(&mut self) -> BoxFuture<'_, Option<PullProgress>> {
        Box::pin(DockerPull::next_progress(self))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(DockerPull::finish(*self))
    }
}
