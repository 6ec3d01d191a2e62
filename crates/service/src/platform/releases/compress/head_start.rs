//! Compressing the first files of a release while the others still arrive.
//!
//! Receiving a release keeps one core busy, and compressing it comes after. What is made here in
//! between is taken from here then; what is not is made as usual, so nothing depends on it.

use super::QUICK;
use super::codecs::Codecs;
use super::kinds::{SHORTEST, looks_like_text};
use super::spread::all_cores;
use estrade_blobs::{Digest, DigestMap};
use estrade_model::coding::Coding;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;

/// How much waits or is made in all, in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Larger contents are not begun: if their release comes first, that was in vain.
const LARGEST: usize = 256 << 10;

/// Contents and their quick variants. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct HeadStart(Arc<Mutex<State>>);

/// The quick variants of a content, where they are worth it.
pub(super) type Quick = Vec<(Coding, Option<Box<[u8]>>)>;

fn make(codecs: &mut Codecs, content: &[u8]) -> io::Result<Quick> {
    let pack = |coding: Coding| {
        let packed = codecs.pack(coding, content)?;
        // It was packed into as much room as the content has.
        Ok((coding, packed.map(Vec::into_boxed_slice)))
    };
    QUICK.into_iter().map(pack).collect()
}

enum Progress {
    Waiting(Box<[u8]>),
    /// Somebody makes the variants of so many bytes.
    Begun(usize),
    Made(Quick),
}

impl Progress {
    fn bytes(&self) -> usize {
        match self {
            Self::Waiting(content) => content.len(),
            Self::Begun(bytes) => *bytes,
            Self::Made(quick) => quick
                .iter()
                .filter_map(|it| Some(it.1.as_ref()?.len()))
                .sum(),
        }
    }
}

#[derive(Default)]
struct State {
    contents: DigestMap<Progress>,
    bytes: usize,
    /// In this order they are begun, and forgotten when there is no room. Those that are not in
    /// `contents` any more are passed over.
    order: VecDeque<Digest>,
    /// How many at the start of `order` were begun.
    begun: usize,
    threads: usize,
}

/// What one release has offered: forgotten when the release is refused. Clones share it.
#[derive(Clone)]
pub(crate) struct Offers {
    head_start: HeadStart,
    digests: Arc<Mutex<Vec<Digest>>>,
}

impl Offers {
    /// Begins with a new content, if that is worth it: on a thread of the runtime for blocking work.
    pub(crate) fn add(&mut self, runtime: &Handle, digest: Digest, content: &[u8]) {
        if self.head_start.offer(runtime, digest, content) {
            lock(&self.digests).push(digest);
        }
    }

    /// The release was made, so somebody will come for them.
    pub(crate) fn keep(self) {
        lock(&self.digests).clear();
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        // The last one of those that share it.
        if Arc::strong_count(&self.digests) == 1 {
            let mut state = self.head_start.lock();
            for digest in lock(&self.digests).drain(..) {
                state.forget(&digest);
            }
        }
    }
}

impl HeadStart {
    /// For the contents of one release.
    pub(crate) fn offers(&self) -> Offers {
        Offers {
            head_start: self.clone(),
            digests: Arc::default(),
        }
    }

    fn offer(&self, runtime: &Handle, digest: Digest, content: &[u8]) -> bool {
        // The one who receives has a core to himself.
        let most_threads = all_cores() - 1;
        let shortest = usize::try_from(SHORTEST).unwrap_or(usize::MAX);
        if most_threads == 0
            || !(shortest..=LARGEST).contains(&content.len())
            || !looks_like_text(content)
        {
            return false;
        }
        let mut state = self.lock();
        if state.contents.contains_key(&digest) || !state.make_room(content.len()) {
            return false;
        }
        state.put(digest, Progress::Waiting(content.into()));
        state.order.push_back(digest);
        if state.threads < most_threads {
            state.threads += 1;
            drop(state);
            let worker = Worker(self.clone());
            runtime.spawn_blocking(move || worker.work_off());
        }
        true
    }

    /// What was made of a content; from now on that is the caller's business.
    pub(super) fn take(&self, digest: &Digest) -> Option<Quick> {
        match self.lock().forget(digest)? {
            Progress::Made(quick) => Some(quick),
            Progress::Waiting(_) | Progress::Begun(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

/// A thread that makes variants until none is wanted. The queue is short, so it ends soon.
struct Worker(HeadStart);

impl Worker {
    fn work_off(&self) {
        let Ok(mut codecs) = Codecs::new() else {
            return;
        };
        while let Some((digest, content)) = self.begin_next() {
            let made = make(&mut codecs, &content);
            self.end(digest, made.ok());
        }
    }

    fn begin_next(&self) -> Option<(Digest, Box<[u8]>)> {
        let mut state = self.0.lock();
        while let Some(&digest) = state.order.get(state.begun) {
            state.begun += 1;
            match state.remove(&digest) {
                Some(Progress::Waiting(content)) => {
                    state.put(digest, Progress::Begun(content.len()));
                    return Some((digest, content));
                }
                Some(other) => state.put(digest, other),
                None => {}
            }
        }
        None
    }

    fn end(&self, digest: Digest, made: Option<Quick>) {
        let mut state = self.0.lock();
        // Who took it in between makes it himself.
        if !matches!(state.contents.get(&digest), Some(Progress::Begun(_))) {
            return;
        }
        state.remove(&digest);
        let made = made.map(Progress::Made);
        // Two variants may be longer than what they are made of.
        if let Some(made) = made.filter(|made| state.bytes + made.bytes() <= MOST_BYTES) {
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
    fn put(&mut self, digest: Digest, progress: Progress) {
        self.bytes += progress.bytes();
        self.contents.insert(digest, progress);
    }

    fn remove(&mut self, digest: &Digest) -> Option<Progress> {
        let removed = self.contents.remove(digest)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }

    /// The same for good: with the last one the order goes too.
    fn forget(&mut self, digest: &Digest) -> Option<Progress> {
        let forgotten = self.remove(digest);
        if self.contents.is_empty() {
            self.order.clear();
            self.begun = 0;
        }
        forgotten
    }

    /// Forgets the oldest that are made until there is room: nobody came for them. What is not even
    /// begun is not given up for more of the same.
    fn make_room(&mut self, bytes: usize) -> bool {
        while self.bytes + bytes > MOST_BYTES && self.begun > 0 {
            self.begun -= 1;
            if let Some(oldest) = self.order.pop_front() {
                self.remove(&oldest);
            }
        }
        self.bytes + bytes <= MOST_BYTES
    }
}

/// Every change is made whole while a lock is held, so a poisoned one is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn offer(head_start: &HeadStart, content: &[u8]) -> Digest {
        let mut offers = head_start.offers();
        offers.add(&Handle::current(), Digest::of(content), content);
        offers.keep();
        Digest::of(content)
    }

    async fn quiet(head_start: &HeadStart) {
        while head_start.lock().threads > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn what_was_made_is_what_is_made_otherwise() {
        let (head_start, content) = (HeadStart::default(), text(1));
        let digest = offer(&head_start, &content);
        quiet(&head_start).await;
        let quick = head_start.take(&digest).unwrap();
        let expected = make(&mut Codecs::new().unwrap(), &content).unwrap();
        assert_eq!(quick, expected);
        assert!(quick.iter().all(|(_, packed)| packed.is_some()));
        assert!(head_start.take(&digest).is_none());
        assert_eq!(head_start.lock().bytes, 0);
    }

    #[tokio::test]
    async fn only_texts_are_begun() {
        let head_start = HeadStart::default();
        let long = vec![b'a'; LARGEST + 1];
        for content in [&b"short"[..], &[0; 1000], &long] {
            offer(&head_start, content);
        }
        assert_eq!(head_start.lock().bytes, 0);
    }

    #[tokio::test]
    async fn it_holds_so_much_and_forgets_the_oldest() {
        let head_start = HeadStart::default();
        let first = offer(&head_start, &text(1));
        for number in 0..200 {
            offer(&head_start, &noise(number));
            assert!(head_start.lock().bytes <= MOST_BYTES);
            if number % 20 == 0 {
                quiet(&head_start).await;
            }
        }
        quiet(&head_start).await;
        assert!(head_start.take(&first).is_none());
        let last = offer(&head_start, &text(2));
        quiet(&head_start).await;
        assert!(head_start.take(&last).is_some());
        let state = head_start.lock();
        assert!(state.bytes > MOST_BYTES / 2 && state.bytes <= MOST_BYTES);
        let counted: usize = state.contents.values().map(Progress::bytes).sum();
        assert_eq!(counted, state.bytes);
    }

    #[tokio::test]
    async fn what_is_taken_before_it_is_made_leaves_nothing() {
        let head_start = HeadStart::default();
        for number in 0..500 {
            let digest = offer(&head_start, &text(number));
            head_start.take(&digest);
        }
        quiet(&head_start).await;
        let state = head_start.lock();
        assert_eq!((state.bytes, state.contents.len()), (0, 0));
        assert_eq!((state.order.len(), state.begun), (0, 0));
    }

    #[tokio::test]
    async fn what_a_refused_release_offered_is_forgotten() {
        let head_start = HeadStart::default();
        let kept = offer(&head_start, &text(0));
        let mut offers = head_start.offers();
        let shared = offers.clone();
        for number in 0..100 {
            let content = text(number);
            offers.add(&Handle::current(), Digest::of(&content), &content);
        }
        drop(offers);
        assert!(head_start.lock().contents.len() > 1);
        drop(shared);
        quiet(&head_start).await;
        let left: Vec<_> = head_start.lock().contents.keys().copied().collect();
        assert_eq!(left, [kept]);
    }
}
