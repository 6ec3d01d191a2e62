//! Images: the ones that releases run, and what is left of making them.
//!
//! Ours are known by their names: `estrade-<installation>/<project>:<release>`. An image that a user names gets
//! such a name beside its own, so that removing a release's image removes our name of it and never that of
//! other users of the engine.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, SETTLE_DELAY, WORK_TIMEOUT};
use crate::docker::labels::PACKAGES;
use crate::error::Error;
use crate::image::{Image, OwnImage, OwnImageEntry};
use bollard::models;
use bollard::query_parameters::{
    CreateImageOptions, ListImagesOptions, PruneImagesOptions, RemoveImageOptions, TagImageOptions,
};
use bytes::Bytes;
use estrade_model::built_image::{LAYERS, PREFIX};
use estrade_model::image_ref::ImageRef;
use estrade_model::{ReleaseId, Timestamp};
use futures_util::{Stream, TryStreamExt};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What the engine says when somebody else has removed the image, or a layer below that goes with it, at the same moment.
const REMOVED_MEANWHILE: &str = "unrecognized image ID";
/// How long the import of a tar may take.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(10);

impl Engine {
    /// The image of that name, if the engine has it.
    pub async fn image(&self, name: &ImageRef) -> Result<Option<Image>, Error> {
        self.inspect_image(name).await?.map(read).transpose()
    }

    /// What the engine says of an image, if it has it.
    pub(crate) async fn inspect_image(
        &self,
        name: &ImageRef,
    ) -> Result<Option<models::ImageInspect>, Error> {
        let inspected = self.docker.inspect_image(name.as_str());
        match self
            .call("looking at an image", QUICK_TIMEOUT, inspected)
            .await
        {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an image out of the tar of a root directory.
    pub async fn import(
        &self,
        name: &ImageRef,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), Error> {
        let (repo, tag) = split(name);
        let options = CreateImageOptions {
            from_src: Some("-".to_owned()),
            repo: Some(repo.to_owned()),
            tag: Some(tag.to_owned()),
            ..Default::default()
        };
        let body = bollard::body_try_stream(tar);
        let imported = self.docker.create_image(Some(options), Some(body), None);
        self.call(
            "importing an image",
            IMPORT_TIMEOUT,
            imported.try_for_each(|_| async { Ok(()) }),
        )
        .await
    }

    /// The name of a release's image.
    pub fn image_name(&self, image: OwnImage) -> ImageRef {
        ImageRef::trusted(format!(
            "{}:{}",
            self.repository(&image.project.to_string()),
            image.release
        ))
    }

    /// Gives an image the name of a release's image, too.
    pub async fn tag(&self, image: &ImageRef, own: OwnImage) -> Result<(), Error> {
        self.tag_as(image.as_str(), &self.image_name(own)).await
    }

    /// Removes the name of a release's image, and the image if it has no other. One that is gone already
    /// is no error; one that a container needs is a conflict, and so is any while something is built.
    pub async fn remove_image(&self, own: OwnImage) -> Result<(), Error> {
        self.remove(&self.image_name(own)).await
    }

    /// Every image of a release, of this installation.
    pub async fn images(&self) -> Result<Vec<OwnImageEntry>, Error> {
        let prefix = format!("{}/", self.repositories());
        let mut entries = Vec::new();
        for summary in self.list_images("*").await? {
            let names = summary
                .repo_tags
                .iter()
                .filter_map(|tag| tag.strip_prefix(&prefix));
            entries.extend(names.filter_map(|name| {
                let (project, release) = name.split_once(':')?;
                Some(OwnImageEntry {
                    image: OwnImage {
                        project: project.parse().ok()?,
                        release: release.parse().ok()?,
                    },
                    size: u64::try_from(summary.size).unwrap_or(0),
                    created: seconds(summary.created),
                })
            }));
        }
        Ok(entries)
    }

    /// Removes what builds left behind: stages and layers that no build has made or used since then, those that stand
    /// on a package manager's cache that is gone, and images of ours that have lost their name. They serve as cache until they go.
    pub async fn prune_images(&self, made_before: Timestamp) -> Result<(), Error> {
        // Layers before caches: one that a build is making stands on a cache that is there.
        let layers = self.list_images(LAYERS).await?;
        let caches = self.cache_marks().await?;
        for summary in layers {
            let cache = summary.labels.get(PACKAGES);
            let is_stale = cache.is_some_and(|cache| !caches.contains(cache));
            for tag in unused_names(summary, made_before, is_stale) {
                match self.remove(&ImageRef::trusted(tag)).await {
                    // A newer layer or a container stands on it, or a build may.
                    Ok(()) | Err(Error::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let own = self.installation.filter(&[]);
        // Layers that got no name, such as those of a step whose output hid them.
        let layers = HashMap::from([("label".to_owned(), vec![self.installation.cache_label()])]);
        for mut filters in [own, layers] {
            filters.insert("dangling".to_owned(), vec!["true".to_owned()]);
            filters.insert("until".to_owned(), vec![made_before.seconds().to_string()]);
            self.prune_unnamed(filters).await?;
        }
        Ok(())
    }

    async fn prune_unnamed(&self, filters: HashMap<String, Vec<String>>) -> Result<(), Error> {
        let options = PruneImagesOptions {
            filters: Some(filters),
        };
        let deadline = Instant::now() + WORK_TIMEOUT;
        loop {
            // While there are builds, they stay for the next time.
            let Ok(_removing) = self.cache.remove("removing unnamed images") else {
                return Ok(());
            };
            let pruned = self.docker.prune_images(Some(options.clone()));
            match self
                .call("removing unnamed images", WORK_TIMEOUT, pruned)
                .await
            {
                Ok(_) => return Ok(()),
                // The engine does that for one caller at a time.
                Err(Error::Conflict { .. }) if Instant::now() < deadline => {
                    sleep(SETTLE_DELAY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The releases whose builds left layers behind.
    pub async fn releases_with_layers(&self) -> Result<Vec<ReleaseId>, Error> {
        let layers = self.list_images(LAYERS).await?;
        let tags = layers.iter().flat_map(|summary| &summary.repo_tags);
        let mut releases: Vec<_> = tags.filter_map(|tag| built_for(tag)).collect();
        releases.sort_unstable();
        releases.dedup();
        Ok(releases)
    }

    /// Removes the layers that the builds of these releases left behind; whether any was. Those that others
    /// stand on stay.
    pub async fn remove_layers(&self, releases: &[ReleaseId]) -> Result<bool, Error> {
        let mut any = false;
        for summary in self.list_images(LAYERS).await? {
            for tag in summary.repo_tags {
                if built_for(&tag).is_some_and(|release| releases.contains(&release)) {
                    match self.remove(&ImageRef::trusted(tag)).await {
                        Ok(()) => any = true,
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(any)
    }

    fn repositories(&self) -> String {
        format!("{PREFIX}{}", self.installation)
    }

    pub(crate) fn repository(&self, name: &str) -> String {
        format!("{}/{name}", self.repositories())
    }

    pub(crate) async fn list_images(
        &self,
        repository: &str,
    ) -> Result<Vec<models::ImageSummary>, Error> {
        let reference = self.repository(repository);
        let options = ListImagesOptions {
            filters: Some([("reference".to_owned(), vec![reference])].into()),
            ..Default::default()
        };
        self.call(
            "listing images",
            WORK_TIMEOUT,
            self.docker.list_images(Some(options)),
        )
        .await
    }

    pub(crate) async fn tag_as(&self, image: &str, name: &ImageRef) -> Result<(), Error> {
        let (repo, tag) = split(name);
        let options = TagImageOptions {
            repo: Some(repo.to_owned()),
            tag: Some(tag.to_owned()),
        };
        self.call(
            "naming an image",
            QUICK_TIMEOUT,
            self.docker.tag_image(image, Some(options)),
        )
        .await
    }

    /// Removes a name, and the image if it has no other, while nothing is built.
    pub(crate) async fn remove(&self, name: &ImageRef) -> Result<(), Error> {
        let _removing = self.cache.remove("removing an image")?;
        self.untag(name).await
    }

    /// Removes one of several names of an image.
    pub(crate) async fn untag(&self, name: &ImageRef) -> Result<(), Error> {
        match self.try_untag(name).await {
            Err(Error::Refused { message, .. }) if message.contains(REMOVED_MEANWHILE) => {
                self.try_untag(name).await
            }
            result => result,
        }
    }

    async fn try_untag(&self, name: &ImageRef) -> Result<(), Error> {
        let removed = self
            .docker
            .remove_image(name.as_str(), None::<RemoveImageOptions>, None);
        match self.call("removing an image", WORK_TIMEOUT, removed).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The names of a layer that go: those of releases that were made before then, unless the layer itself is newer, or all.
fn unused_names(
    layer: models::ImageSummary,
    made_before: Timestamp,
    is_stale: bool,
) -> Vec<String> {
    if is_stale {
        let names = layer.repo_tags.into_iter();
        return names.filter(|tag| built_for(tag).is_some()).collect();
    }
    let used = |tag: &str| built_for(tag).map_or(0, ReleaseId::millis);
    let newest = layer.repo_tags.iter().map(|tag| used(tag)).max();
    let is_new = seconds(layer.created) >= made_before;
    let stays =
        |tag: &str| used(tag) >= made_before.millis() || (is_new && Some(used(tag)) == newest);
    let mut names = layer.repo_tags;
    names.retain(|tag| !stays(tag));
    names
}

fn read(found: models::ImageInspect) -> Result<Image, Error> {
    let unreadable = || Error::broken("looking at an image", "an image without an id");
    let config = found.config.unwrap_or_default();
    let tcp = |port: String| match port.split_once('/') {
        None => port.parse().ok(),
        Some((port, "tcp")) => port.parse().ok(),
        Some(_) => None,
    };
    let mut ports: Vec<u16> = config
        .exposed_ports
        .into_iter()
        .flatten()
        .filter_map(tcp)
        .collect();
    ports.sort_unstable();
    let mut volumes: Vec<String> = config.volumes.into_iter().flatten().collect();
    volumes.sort_unstable();
    Ok(Image {
        volumes,
        triggers: config.on_build.unwrap_or_default(),
        digests: found.repo_digests.unwrap_or_default(),
        id: found
            .id
            .and_then(|id| id.parse().ok())
            .ok_or_else(unreadable)?,
        ports,
        user: config.user.filter(|user| !user.is_empty()),
        size: found
            .size
            .and_then(|size| size.try_into().ok())
            .unwrap_or(0),
        created: found.created.and_then(|created| created.parse().ok()),
    })
}

/// The release whose build left a layer of this name.
fn built_for(layer: &str) -> Option<ReleaseId> {
    let (_, tag) = layer.rsplit_once(':')?;
    tag.split('-').next()?.parse().ok()
}

/// The name and the tag of a full name.
fn split(name: &ImageRef) -> (&str, &str) {
    name.as_str()
        .rsplit_once(':')
        .unwrap_or((name.as_str(), "latest"))
}

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_stays_for_as_long_as_builds_use_it() {
        let day = Duration::from_hours(24);
        let at = |day: i64| Timestamp::from_millis(day * 24 * 3_600_000);
        let tag = |day: i64| {
            let release = ReleaseId::generate(at(day).millis(), 1);
            format!("estrade-a/layers:{release}-0")
        };
        let tags = [tag(1000), tag(1001), tag(1002)];
        let layer = |made: i64| models::ImageSummary {
            repo_tags: tags.to_vec(),
            created: at(made).seconds(),
            ..Default::default()
        };
        let unused = |made, before| unused_names(layer(made), before, false);
        assert!(unused(1000, at(1000)).is_empty());
        assert_eq!(unused(1000, at(1002)), tags[..2]);
        assert_eq!(unused(1000, at(1002).after(day)), tags);
        // It was made long after its release was queued.
        assert_eq!(unused(1005, at(1004)), tags[..2]);
        assert_eq!(unused_names(layer(1005), at(1000), true), tags);
    }
}
