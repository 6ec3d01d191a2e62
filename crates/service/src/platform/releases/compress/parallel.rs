//! Compressing many contents at once, on all cores.

use super::eager::{EagerCompressor, QUICK};
use super::priority_gate::PriorityGate;
use crate::{Error, Result};
use estrade_archive::codecs::{Codecs, compress_stream};
use estrade_archive::file_types::{SNIFFED_BYTES, looks_like_text};
use estrade_blobs::{
    BlobError, BlobStore, ContentWriter, Digest, DigestSet, LookupError, MIN_LARGE_BYTES,
    PublishedBlobs, Staging, StoredBlob,
};
use estrade_model::coding::Coding;
use estrade_store::variants::NewVariant;
use estrade_store::{Db, blob_rows};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// A thread costs as much as compressing a few kilobytes.
const MIN_BYTES_PER_THREAD: u64 = 64 * 1024;
/// Compressed contents that wait to be written.
const MAX_QUEUED_WRITES: usize = 32;

/// A content, and the codings that were not tried yet.
pub(super) struct CompressionJob {
    pub(super) blob: StoredBlob,
    pub(super) codings: Vec<Coding>,
    /// Whether its file type is known to be compressible.
    pub(super) known_compressible: bool,
}

/// Variants that are durable but not committed.
#[derive(Default)]
pub(super) struct CompressedBatch {
    pub(super) variants: Vec<NewVariant>,
    pub(super) published: Vec<PublishedBlobs>,
}

/// What compressing needs. It blocks: use it inside `spawn_blocking`.
pub(super) struct Compressor {
    pub(super) blobs: BlobStore,
    pub(super) db: Db,
    pub(super) runtime: Handle,
    /// What was made already.
    pub(super) eager: EagerCompressor,
    pub(super) stop: CancellationToken,
    /// Most threads.
    pub(super) threads: usize,
    /// Whose hurry comes first; none: we are in a hurry ourselves.
    pub(super) yield_to: Option<PriorityGate>,
}

/// Lets this thread, which ends with its work, run only when no other wants to.
fn lower_priority() {
    // On Linux the priority is the thread's own; a system that refuses just runs it as usual.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}

/// A small variant on its way to the writer.
struct SmallVariant {
    of: Digest,
    coding: Coding,
    packed: Option<Vec<u8>>,
}

impl Compressor {
    /// Makes all variants, durable on disk; after an error at worst an orphan is left.
    pub(super) fn compress_all(&self, mut jobs: Vec<CompressionJob>) -> Result<CompressedBatch> {
        // The largest first, so that none of them is begun when all the others are done.
        jobs.sort_unstable_by_key(|job| std::cmp::Reverse(job.blob.size));
        let bytes: u64 = jobs.iter().map(|job| job.blob.size).sum();
        let useful = usize::try_from(bytes / MIN_BYTES_PER_THREAD).unwrap_or(usize::MAX);
        let threads = useful.clamp(1, self.threads).min(jobs.len());
        let next = AtomicUsize::new(0);
        let done = thread::scope(|scope| {
            let (sender, received) = sync_channel(MAX_QUEUED_WRITES);
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(|| self.work(&jobs, &next, sender))
                })
                .collect();
            drop(sender);
            let mut staging = self.stage();
            let mut variants = Vec::new();
            for small in received {
                variants.push(NewVariant {
                    of: small.of,
                    coding: small.coding,
                    variant: small
                        .packed
                        .map(|packed| staging.add(&packed))
                        .transpose()?,
                });
            }
            let mut packed = CompressedBatch {
                variants,
                published: Vec::new(),
            };
            let mut failed = None;
            for worker in workers {
                match worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                {
                    Ok(large) => packed.join(large),
                    Err(error) => failed = Some(error),
                }
            }
            let published = match failed {
                None => staging.publish(),
                Some(error) => Err(error),
            };
            match published {
                Ok(published) => packed.published.push(published),
                Err(error) => {
                    packed.discard();
                    return Err(error);
                }
            }
            Ok(packed)
        });
        done.map_err(Error::from)
    }

    /// One thread: small contents go to the writer, large ones to files of their own.
    fn work(
        &self,
        jobs: &[CompressionJob],
        next: &AtomicUsize,
        done: SyncSender<SmallVariant>,
    ) -> std::result::Result<CompressedBatch, BlobError> {
        if self.yield_to.is_some() {
            lower_priority();
        }
        let mut codecs = Codecs::new()?;
        let (mut large, mut variants) = (self.stage(), Vec::new());
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if self.stop.is_cancelled() {
                return Err(BlobError::Io(std::io::Error::other("stopped")));
            }
            if let Some(foreground) = &self.yield_to {
                foreground.yield_to_foreground();
            }
            if job.blob.size >= MIN_LARGE_BYTES {
                variants.extend(self.compress_large(job, &mut large)?);
                continue;
            }
            for small in self.compress_small(job, &mut codecs)? {
                // The writer is gone because it has failed, and reports the error itself.
                if done.send(small).is_err() {
                    return Ok(CompressedBatch::default());
                }
            }
        }
        drop(done);
        Ok(CompressedBatch {
            variants,
            published: vec![large.publish()?],
        })
    }

    fn compress_small(
        &self,
        job: &CompressionJob,
        codecs: &mut Codecs,
    ) -> std::result::Result<Vec<SmallVariant>, BlobError> {
        let small = |coding, packed| SmallVariant {
            of: job.blob.digest,
            coding,
            packed,
        };
        if let Some(made) = self.eager.take(&job.blob.digest)
            && job.codings.iter().all(|coding| QUICK.contains(coding))
        {
            let made = made.into_iter();
            let wanted = made.filter(|(coding, _)| job.codings.contains(coding));
            let made = wanted.map(|(coding, packed)| small(coding, packed.map(Vec::from)));
            return Ok(made.collect());
        }
        let content = self.blobs.read(&job.blob)?;
        let worth_it = job.known_compressible || looks_like_text(&content);
        let pack = |&coding: &Coding| {
            let packed = worth_it.then(|| codecs.compress(coding, &content));
            Ok(small(coding, packed.transpose()?.flatten()))
        };
        job.codings.iter().map(pack).collect()
    }

    fn compress_large(
        &self,
        job: &CompressionJob,
        staging: &mut Staging<'_>,
    ) -> std::result::Result<Vec<NewVariant>, BlobError> {
        let mut start = Vec::new();
        let reader = self.blobs.open_reader(&job.blob)?;
        reader.take(SNIFFED_BYTES as u64).read_to_end(&mut start)?;
        let worth_it = job.known_compressible || looks_like_text(&start);
        let mut variants = Vec::new();
        for &coding in &job.codings {
            let variant = if worth_it {
                let content = self.blobs.open_reader(&job.blob)?;
                let (size, out) = (job.blob.size, staging.writer());
                let is_canceled = || self.stop.is_cancelled();
                let packed = compress_stream(coding, content, size, out, is_canceled)?;
                packed
                    .map(ContentWriter::finish)
                    .transpose()?
                    .map(|it| it.0)
            } else {
                None
            };
            variants.push(NewVariant {
                of: job.blob.digest,
                coding,
                variant,
            });
        }
        Ok(variants)
    }

    fn stage(&self) -> Staging<'static> {
        let (db, runtime) = (self.db.clone(), self.runtime.clone());
        self.blobs.stage(u64::MAX, move |digests| {
            let known = runtime.block_on(blob_rows::known_blobs(&db, digests));
            known.map_err(|error| -> LookupError { error.into() })
        })
    }
}

impl CompressedBatch {
    fn join(&mut self, other: Self) {
        self.variants.extend(other.variants);
        self.published.extend(other.published);
    }

    /// The variants that lie in new places.
    pub(super) fn new_blobs(&self) -> Vec<StoredBlob> {
        let blobs = self.published.iter().map(PublishedBlobs::blobs);
        blobs.flatten().copied().collect()
    }

    /// The variants that were stored already.
    pub(super) fn known_blobs(&self) -> Vec<Digest> {
        let new: DigestSet = self.new_blobs().iter().map(|blob| blob.digest).collect();
        let variants = self.variants.iter().filter_map(|new| new.variant);
        let known: DigestSet = variants.filter(|digest| !new.contains(digest)).collect();
        known.into_iter().collect()
    }

    /// The rows are certainly not committed.
    pub(super) fn discard(self) {
        self.published.into_iter().for_each(PublishedBlobs::discard);
    }
}
