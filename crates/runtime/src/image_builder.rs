//! What the services need of whatever makes and keeps images.
//!
//! This is apart from [`Runtime`](crate::Runtime), because a cluster runs images that are built elsewhere and fetched
//! from a registry. A Docker Engine is both.
//!
//! What [`Runtime`](crate::Runtime) guarantees holds here too: only images of this installation, repeatable calls, and
//! [`Error::is_engine_away`] when it is not known whether anything was done.

use crate::build::{BuildError, BuildSpec};
use crate::error::Error;
use crate::image::{Image, OwnImage, OwnImageEntry};
use crate::package_cache::{BuiltCache, CacheKey, SavedCache};
use crate::pull::{PullProgress, RegistryLogin};
use crate::runtime::Call;
use bytes::Bytes;
use estrade_model::image_ref::ImageRef;
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::fmt;
use std::io;
use tokio::io::AsyncWrite;

/// The directory to build from: a tar, in parts.
pub type BuildContext = BoxStream<'static, io::Result<Bytes>>;

/// Makes, fetches, names and removes the images that releases run.
pub trait ImageBuilder: fmt::Debug + Send + Sync {
    /// Whether the engine is reachable: any response will do.
    fn ping(&self) -> Call<'_, ()>;

    /// Bytes that are free where images are kept; none: not known, as when that is on another machine.
    fn free_disk(&self) -> BoxFuture<'_, Option<u64>>;

    /// The name of a release's image, by which a runtime finds it. Computed, without a call to the engine.
    fn image_name(&self, image: OwnImage) -> ImageRef;

    /// The local image of that name; none: there is none. Registries are not queried.
    fn image<'a>(&'a self, name: &'a ImageRef) -> Call<'a, Option<Image>>;

    /// Gives an image that is here the name of a release's image, too.
    fn tag<'a>(&'a self, image: &'a ImageRef, own: OwnImage) -> Call<'a, ()>;

    /// Pulls an image from its registry, for a release whose image it becomes, or as the base of a build. Lazy: nothing
    /// happens until the result is polled.
    fn pull<'a>(
        &'a self,
        name: &'a ImageRef,
        image: Option<OwnImage>,
        login: Option<&'a RegistryLogin>,
    ) -> Call<'a, Box<dyn Pull>>;

    /// Builds an image out of a directory, which is streamed to the engine. Its steps run in the owner's network, which
    /// must exist. Lazy: nothing happens until the result is polled.
    fn build(&self, spec: &BuildSpec, context: BuildContext) -> Box<dyn Build>;

    /// The label with which every stage of a project's builds begins, so that layers are shared neither between owners nor
    /// between projects. `args` are the build's arguments.
    fn cache_label(&self, owner: OwnerId, project: ProjectId, args: &[(&str, &str)]) -> String;

    /// The id of the image that a build begins with instead of its base, to have the package manager's cache of earlier
    /// builds; none: there is no such cache. A build that installs the same as the last one gets what that one began with, so
    /// that its layers are used again. To be called once for a build that is about to begin.
    fn use_cache<'a>(&'a self, key: &'a CacheKey, now: Timestamp) -> Call<'a, Option<ImageRef>>;

    /// Keeps the package manager's cache of a build that has succeeded for later builds of its project.
    fn save_cache<'a>(&'a self, built: &'a BuiltCache, now: Timestamp) -> Call<'a, SavedCache>;

    /// The projects that have caches.
    fn projects_with_caches(&self) -> Call<'_, Vec<ProjectId>>;

    /// Removes the caches of these projects.
    fn remove_caches<'a>(&'a self, projects: &'a [ProjectId]) -> Call<'a, ()>;

    /// Removes caches that no build has used since then, and those that others have replaced. One whose saving
    /// began before `made_before` was broken off. Whether that was all: none is removed while something is built.
    fn prune_caches(&self, used_before: Timestamp, made_before: Timestamp) -> Call<'_, bool>;

    /// Writes a folder of a release's image as a tar. Nothing of the image is run. When this fails, what was written is
    /// not whole.
    fn copy_folder<'a>(
        &'a self,
        image: OwnImage,
        folder: &'a str,
        into: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> Call<'a, ()>;

    /// Records that a build uses an image as its base, which was pulled for that now or earlier.
    fn note_base<'a>(&'a self, name: &'a ImageRef, fetched: bool, now: Timestamp) -> Call<'a, ()>;

    /// Every image of a release, of this installation.
    fn list_images(&self) -> Call<'_, Vec<OwnImageEntry>>;

    /// Removes the image of a release, or its name if the image has others. One that is needed is a conflict, and so is
    /// any while something is built.
    fn remove_image(&self, image: OwnImage) -> Call<'_, ()>;

    /// Removes what builds left behind and none has used since then; until that it serves as cache.
    fn prune_images(&self, made_before: Timestamp) -> Call<'_, ()>;

    /// Removes images that were pulled as bases of builds and have not been used since then.
    fn prune_bases(&self, used_before: Timestamp) -> Call<'_, ()>;

    /// Removes what [`ImageBuilder::copy_folder`] made before then and a crash left behind.
    fn prune_temporary(&self, made_before: Timestamp) -> Call<'_, ()>;

    /// The releases whose builds left layers behind.
    fn releases_with_layers(&self) -> Call<'_, Vec<ReleaseId>>;

    /// Removes the layers that the builds of these releases left behind; whether any was. Those that others stand on
    /// stay.
    fn remove_layers<'a>(&'a self, releases: &'a [ReleaseId]) -> Call<'a, bool>;
}

/// A running build. It makes progress only while its lines are read; dropping it cancels it.
pub trait Build: Send {
    /// The next line of the log, with secrets masked; none: the build has ended. Nothing is lost when this is dropped
    /// half-way and called again.
    fn next_line(&mut self) -> BoxFuture<'_, Option<String>>;

    /// How it ended, once it has.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ImageRef, BuildError>>;
}

/// A running pull. It makes progress only while it is read; dropping it cancels it.
pub trait Pull: Send {
    /// What happens next; none: it has ended.
    fn next_progress(&mut self) -> BoxFuture<'_, Option<PullProgress>>;

    /// How it ended, once it has. The image of a release then has the release's name.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>>;
}
