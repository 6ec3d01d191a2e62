//! Sites, loaded when they are first asked for, in bounded memory.

use crate::static_files::header_rules;
use crate::static_files::redirects;
use crate::static_files::site::{Parts, Site};
use estrade_blobs::{DigestMap, StoredBlob};
use estrade_model::release::ArtifactId;
use estrade_model::site::SiteConfig;
use estrade_model::site_rules::MAX_FILE_BYTES;
use estrade_model::{ProjectId, ReleaseId};
use estrade_service::{Core, Error, Result};
use estrade_store::manifest::Manifest;
use estrade_store::routes::LiveRow;
use estrade_store::variants::VariantRow;
use estrade_store::{artifacts, blob_rows, variants};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Projects whose last release is remembered as a model for the next.
const MAX_PREPARED: usize = 1024;
/// Bytes of sites that are kept in memory, unless set otherwise.
pub(crate) const DEFAULT_BYTES: u64 = 96 << 20;
/// Parts of the cache, which are locked one by one.
const SHARDS: usize = 8;

/// The sites that are in memory.
pub struct SiteCache {
    core: Arc<Core>,
    /// Where the database is asked: its connections live there, and not in the threads that serve.
    runtime: Handle,
    cache: SiteMap,
    /// The release of each project that was prepared last: the next one is mostly the same.
    prepared: Cache<ProjectId, ReleaseId>,
}

type SiteMap = Cache<ReleaseId, Arc<Site>, ByBytes>;

#[derive(Clone)]
struct ByBytes;

impl Weighter<ReleaseId, Arc<Site>> for ByBytes {
    fn weight(&self, _: &ReleaseId, site: &Arc<Site>) -> u64 {
        site.bytes()
    }
}

impl SiteCache {
    /// None yet; together at most so many bytes.
    pub fn new(core: Arc<Core>, runtime: Handle, bytes: u64) -> Self {
        Self {
            core,
            runtime,
            cache: new_cache(bytes),
            prepared: Cache::new(MAX_PREPARED),
        }
    }

    /// The site of a release; none when its files are gone.
    pub async fn get(&self, release: &LiveRow) -> Result<Option<Arc<Site>>> {
        self.get_with(release, Hints::default()).await
    }

    async fn get_with(&self, release: &LiveRow, hints: Hints) -> Result<Option<Arc<Site>>> {
        let Some(artifact) = release.artifact else {
            return Ok(None);
        };
        let load = async || {
            let (core, config) = (Arc::clone(&self.core), read_config(release));
            let load = self.runtime.spawn(load_site(core, artifact, config, hints));
            load.await.map_err(Error::internal)?
        };
        let found = self.cache.get_or_insert_async(&release.release, load());
        match found.await {
            Ok(site) => Ok(Some(site)),
            Err(Error::Gone(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets a site, because its files may lie elsewhere now, or have more variants.
    pub fn forget(&self, release: ReleaseId) {
        self.cache.remove(&release);
    }
}

impl SiteCache {
    /// Loads a site before its first request.
    pub(crate) async fn prepare(
        &self,
        project: ProjectId,
        release: &LiveRow,
        fresh: Vec<VariantRow>,
    ) -> Result<()> {
        let similar = self.prepared.get(&project);
        let similar = similar.and_then(|similar| self.cache.get(&similar));
        self.get_with(release, Hints { fresh, similar }).await?;
        self.prepared.insert(project, release.release);
        Ok(())
    }
}

/// What spares the database questions while a site is loaded.
#[derive(Default)]
struct Hints {
    /// Variants that the database does not have yet.
    fresh: Vec<VariantRow>,
    /// A site that is mostly the same. What it says may be out of date, as it may be of any site
    /// that is in memory: who finds a content missing forgets the site and loads it without hints.
    similar: Option<Arc<Site>>,
}

/// A cache in few parts. It keeps nothing that is larger than a part, and as many parts as a large
/// machine has cores would be smaller than a large site: that would be loaded for each request.
fn new_cache(bytes: u64) -> SiteMap {
    let entries = usize::try_from(bytes / 8192).unwrap_or(usize::MAX).max(16);
    let options = OptionsBuilder::new()
        .estimated_items_capacity(entries)
        .weight_capacity(bytes)
        .shards(SHARDS)
        .build();
    // Both are set above, which is all that it asks for.
    options.map_or_else(
        |_| Cache::with_weighter(entries, bytes, ByBytes),
        |options| {
            Cache::with_options(
                options,
                ByBytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            )
        },
    )
}

fn read_config(release: &LiveRow) -> SiteConfig {
    let parse = |text: &String| match serde_json::from_str(text) {
        Ok(config) => Some(config),
        Err(error) => {
            tracing::error!(release = %release.release, %error, "cannot read how a release is served");
            None
        }
    };
    release.site.as_ref().and_then(parse).unwrap_or_default()
}

async fn load_site(
    core: Arc<Core>,
    artifact: ArtifactId,
    config: SiteConfig,
    hints: Hints,
) -> Result<Arc<Site>> {
    let manifest = artifacts::read_manifest(&core.db, artifact).await?;
    let manifest = manifest.ok_or(Error::Gone("the files of this release"))?;
    let known = hints.similar.map(|site| site.known_entries(&manifest));
    let known = known.unwrap_or_default();
    let is_rules = |path: &str| path == redirects::FILE || path == header_rules::FILE;
    let files = manifest.files().iter();
    let asked = files.filter(|it| is_rules(it.path.as_str()) || !known.contains_key(&it.digest));
    let digests: Vec<_> = asked.map(|file| file.digest).collect();
    let blobs = blob_rows::read_blobs(&core.db, &digests).await?;
    let mut variants = variants::read_variants(&core.db, &digests).await?;
    variants.extend(hints.fresh);
    let redirects = read_rules(&core, &manifest, &blobs, redirects::FILE).await?;
    let headers = read_rules(&core, &manifest, &blobs, header_rules::FILE).await?;
    let parts = Parts {
        manifest,
        known,
        blobs,
        variants,
        config,
        redirects,
        headers,
    };
    let (mut site, missing) = Site::build(parts);
    site.headers.restrict_cookies(&core.settings.domains.edge);
    if missing > 0 {
        tracing::error!(%artifact, missing, "contents of a release are not stored");
    }
    Ok(Arc::new(site))
}

/// The text of a file with rules; empty when there is none, or it is too long. One that cannot be read is
/// not taken for none: what it forbids would be served.
async fn read_rules(
    core: &Arc<Core>,
    manifest: &Manifest,
    blobs: &DigestMap<StoredBlob>,
    name: &'static str,
) -> Result<String> {
    let file = manifest
        .files()
        .iter()
        .find(|file| file.path.as_str() == name);
    let blob = file.and_then(|file| blobs.get(&file.digest));
    let Some(blob) = blob.copied().filter(|blob| blob.size <= MAX_FILE_BYTES) else {
        return Ok(String::new());
    };
    let core = Arc::clone(core);
    let read = tokio::task::spawn_blocking(move || core.blobs.read(&blob)).await;
    let bytes = read.map_err(Error::internal)??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::paths::FilePath;

    #[test]
    fn the_largest_site_fits_whatever_the_machine() {
        let bytes = DEFAULT_BYTES;
        let cache = new_cache(bytes);
        // 10,000 files with the longest paths.
        let largest = 10_000 * (FilePath::MAX_BYTES as u64 + 100);
        assert!(cache.shard_capacity() > largest);
        assert_eq!(cache.capacity(), bytes);
    }
}
