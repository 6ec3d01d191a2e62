//! What package managers keep from build to build.
//!
//! The classic builder has no mounts, so a cache is an image: the base of the stage that installs, and one layer with the
//! folder. A build begins with it instead of the base, and copies nothing. Its names are
//! `estrade-<installation>/caches:<project>-<kind>-<millis>-<scope>-<key>`, with the time of its last use.
//!
//! A project has two, because a build that begins with another image finds none of its layers again: `in` is what the last
//! install began with, `out` what it left behind. Who installs the same begins with `in`; who installs something else makes `out`
//! the new `in`. The scope is a hash of the base image and of the label of the owner and project: neither another owner, nor
//! another project, nor the same project after it has moved has the same.
//!
//! What a step writes into the log can name any image. So only a layer with the label of the owner and project is saved.

use crate::docker::build_log::{BuildLog, Message};
use crate::docker::builds::has_label;
use crate::docker::engine::{Engine, WORK_TIMEOUT};
use crate::docker::labels::PACKAGES;
use crate::docker::transport::body_of;
use crate::error::Error;
use crate::image::OwnImage;
use crate::package_cache::{BuiltCache, CacheKey, FOLDER, SavedCache};
use bollard::body_full;
use bytes::Bytes;
use estrade_model::built_image::CACHES;
use estrade_model::image_ref::ImageRef;
use estrade_model::{ProjectId, Timestamp};
use http::Request;
use http::header::CONTENT_TYPE;
use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::timeout;

const WHAT: &str = "keeping what a build has downloaded";
/// How long the copy may take.
const COPY_TIMEOUT: Duration = Duration::from_mins(5);
/// A tar of a folder is at most this many times as large as its files, unless they are tiny.
const TAR_OVERHEAD: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What the last install began with.
    In,
    /// What the last install left behind.
    Out,
    /// Not whole yet, or too large.
    New,
}

impl Kind {
    const ALL: [Self; 3] = [Self::In, Self::Out, Self::New];

    fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::New => "new",
        }
    }
}

/// A name of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CacheTag {
    project: ProjectId,
    kind: Kind,
    millis: i64,
    scope: String,
    key: String,
}

impl CacheTag {
    fn of(key: &CacheKey, kind: Kind, now: Timestamp) -> Self {
        Self {
            project: key.project,
            kind,
            millis: now.millis(),
            scope: scope(key),
            key: key.installs.clone(),
        }
    }

    fn parse(tag: &str) -> Option<Self> {
        let mut parts = tag.split('-');
        let project = parts.next()?.parse().ok()?;
        let kind = parts.next()?;
        let tag = Self {
            project,
            kind: Kind::ALL.into_iter().find(|it| it.as_str() == kind)?,
            millis: parts.next()?.parse().ok()?,
            scope: parts.next()?.to_owned(),
            key: parts.next()?.to_owned(),
        };
        parts.next().is_none().then_some(tag)
    }

    fn name(&self, engine: &Engine) -> ImageRef {
        let Self {
            project,
            kind,
            millis,
            scope,
            key,
        } = self;
        let (kind, repository) = (kind.as_str(), engine.repository(CACHES));
        ImageRef::trusted(format!(
            "{repository}:{project}-{kind}-{millis}-{scope}-{key}"
        ))
    }
}

/// A cache that is there.
#[derive(Debug, Clone)]
struct Entry {
    tag: CacheTag,
    name: ImageRef,
    id: String,
}

/// Who may use a cache, and on which base.
fn scope(key: &CacheKey) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("estrade scope of a package cache");
    for part in [&*key.label, key.base.as_str(), &*key.secrets] {
        hasher.update(&part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

fn newest<'e>(entries: &'e [Entry], kind: Kind, scope: &str) -> Option<&'e Entry> {
    let those = entries
        .iter()
        .filter(|it| it.tag.kind == kind && it.tag.scope == scope);
    those.max_by_key(|it| it.tag.millis)
}

/// The caches that others have replaced: all of a project but the newest of each kind. One of another scope than the newest
/// that a build has left is of an earlier owner or base image.
fn superseded(entries: &[Entry]) -> Vec<&Entry> {
    let last = |of: &Entry, kind: Kind| {
        let those = entries
            .iter()
            .filter(move |it| it.tag.project == of.tag.project && it.tag.kind == kind);
        those.max_by_key(|it| it.tag.millis)
    };
    let is_old = |entry: &&Entry| {
        let out = last(entry, Kind::Out);
        match entry.tag.kind {
            Kind::New => false,
            Kind::In if out.is_some_and(|out| out.tag.scope != entry.tag.scope) => true,
            kind => last(entry, kind).is_some_and(|it| it.tag.millis > entry.tag.millis),
        }
    };
    entries.iter().filter(is_old).collect()
}

impl Engine {
    /// The id of the image that a build begins with instead of its base; none: there is none for it.
    pub async fn use_cache(
        &self,
        key: &CacheKey,
        now: Timestamp,
    ) -> Result<Option<ImageRef>, Error> {
        let mut entries = self.caches().await?;
        entries.retain(|it| it.tag.project == key.project);
        let scope = scope(key);
        let (input, output) = (
            newest(&entries, Kind::In, &scope).cloned(),
            newest(&entries, Kind::Out, &scope).cloned(),
        );
        let chosen = match output {
            Some(output) if output.tag.key == key.installs => {
                self.touch(&output, now).await?;
                input.as_ref()
            }
            Some(ref output) => Some(output),
            None => input.as_ref(),
        };
        let Some(chosen) = chosen else {
            return Ok(None);
        };
        let tag = CacheTag {
            kind: Kind::In,
            millis: now.millis(),
            ..chosen.tag.clone()
        };
        self.tag_as(&chosen.id, &tag.name(self)).await?;
        if let Some(input) = input.as_ref().filter(|input| input.name != tag.name(self)) {
            if input.id == chosen.id {
                self.untag(&input.name).await?;
            } else {
                self.forget(&input.name).await?;
            }
        }
        // Where the last one was too large, its name is one of the base itself.
        Ok((chosen.id != key.base.as_str()).then(|| ImageRef::trusted(chosen.id.clone())))
    }

    /// Keeps the cache of a build for the next one.
    pub async fn save_cache(
        &self,
        built: &BuiltCache,
        now: Timestamp,
    ) -> Result<SavedCache, Error> {
        let key = &built.key;
        let made = CacheTag::of(key, Kind::New, now).name(self);
        let saved = {
            // The layer stays while it is copied.
            let _building = self.cache.build().await;
            self.copy_cache(built, &made).await?
        };
        let kept = match saved {
            SavedCache::Kept { .. } => made.as_str(),
            // The next install begins with the base, so that it keeps only what it needs.
            SavedCache::TooLarge => key.base.as_str(),
            SavedCache::Missing => return Ok(saved),
        };
        let output = CacheTag::of(key, Kind::Out, now);
        self.tag_as(kept, &output.name(self)).await?;
        // No build begins with this name, so it need not wait for those that go on.
        self.untag(&made).await?;
        let mut entries = self.caches().await?;
        entries.retain(|it| it.tag.project == key.project);
        for old in superseded(&entries) {
            self.forget(&old.name).await?;
        }
        Ok(saved)
    }

    async fn copy_cache(&self, built: &BuiltCache, name: &ImageRef) -> Result<SavedCache, Error> {
        let own = OwnImage {
            project: built.key.project,
            release: built.release,
        };
        let layer = self.layer_name(own, built.stage);
        let (layer, base) = (
            self.inspect_image(&layer).await?,
            self.image(&built.key.base).await?,
        );
        let layer = layer.filter(|layer| has_label(layer, &built.key.label));
        let (Some(layer), Some(base)) = (layer, base) else {
            return Ok(SavedCache::Missing);
        };
        let id = ImageRef::trusted(layer.id.unwrap_or_default());
        let size = layer.size.and_then(|size| u64::try_from(size).ok());
        let all = size.unwrap_or(u64::MAX).saturating_sub(base.size);
        // The rest of the layers is usually less than the bound, too. Else the folder is read before it is copied.
        if all > built.max_bytes && !self.fits(&id, built).await? {
            return Ok(SavedCache::TooLarge);
        }
        let mark = &blake3::hash(id.as_str().as_bytes()).to_hex()[..32];
        let dockerfile = format!(
            "FROM {}\nLABEL {} {PACKAGES}={mark}\nCOPY --from={id} {FOLDER}/ {FOLDER}/\n",
            base.id, built.key.label
        );
        if !self.make_cache(name, &dockerfile).await? {
            return Ok(SavedCache::Missing);
        }
        let Some(image) = self.image(name).await? else {
            return Ok(SavedCache::Missing);
        };
        let bytes = image.size.saturating_sub(base.size);
        Ok(if bytes > built.max_bytes {
            SavedCache::TooLarge
        } else {
            SavedCache::Kept { bytes }
        })
    }

    /// Whether the folder may be as small as it must be.
    async fn fits(&self, layer: &ImageRef, built: &BuiltCache) -> Result<bool, Error> {
        let mut meter = Meter {
            left: built.max_bytes.saturating_mul(TAR_OVERHEAD),
        };
        let id = format!("cache-{}", built.release);
        match self.read_folder(layer, &id, FOLDER, &mut meter).await {
            Err(Error::NotFound { .. }) | Ok(()) => Ok(true),
            Err(_) if meter.left == 0 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the image of a cache; false: the build has left nothing to copy.
    async fn make_cache(&self, name: &ImageRef, dockerfile: &str) -> Result<bool, Error> {
        let query = [
            ("t", name.as_str()),
            ("nocache", "true"),
            ("rm", "true"),
            ("forcerm", "true"),
            ("version", "1"),
        ];
        let query =
            serde_urlencoded::to_string(query).map_err(|error| Error::broken(WHAT, error))?;
        let context = context(dockerfile).map_err(|error| Error::broken(WHAT, error))?;
        let request = Request::post(format!("/build?{query}"))
            .header(CONTENT_TYPE, "application/x-tar")
            .body(body_full(context))
            .map_err(|error| Error::broken(WHAT, error))?;
        let making = async { body_of(WHAT, self.send(WHAT, request).await?).await };
        let body = timeout(COPY_TIMEOUT, making).await;
        let body = body.unwrap_or(Err(Error::TimedOut(WHAT)))?;
        let mut log = BuildLog::new(&[]);
        for message in log.read(&body) {
            match message {
                Ok(Message::Failed { message, .. }) => {
                    tracing::debug!(message, "a build has left no cache of packages");
                    return Ok(false);
                }
                Ok(_) => {}
                Err(error) => return Err(Error::broken(WHAT, error)),
            }
        }
        Ok(log.image().is_some())
    }

    /// The projects that have caches.
    pub async fn projects_with_caches(&self) -> Result<Vec<ProjectId>, Error> {
        let caches = self.caches().await?;
        let mut projects: Vec<_> = caches.iter().map(|it| it.tag.project).collect();
        projects.sort_unstable();
        projects.dedup();
        Ok(projects)
    }

    /// Removes the caches of these projects, also while something is built: a build of theirs that was about to use one is
    /// repeated without.
    pub async fn remove_caches(&self, projects: &[ProjectId]) -> Result<(), Error> {
        for entry in self.caches().await? {
            if projects.contains(&entry.tag.project) {
                self.untag(&entry.name).await?;
            }
        }
        Ok(())
    }

    /// Removes caches that were not used since then or that others have replaced, and those whose saving was broken off;
    /// whether that was all.
    pub async fn prune_caches(
        &self,
        used_before: Timestamp,
        made_before: Timestamp,
    ) -> Result<bool, Error> {
        let entries = self.caches().await?;
        let is_old = |entry: &&Entry| {
            let before = match entry.tag.kind {
                Kind::New => made_before,
                Kind::In | Kind::Out => used_before,
            };
            entry.tag.millis < before.millis()
        };
        let old = entries.iter().filter(is_old);
        let mut all = true;
        for entry in old.chain(superseded(&entries)) {
            all &= self.forget(&entry.name).await?;
        }
        Ok(all)
    }

    /// What marks the caches that there are, in the labels of the layers that stand on them.
    pub(crate) async fn cache_marks(&self) -> Result<HashSet<String>, Error> {
        let listed = self.list_images(CACHES).await?;
        let marks = listed
            .into_iter()
            .filter_map(|mut summary| summary.labels.remove(PACKAGES));
        Ok(marks.collect())
    }

    async fn caches(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        let prefix = format!("{}:", self.repository(CACHES));
        for summary in self.list_images(CACHES).await? {
            for name in summary.repo_tags {
                let tag = name.strip_prefix(&prefix).and_then(CacheTag::parse);
                entries.extend(tag.map(|tag| Entry {
                    tag,
                    name: ImageRef::trusted(name.clone()),
                    id: summary.id.clone(),
                }));
            }
        }
        Ok(entries)
    }

    /// Notes that a cache was used.
    async fn touch(&self, entry: &Entry, now: Timestamp) -> Result<(), Error> {
        let tag = CacheTag {
            millis: now.millis(),
            ..entry.tag.clone()
        };
        let name = tag.name(self);
        if name == entry.name {
            return Ok(());
        }
        self.tag_as(&entry.id, &name).await?;
        self.untag(&entry.name).await
    }

    /// Removes a name of a cache, and the cache if it has no other; false: not while something is built.
    async fn forget(&self, name: &ImageRef) -> Result<bool, Error> {
        match timeout(WORK_TIMEOUT, self.remove(name)).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(Error::Conflict { .. })) => Ok(false),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::TimedOut(WHAT)),
        }
    }
}

/// A directory with only a Dockerfile.
fn context(dockerfile: &str) -> io::Result<Bytes> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(dockerfile.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "Dockerfile", dockerfile.as_bytes())?;
    tar.into_inner().map(Bytes::from)
}

/// Counts what is written, and fails when it is too much.
struct Meter {
    left: u64,
}

impl AsyncWrite for Meter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(label: &str, base: &str) -> CacheKey {
        CacheKey {
            project: ProjectId::generate(1, 1),
            label: label.to_owned(),
            base: ImageRef::trusted(base.to_owned()),
            secrets: String::new(),
            installs: "k".to_owned(),
        }
    }

    fn entry(project: ProjectId, kind: Kind, millis: i64, scope: &str) -> Entry {
        let tag = CacheTag {
            project,
            kind,
            millis,
            scope: scope.to_owned(),
            key: "k".to_owned(),
        };
        let (name, id) = (ImageRef::trusted(format!("{millis}")), String::new());
        Entry { tag, name, id }
    }

    #[test]
    fn owners_projects_and_bases_have_scopes_of_their_own() {
        let one = scope(&key("estrade.cache=a", "sha256:1"));
        assert_eq!(one, scope(&key("estrade.cache=a", "sha256:1")));
        assert_ne!(one, scope(&key("estrade.cache=b", "sha256:1")));
        assert_ne!(one, scope(&key("estrade.cache=a", "sha256:2")));
        let with_token = CacheKey {
            secrets: "t".to_owned(),
            ..key("estrade.cache=a", "sha256:1")
        };
        assert_ne!(one, scope(&with_token));
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let project = ProjectId::generate(1, 1);
        for kind in Kind::ALL {
            let tag = entry(project, kind, 1_700_000_000_000, "0a").tag;
            let text = format!("{project}-{}-1700000000000-0a-k", kind.as_str());
            assert_eq!(CacheTag::parse(&text), Some(tag));
        }
        for bad in [
            "",
            "x-in-1-a-b",
            &format!("{project}-up-1-a-b"),
            &format!("{project}-in-1-a"),
        ] {
            assert_eq!(CacheTag::parse(bad), None, "{bad}");
        }
        let longest = format!("{project}-out-1700000000000-{0}-{0}", "a".repeat(32));
        assert!(longest.len() <= 128, "engines take no longer tag");
    }

    #[test]
    fn one_of_each_kind_stays_and_none_of_another_scope() {
        let (one, two) = (ProjectId::generate(1, 1), ProjectId::generate(1, 2));
        let entries = [
            entry(one, Kind::Out, 1, "a"),
            entry(one, Kind::Out, 2, "b"),
            entry(one, Kind::In, 3, "a"),
            entry(one, Kind::In, 4, "b"),
            entry(one, Kind::New, 0, "b"),
            entry(two, Kind::In, 5, "a"),
            entry(two, Kind::Out, 5, "a"),
        ];
        let gone: Vec<_> = superseded(&entries)
            .iter()
            .map(|it| it.tag.millis)
            .collect();
        assert_eq!(gone, [1, 3]);
    }
}
