//! Compressed variants of contents: made once per content, and kept where they are worth it.
//!
//! The quick codings are made while a release is BUILDING, so that its first visitor has them. Their
//! rows are committed together with the release's next step: either both happened or neither.

mod codecs;
mod head_start;
mod kinds;
mod slow;
mod spread;

pub(crate) use head_start::{HeadStart, Offers};
pub use slow::run as run_slow;

use crate::{Core, Error, Result};
use estrade_blobs::{Digest, DigestMap, DigestSet, HeldBlobs, Published, StoredBlob};
use estrade_model::ProjectId;
use estrade_model::coding::Coding;
use estrade_model::release::ArtifactId;
use estrade_store::manifest::{Manifest, ManifestFile};
use estrade_store::variants::{NewVariant, VariantRow};
use estrade_store::{Tx, artifacts, blob_rows, variants};
use kinds::{Hope, SHORTEST, hope};
use spread::{Job, Packed, Workshop, all_cores};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The codings that are made before a release is READY.
const QUICK: [Coding; 2] = [Coding::Gzip, Coding::Zstd];

/// What is left to compress of an artifact.
pub(super) struct Work {
    artifact: ArtifactId,
    jobs: Vec<Job>,
}

impl Work {
    /// Looks which quick variants are missing.
    pub(super) async fn find(
        core: &Core,
        project: ProjectId,
        artifact: ArtifactId,
    ) -> Result<Self> {
        // Mostly the same files as last time: those need not be asked for one by one.
        let last = artifacts::read_last_compressed(&core.db, project, artifact).await?;
        let jobs = find_jobs(core, artifact, &QUICK, &last.unwrap_or_default()).await?;
        Ok(Self { artifact, jobs })
    }

    /// How many bytes have to be read.
    pub(super) fn bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.blob.size).sum()
    }

    /// Makes the variants. Dropping the future stops the work.
    pub(super) async fn carry_out(self, core: &Core) -> Result<Made> {
        let packed = pack(core, self.jobs, all_cores(), false).await?;
        Ok(Made::new(self.artifact, packed))
    }
}

/// Variants that are durable; their rows are not committed yet.
pub(super) struct Made {
    pub(super) rows: Arc<MadeRows>,
    published: Vec<Published>,
}

/// What has to be committed for variants.
pub(super) struct MadeRows {
    artifact: ArtifactId,
    variants: Vec<NewVariant>,
    new: Vec<StoredBlob>,
    known: Vec<Digest>,
    /// Until the transaction is over, also when nobody waits for it any more.
    _held: Vec<HeldBlobs>,
}

impl Made {
    fn new(artifact: ArtifactId, packed: Packed) -> Self {
        let rows = MadeRows {
            artifact,
            _held: packed.published.iter().map(Published::hold).collect(),
            new: packed.new_blobs(),
            known: packed.known_blobs(),
            variants: packed.variants,
        };
        Self {
            rows: Arc::new(rows),
            published: packed.published,
        }
    }

    /// Those that are new, and where they lie.
    pub(super) fn variants(&self) -> Vec<VariantRow> {
        let places: DigestMap<_> = self.rows.new.iter().map(|it| (it.digest, *it)).collect();
        let row = |new: &NewVariant| {
            Some(VariantRow {
                of: new.of,
                coding: new.coding,
                blob: *places.get(&new.variant?)?,
            })
        };
        self.rows.variants.iter().filter_map(row).collect()
    }

    /// Tells whether the rows were committed; an error means that nobody knows.
    pub(super) fn settle(self, committed: &Result<bool>) {
        let end = match committed {
            Ok(false) => Published::discard,
            Ok(true) | Err(_) => Published::keep,
        };
        self.published.into_iter().for_each(end);
    }
}

impl MadeRows {
    /// Notes the quick variants of an artifact.
    pub(super) async fn insert(&self, tx: &mut Tx) -> Result<()> {
        self.insert_variants(tx).await?;
        Ok(artifacts::set_compressed(tx, self.artifact).await?)
    }

    /// Notes slow variants, if their contents are still there.
    async fn insert_slow(&self, tx: &mut Tx) -> Result<()> {
        let of: DigestSet = self.variants.iter().map(|new| new.of).collect();
        let of: Vec<_> = of.into_iter().collect();
        if !blob_rows::keep_blobs(tx, &[], &of).await? {
            return Err(Error::Unavailable(
                "contents were cleaned up while they were compressed".into(),
            ));
        }
        self.insert_variants(tx).await
    }

    async fn insert_variants(&self, tx: &mut Tx) -> Result<()> {
        if !blob_rows::keep_blobs(tx, &self.new, &self.known).await? {
            return Err(Error::Unavailable(
                "compressed contents were cleaned up while they were made".into(),
            ));
        }
        Ok(variants::insert_variants(tx, &self.variants).await?)
    }
}

/// The contents of an artifact that were not tried in all of these codings. Those of the files of
/// `last` were.
async fn find_jobs(
    core: &Core,
    artifact: ArtifactId,
    codings: &[Coding],
    last: &Manifest,
) -> Result<Vec<Job>> {
    let manifest = artifacts::read_manifest(&core.db, artifact).await?;
    let hopes = hopes(manifest.unwrap_or_default().changed_since(last));
    let digests: Vec<_> = hopes.keys().copied().collect();
    let tried = variants::find_tried(&core.db, &digests).await?;
    let missing = |digest: &Digest| -> Vec<Coding> {
        let is_missing = |coding: &Coding| !tried.contains(&(*digest, *coding));
        codings.iter().copied().filter(is_missing).collect()
    };
    let wanted: Vec<_> = digests
        .into_iter()
        .filter(|it| !missing(it).is_empty())
        .collect();
    let places = blob_rows::read_blobs(&core.db, &wanted).await?;
    let job = |digest: Digest| {
        let blob = places.get(&digest).copied();
        Ok(Job {
            blob: blob.ok_or_else(|| Error::internal("a content of a release has no place"))?,
            codings: missing(&digest),
            certain: hopes.get(&digest) == Some(&Hope::Good),
        })
    };
    wanted.into_iter().map(job).collect()
}

/// What the names of the contents say; those that are not worth a try are left out.
fn hopes<'m>(files: impl Iterator<Item = &'m ManifestFile>) -> BTreeMap<Digest, Hope> {
    let mut hopes = BTreeMap::new();
    for file in files {
        let new = hope(&file.path);
        if file.size < SHORTEST || new == Hope::None {
            continue;
        }
        match hopes.entry(file.digest) {
            Entry::Vacant(entry) => drop(entry.insert(new)),
            // Two files of one content: the better name tells.
            Entry::Occupied(mut entry) => drop(entry.insert(new.max(*entry.get()))),
        }
    }
    hopes
}

async fn pack(core: &Core, jobs: Vec<Job>, threads: usize, gently: bool) -> Result<Packed> {
    if jobs.is_empty() {
        return Ok(Packed::default());
    }
    let stop = CancellationToken::new();
    let _stop_when_dropped = stop.clone().drop_guard();
    let workshop = Workshop {
        blobs: core.blobs.clone(),
        db: core.db.clone(),
        runtime: Handle::current(),
        head_start: core.head_start.clone(),
        stop,
        threads,
        give_way: gently.then(|| core.rush.clone()),
    };
    tokio::task::spawn_blocking(move || workshop.pack_all(jobs))
        .await
        .map_err(Error::internal)?
}
