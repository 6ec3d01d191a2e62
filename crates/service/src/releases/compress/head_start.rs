//! Compressing the first files of a release while the others still arrive.
//!
//! Receiving a release keeps one core busy, and compressing it comes after. What is made here in
//! between is taken from here then; what is not is made as usual, so nothing depends on it.

use super::QUICK;
use super::codecs::Codecs;
use super::kinds::{SHORTEST, looks_like_text};
use super::spread::all_cores;
use estrade_model::coding::Coding;
use estrade_store::blobs::Digest;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How much waits or is made in all, in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Larger contents are not begun: if their release comes first, that was in vain.
const LARGEST: usize = 256 << 10;
/// What nobody took after this time belongs to a release that was refused.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// Contents and their quick variants. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct HeadStart(Arc<Mutex<State>>);

/// The quick variants of a content, where they are worth it.
pub(super) struct Quick(Vec<(Coding, Option<Vec<u8>>)>);

impl Quick {
    fn make(codecs: &mut Codecs, content: &[u8]) -> io::Result<Self> {
        let pack = |coding: Coding| Ok((coding, codecs.pack(coding, content)?));
        QUICK
            .into_iter()
            .map(pack)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The variant in a coding; none when that one was not tried.
    pub(super) fn take(&mut self, coding: Coding) -> Option<Option<Vec<u8>>> {
        let found = self.0.iter_mut().find(|made| made.0 == coding);
        found.map(|made| made.1.take())
    }

    fn bytes(&self) -> usize {
        let lengths = self
            .0
            .iter()
            .map(|made| made.1.as_ref().map_or(0, Vec::len));
        lengths.sum()
    }
}

enum Progress {
    Waiting(Vec<u8>),
    /// Somebody makes the variants of so many bytes.
    Begun(usize),
    Made(Quick),
}

impl Progress {
    fn bytes(&self) -> usize {
        match self {
            Self::Waiting(content) => content.len(),
            Self::Begun(bytes) => *bytes,
            Self::Made(quick) => quick.bytes(),
        }
    }
}

#[derive(Default)]
struct State {
    contents: HashMap<Digest, Progress>,
    bytes: usize,
    /// In this order they are begun; those that are not waiting any more are passed over.
    queue: VecDeque<Digest>,
    threads: usize,
    used: Option<Instant>,
}

impl HeadStart {
    /// Begins with a new content, if that is worth it and there is room: on a thread of the runtime
    /// for blocking work.
    pub(crate) fn offer(&self, runtime: &Handle, digest: Digest, content: &[u8]) {
        // The one who receives has a core to himself.
        let most_threads = all_cores() - 1;
        let shortest = usize::try_from(SHORTEST).unwrap_or(usize::MAX);
        if most_threads == 0
            || !(shortest..=LARGEST).contains(&content.len())
            || !looks_like_text(content)
        {
            return;
        }
        let mut state = self.lock();
        state.forget_abandoned();
        if state.bytes + content.len() > MOST_BYTES || state.contents.contains_key(&digest) {
            return;
        }
        state.put(digest, Progress::Waiting(content.to_vec()));
        state.queue.push_back(digest);
        state.used = Some(Instant::now());
        if state.threads < most_threads {
            state.threads += 1;
            let work = self.clone();
            runtime.spawn_blocking(move || work.work_off());
        }
    }

    /// What was made of a content; from now on that is the caller's business.
    pub(super) fn take(&self, digest: &Digest) -> Option<Quick> {
        let mut state = self.lock();
        state.used = Some(Instant::now());
        match state.remove(digest)? {
            Progress::Made(quick) => Some(quick),
            Progress::Waiting(_) | Progress::Begun(_) => None,
        }
    }

    fn work_off(&self) {
        let mut codecs = Codecs::new();
        while let Some((digest, content)) = self.begin_next() {
            let made = match &mut codecs {
                Ok(codecs) => Quick::make(codecs, &content).ok(),
                Err(_) => None,
            };
            self.end(&digest, made);
        }
    }

    /// The next one that waits; none when this thread is not needed any more.
    fn begin_next(&self) -> Option<(Digest, Vec<u8>)> {
        let mut state = self.lock();
        while let Some(digest) = state.queue.pop_front() {
            match state.remove(&digest) {
                Some(Progress::Waiting(content)) => {
                    state.put(digest, Progress::Begun(content.len()));
                    return Some((digest, content));
                }
                Some(other) => state.put(digest, other),
                None => {}
            }
        }
        state.threads -= 1;
        None
    }

    fn end(&self, digest: &Digest, made: Option<Quick>) {
        let mut state = self.lock();
        // Who took it in between has made it himself.
        if let Some(Progress::Begun(_)) = state.contents.get(digest) {
            state.remove(digest);
            if let Some(quick) = made {
                state.put(*digest, Progress::Made(quick));
            }
        }
    }

    /// Every change is made whole while the lock is held, so a poisoned one is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn forget_abandoned(&mut self) {
        if self
            .used
            .is_some_and(|used| used.elapsed() > ABANDONED_AFTER)
        {
            self.contents.clear();
            self.queue.clear();
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: usize) -> Vec<u8> {
        format!("file {number}: {}", "the same again and again ".repeat(100)).into_bytes()
    }

    async fn quiet(head_start: &HeadStart) {
        while head_start.lock().threads > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn what_was_made_is_what_is_made_otherwise() {
        let (head_start, content) = (HeadStart::default(), text(1));
        let digest = Digest::of(&content);
        head_start.offer(&Handle::current(), digest, &content);
        quiet(&head_start).await;
        let mut quick = head_start.take(&digest).unwrap();
        let mut codecs = Codecs::new().unwrap();
        for coding in QUICK {
            let expected = codecs.pack(coding, &content).unwrap();
            assert!(expected.is_some());
            assert_eq!(quick.take(coding), Some(expected));
        }
        assert!(quick.take(Coding::Brotli).is_none());
        assert!(head_start.take(&digest).is_none());
        assert_eq!(head_start.lock().bytes, 0);
    }

    #[tokio::test]
    async fn only_texts_are_begun() {
        let head_start = HeadStart::default();
        let long = vec![b'a'; LARGEST + 1];
        for content in [&b"short"[..], &[0; 1000], &long] {
            head_start.offer(&Handle::current(), Digest::of(content), content);
        }
        assert_eq!(head_start.lock().bytes, 0);
    }

    #[tokio::test]
    async fn it_holds_so_much_and_forgets_what_nobody_takes() {
        let head_start = HeadStart::default();
        let content = |number: u32| -> Vec<u8> {
            let line = |line: u32| format!("{:x}\n", (line ^ number).wrapping_mul(2_654_435_761));
            (0..25_000).map(line).collect::<String>().into_bytes()
        };
        for number in 0..200 {
            let content = content(number);
            head_start.offer(&Handle::current(), Digest::of(&content), &content);
            assert!(head_start.lock().bytes <= MOST_BYTES);
        }
        quiet(&head_start).await;
        assert!(head_start.lock().bytes > MOST_BYTES / 2);
        head_start.lock().used = Instant::now().checked_sub(ABANDONED_AFTER * 2);
        head_start.offer(&Handle::current(), Digest::of(&text(1)), &text(1));
        quiet(&head_start).await;
        assert_eq!(head_start.lock().contents.len(), 1);
    }

    #[tokio::test]
    async fn what_is_taken_before_it_is_made_leaves_nothing() {
        let head_start = HeadStart::default();
        for number in 0..500 {
            head_start.offer(&Handle::current(), Digest::of(&text(number)), &text(number));
            head_start.take(&Digest::of(&text(number)));
        }
        quiet(&head_start).await;
        let state = head_start.lock();
        assert_eq!(
            (state.bytes, state.contents.len(), state.queue.len()),
            (0, 0, 0)
        );
    }
}
