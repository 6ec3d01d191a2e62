//! Images that were pulled as bases of builds. They keep their names, so that the next build finds them, and get
//! a tag of ours with the time of their last use: `estrade-<installation>/bases:<seconds>-<mark of the name>`.
//! Images that existed before belong to other users of the engine and get none.

use crate::docker::engine::{Engine, QUICK_TIMEOUT};
use crate::error::Error;
use estrade_model::Timestamp;
use estrade_model::built_image::{BASES, without_registry};
use estrade_model::image_ref::ImageRef;

/// A tag of ours on an image that builds have used as their base.
struct BaseTag {
    tag: ImageRef,
    seconds: i64,
    mark: String,
}

impl Engine {
    /// Records that a build uses an image as its base, which was pulled for that now or earlier.
    pub async fn note_base(
        &self,
        name: &ImageRef,
        fetched: bool,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mark = mark(name.as_str());
        let mut tags = self.base_tags().await?;
        tags.retain(|it| it.mark == mark);
        if tags.is_empty() && !fetched {
            return Ok(());
        }
        let tag = format!("{}:{}-{mark}", self.repository(BASES), now.seconds());
        let tag = ImageRef::trusted(tag);
        self.tag_as(name.as_str(), &tag).await?;
        for old in tags.into_iter().filter(|it| it.tag != tag) {
            self.untag(&old.tag).await?;
        }
        Ok(())
    }

    /// Removes images that were pulled as bases of builds and have not been used since then.
    pub async fn prune_bases(&self, used_before: Timestamp) -> Result<(), Error> {
        for base in self.base_tags().await? {
            if base.seconds >= used_before.seconds() {
                continue;
            }
            let inspected = self.docker.inspect_image(base.tag.as_str());
            let found = self
                .call("looking at an image", QUICK_TIMEOUT, inspected)
                .await;
            let names = match found {
                Ok(image) => [image.repo_tags, image.repo_digests].into_iter().flatten(),
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let own = names.flatten().filter(|name| mark(name) == base.mark);
            for name in own.map(ImageRef::trusted).chain([base.tag]) {
                match self.remove(&name).await {
                    // Something that runs or was built stands on it, or is being built.
                    Ok(()) | Err(Error::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn base_tags(&self) -> Result<Vec<BaseTag>, Error> {
        let listed = self.list_images(BASES).await?;
        let tags = listed.into_iter().flat_map(|summary| summary.repo_tags);
        let read = |tag: String| {
            let (seconds, mark) = tag.rsplit_once(':')?.1.split_once('-')?;
            Some(BaseTag {
                seconds: seconds.parse().ok()?,
                mark: mark.to_owned(),
                tag: ImageRef::trusted(tag),
            })
        };
        Ok(tags.filter_map(read).collect())
    }
}

/// The same for all ways to write a name.
fn mark(name: &str) -> String {
    let name = without_registry(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = if last.contains([':', '@']) {
        ""
    } else {
        ":latest"
    };
    let hash = blake3::hash(format!("{name}{tag}").as_bytes());
    hash.to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_mark_however_it_is_written() {
        for (one, other) in [
            ("node", "docker.io/library/node:latest"),
            ("node:22", "library/node:22"),
            ("a:5000/b", "a:5000/b:latest"),
        ] {
            assert_eq!(mark(one), mark(other));
        }
        assert_ne!(mark("node:22"), mark("node:23"));
        assert_ne!(mark("node@sha256:ab"), mark("node"));
    }
}
