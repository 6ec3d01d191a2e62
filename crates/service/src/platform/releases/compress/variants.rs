//! Which variants of an artifact are missing, and the rows of those that were made.

use super::eager::{EagerCompressor, QUICK, core_count};
use super::parallel::{CompressedBatch, CompressionJob, Compressor};
use crate::{Core, Error, Result};
use estrade_archive::file_types::{Compressibility, MIN_SIZE, compressibility};
use estrade_blobs::{Digest, DigestMap, DigestSet, PublishedBlobs, PublishedGuard, StoredBlob};
use estrade_model::ProjectId;
use estrade_model::coding::Coding;
use estrade_model::release::ArtifactId;
use estrade_store::manifest::{Manifest, ManifestFile};
use estrade_store::variants::{NewVariant, VariantRow};
use estrade_store::{Tx, artifacts, blob_rows, variants};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// What is left to compress of an artifact.
pub(in crate::platform::releases) struct MissingVariants {
    artifact: ArtifactId,
    jobs: Vec<CompressionJob>,
}

impl MissingVariants {
    /// Looks which quick variants are missing.
    pub(in crate::platform::releases) async fn find(
        core: &Core,
        project: ProjectId,
        artifact: ArtifactId,
    ) -> Result<Self> {
        // Mostly the same files as in the last release: those need not be queried one by one.
        let last = artifacts::read_last_compressed(&core.db, project, artifact).await?;
        let jobs = find_jobs(core, artifact, &QUICK, &last.unwrap_or_default()).await?;
        Ok(Self { artifact, jobs })
    }

    /// How many bytes have to be read.
    pub(in crate::platform::releases) fn bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.blob.size).sum()
    }

    /// Makes the variants. Dropping the future stops the work.
    pub(in crate::platform::releases) async fn compress(
        self,
        core: &Core,
        eager: &EagerCompressor,
    ) -> Result<PreparedVariants> {
        let batch = compress(core, eager, self.jobs, core_count(), false).await?;
        Ok(PreparedVariants::new(self.artifact, batch))
    }
}

/// Variants that are durable; their rows are not committed yet.
pub(in crate::platform::releases) struct PreparedVariants {
    pub(in crate::platform::releases) rows: Arc<PreparedRows>,
    published: Vec<PublishedBlobs>,
}

/// What has to be committed for variants.
pub(in crate::platform::releases) struct PreparedRows {
    artifact: ArtifactId,
    variants: Vec<NewVariant>,
    new: Vec<StoredBlob>,
    known: Vec<Digest>,
    /// Held until the transaction is over, even if its future is dropped.
    _held: Vec<PublishedGuard>,
}

impl PreparedVariants {
    pub(super) fn new(artifact: ArtifactId, batch: CompressedBatch) -> Self {
        let rows = PreparedRows {
            artifact,
            _held: batch.published.iter().map(PublishedBlobs::hold).collect(),
            new: batch.new_blobs(),
            known: batch.known_blobs(),
            variants: batch.variants,
        };
        Self {
            rows: Arc::new(rows),
            published: batch.published,
        }
    }

    /// Those that are new, and where they lie.
    pub(in crate::platform::releases) fn variants(&self) -> Vec<VariantRow> {
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

    /// Reports whether the rows were committed; on an error the commit is in doubt.
    pub(in crate::platform::releases) fn settle(self, committed: &Result<bool>) {
        let end = match committed {
            Ok(false) => PublishedBlobs::discard,
            Ok(true) | Err(_) => PublishedBlobs::keep,
        };
        self.published.into_iter().for_each(end);
    }
}

impl PreparedRows {
    /// Notes the quick variants of an artifact.
    pub(in crate::platform::releases) async fn insert(&self, tx: &mut Tx) -> Result<()> {
        self.insert_variants(tx).await?;
        Ok(artifacts::set_compressed(tx, self.artifact).await?)
    }

    /// Notes slow variants, if their contents are still there.
    pub(super) async fn insert_brotli(&self, tx: &mut Tx) -> Result<()> {
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
pub(super) async fn find_jobs(
    core: &Core,
    artifact: ArtifactId,
    codings: &[Coding],
    last: &Manifest,
) -> Result<Vec<CompressionJob>> {
    let manifest = artifacts::read_manifest(&core.db, artifact).await?;
    let candidates = candidates(manifest.unwrap_or_default().changed_since(last));
    let digests: Vec<_> = candidates.keys().copied().collect();
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
        Ok(CompressionJob {
            blob: blob.ok_or_else(|| Error::internal("a content of a release has no place"))?,
            codings: missing(&digest),
            known_compressible: candidates.get(&digest) == Some(&Compressibility::Compressible),
        })
    };
    wanted.into_iter().map(job).collect()
}

/// The contents whose file type may be compressible.
fn candidates<'m>(
    files: impl Iterator<Item = &'m ManifestFile>,
) -> BTreeMap<Digest, Compressibility> {
    let mut candidates = BTreeMap::new();
    for file in files {
        let new = compressibility(&file.path);
        if file.size < MIN_SIZE || new == Compressibility::Incompressible {
            continue;
        }
        match candidates.entry(file.digest) {
            Entry::Vacant(entry) => drop(entry.insert(new)),
            // Two files of one content: the better name tells.
            Entry::Occupied(mut entry) => drop(entry.insert(new.max(*entry.get()))),
        }
    }
    candidates
}

pub(super) async fn compress(
    core: &Core,
    eager: &EagerCompressor,
    jobs: Vec<CompressionJob>,
    threads: usize,
    background: bool,
) -> Result<CompressedBatch> {
    if jobs.is_empty() {
        return Ok(CompressedBatch::default());
    }
    let stop = CancellationToken::new();
    let _cancel_on_drop = stop.clone().drop_guard();
    let compressor = Compressor {
        blobs: core.blobs.clone(),
        db: core.db.clone(),
        runtime: Handle::current(),
        eager: eager.clone(),
        stop,
        threads,
        yield_to: background.then(|| eager.priority_gate().clone()),
    };
    tokio::task::spawn_blocking(move || compressor.compress_all(jobs))
        .await
        .map_err(Error::internal)?
}
