//! Eager compression: the first files of a release are compressed while the others still arrive.
//!
//! Receiving a release keeps one core busy, and compressing it comes after. Idle cores fill a bounded
//! cache with quick variants meanwhile; the build of the release takes what it finds there and makes the
//! rest itself. Correctness never depends on a hit.

use super::priority_gate::PriorityGate;
use estrade_archive::codecs::Codecs;
use estrade_archive::file_types::{MIN_SIZE, looks_like_text};
use estrade_blobs::{Digest, DigestMap};
use estrade_model::coding::Coding;
use estrade_model::sync::MutexExt;
use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::thread;
use tokio::runtime::Handle;

/// The codings that are made before a release is READY.
pub(super) const QUICK: [Coding; 2] = [Coding::Gzip, Coding::Zstd];
/// Bytes of queued contents and finished variants together.
const MAX_BYTES: usize = 8 << 20;
/// Larger contents are not queued: if the build reaches them first, the work is wasted.
const MAX_CONTENT: usize = 256 << 10;

/// As many threads as there are cores.
pub(super) fn core_count() -> usize {
    // Queried once: `available_parallelism` reads several files of the cgroup.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
    *CORES
}

/// Contents and their quick variants, and the gate by which compression in the background yields to releases on their
/// way. Clones share both.
#[derive(Clone, Default)]
pub struct EagerCompressor {
    state: Arc<Mutex<State>>,
    priority_gate: PriorityGate,
}

/// The quick variants of a content, where they are worth it.
pub(super) type QuickVariants = Vec<(Coding, Option<Box<[u8]>>)>;

fn compress_quick(codecs: &mut Codecs, content: &[u8]) -> io::Result<QuickVariants> {
    let pack = |coding: Coding| {
        let packed = codecs.compress(coding, content)?;
        // It was packed into as much room as the content has.
        Ok((coding, packed.map(Vec::into_boxed_slice)))
    };
    QUICK.into_iter().map(pack).collect()
}

enum JobState {
    Queued(Box<[u8]>),
    /// A thread compresses a content of this many bytes.
    Running(usize),
    Done(QuickVariants),
}

impl JobState {
    fn bytes(&self) -> usize {
        match self {
            Self::Queued(content) => content.len(),
            Self::Running(bytes) => *bytes,
            Self::Done(quick) => quick
                .iter()
                .filter_map(|it| Some(it.1.as_ref()?.len()))
                .sum(),
        }
    }
}

#[derive(Default)]
struct State {
    contents: DigestMap<JobState>,
    bytes: usize,
    /// FIFO of starting and of eviction. Entries that are not in `contents` any more are skipped.
    order: VecDeque<Digest>,
    /// How many at the start of `order` were started.
    started: usize,
    threads: usize,
}

/// The contents that one upload submitted: dropped from the cache unless the upload is committed. Clones
/// share it.
#[derive(Clone)]
pub(crate) struct UploadScope {
    compressor: EagerCompressor,
    digests: Arc<Mutex<Vec<Digest>>>,
}

impl UploadScope {
    /// Queues a new content if it looks compressible; it runs on the blocking pool.
    pub(crate) fn add(&mut self, runtime: &Handle, digest: Digest, content: &[u8]) {
        if self.compressor.submit(runtime, digest, content) {
            lock(&self.digests).push(digest);
        }
    }

    /// The release exists, so its build will take the variants.
    pub(crate) fn commit(self) {
        lock(&self.digests).clear();
    }
}

impl Drop for UploadScope {
    fn drop(&mut self) {
        // Only the last clone cleans up.
        if Arc::strong_count(&self.digests) == 1 {
            let mut state = self.compressor.lock();
            for digest in lock(&self.digests).drain(..) {
                state.forget(&digest);
            }
        }
    }
}

impl EagerCompressor {
    /// Opens a scope for the contents of one upload.
    pub(crate) fn begin_upload(&self) -> UploadScope {
        UploadScope {
            compressor: self.clone(),
            digests: Arc::default(),
        }
    }

    /// Receiving and building a release are foreground work.
    pub(crate) fn priority_gate(&self) -> &PriorityGate {
        &self.priority_gate
    }

    fn submit(&self, runtime: &Handle, digest: Digest, content: &[u8]) -> bool {
        // One core stays free for the receiving thread.
        let max_threads = core_count() - 1;
        let min_size = usize::try_from(MIN_SIZE).unwrap_or(usize::MAX);
        if max_threads == 0
            || !(min_size..=MAX_CONTENT).contains(&content.len())
            || !looks_like_text(content)
        {
            return false;
        }
        let mut state = self.lock();
        if state.contents.contains_key(&digest) || !state.evict(content.len()) {
            return false;
        }
        state.put(digest, JobState::Queued(content.into()));
        state.order.push_back(digest);
        if state.threads < max_threads {
            state.threads += 1;
            drop(state);
            let worker = Worker(self.clone());
            runtime.spawn_blocking(move || worker.run());
        }
        true
    }

    /// Removes and returns the variants of a content, if they are finished.
    pub(super) fn take(&self, digest: &Digest) -> Option<QuickVariants> {
        match self.lock().forget(digest)? {
            JobState::Done(quick) => Some(quick),
            JobState::Queued(_) | JobState::Running(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A thread that works until the queue is empty. The queue is bounded, so it ends soon.
struct Worker(EagerCompressor);

impl Worker {
    fn run(&self) {
        let Ok(mut codecs) = Codecs::new() else {
            return;
        };
        while let Some((digest, content)) = self.start_next() {
            let made = compress_quick(&mut codecs, &content);
            self.end(digest, made.ok());
        }
    }

    fn start_next(&self) -> Option<(Digest, Box<[u8]>)> {
        let mut state = self.0.lock();
        while let Some(&digest) = state.order.get(state.started) {
            state.started += 1;
            match state.remove(&digest) {
                Some(JobState::Queued(content)) => {
                    state.put(digest, JobState::Running(content.len()));
                    return Some((digest, content));
                }
                Some(other) => state.put(digest, other),
                None => {}
            }
        }
        None
    }

    fn end(&self, digest: Digest, made: Option<QuickVariants>) {
        let mut state = self.0.lock();
        // Taken meanwhile: the taker compresses it itself.
        if !matches!(state.contents.get(&digest), Some(JobState::Running(_))) {
            return;
        }
        state.remove(&digest);
        let made = made.map(JobState::Done);
        // Two variants together may be larger than the content.
        if let Some(made) = made.filter(|made| state.bytes + made.bytes() <= MAX_BYTES) {
            state.put(digest, made);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}

impl State {
    fn put(&mut self, digest: Digest, progress: JobState) {
        self.bytes += progress.bytes();
        self.contents.insert(digest, progress);
    }

    fn remove(&mut self, digest: &Digest) -> Option<JobState> {
        let removed = self.contents.remove(digest)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }

    /// Removes an entry for good; the queue is reset with the last one.
    fn forget(&mut self, digest: &Digest) -> Option<JobState> {
        let forgotten = self.remove(digest);
        if self.contents.is_empty() {
            self.order.clear();
            self.started = 0;
        }
        forgotten
    }

    /// Evicts the oldest finished entries until there is room; queued ones are never evicted for newer ones.
    fn evict(&mut self, bytes: usize) -> bool {
        while self.bytes + bytes > MAX_BYTES && self.started > 0 {
            self.started -= 1;
            if let Some(oldest) = self.order.pop_front() {
                self.remove(&oldest);
            }
        }
        self.bytes + bytes <= MAX_BYTES
    }
}

/// Every update is complete before the lock is released, so a poisoned one is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_ignoring_poison()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(number: usize) -> Vec<u8> {
        format!("file {number}: {}", "the same again and again ".repeat(100)).into_bytes()
    }

    /// 200 KiB that do not compress well.
    fn noise(number: u32) -> Vec<u8> {
        let line = |line: u32| format!("{:x}\n", (line ^ number).wrapping_mul(2_654_435_761));
        (0..23_000).map(line).collect::<String>().into_bytes()
    }

    fn submit(compressor: &EagerCompressor, content: &[u8]) -> Digest {
        let mut scope = compressor.begin_upload();
        scope.add(&Handle::current(), Digest::of(content), content);
        scope.commit();
        Digest::of(content)
    }

    async fn until_idle(compressor: &EagerCompressor) {
        while compressor.lock().threads > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn variants_equal_those_made_without_it() {
        let (compressor, content) = (EagerCompressor::default(), text(1));
        let digest = submit(&compressor, &content);
        until_idle(&compressor).await;
        let quick = compressor.take(&digest).unwrap();
        let expected = compress_quick(&mut Codecs::new().unwrap(), &content).unwrap();
        assert_eq!(quick, expected);
        assert!(quick.iter().all(|(_, packed)| packed.is_some()));
        assert!(compressor.take(&digest).is_none());
        assert_eq!(compressor.lock().bytes, 0);
    }

    #[tokio::test]
    async fn only_texts_are_queued() {
        let compressor = EagerCompressor::default();
        let long = vec![b'a'; MAX_CONTENT + 1];
        for content in [&b"short"[..], &[0; 1000], &long] {
            submit(&compressor, content);
        }
        assert_eq!(compressor.lock().bytes, 0);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_and_evicts_the_oldest() {
        let compressor = EagerCompressor::default();
        let first = submit(&compressor, &text(1));
        for number in 0..200 {
            submit(&compressor, &noise(number));
            assert!(compressor.lock().bytes <= MAX_BYTES);
            if number % 20 == 0 {
                until_idle(&compressor).await;
            }
        }
        until_idle(&compressor).await;
        assert!(compressor.take(&first).is_none());
        let last = submit(&compressor, &text(2));
        until_idle(&compressor).await;
        assert!(compressor.take(&last).is_some());
        let state = compressor.lock();
        assert!(state.bytes > MAX_BYTES / 2 && state.bytes <= MAX_BYTES);
        let counted: usize = state.contents.values().map(JobState::bytes).sum();
        assert_eq!(counted, state.bytes);
    }

    #[tokio::test]
    async fn what_is_taken_before_it_is_done_leaves_nothing() {
        let compressor = EagerCompressor::default();
        for number in 0..500 {
            let digest = submit(&compressor, &text(number));
            compressor.take(&digest);
        }
        until_idle(&compressor).await;
        let state = compressor.lock();
        assert_eq!((state.bytes, state.contents.len()), (0, 0));
        assert_eq!((state.order.len(), state.started), (0, 0));
    }

    #[tokio::test]
    async fn a_dropped_scope_forgets_its_contents() {
        let compressor = EagerCompressor::default();
        let kept = submit(&compressor, &text(0));
        let mut scope = compressor.begin_upload();
        let shared = scope.clone();
        for number in 0..100 {
            let content = text(number);
            scope.add(&Handle::current(), Digest::of(&content), &content);
        }
        drop(scope);
        assert!(compressor.lock().contents.len() > 1);
        drop(shared);
        until_idle(&compressor).await;
        let left: Vec<_> = compressor.lock().contents.keys().copied().collect();
        assert_eq!(left, [kept]);
    }
}
