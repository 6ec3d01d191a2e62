//! Registry of calls that were sent and are on record nowhere, with their usage so far, for the in-flight journal.
//!
//! The path of a call stores counters with relaxed atomics; the journal's thread reads them. Invariant: a call is in the
//! registry from before its first byte is sent until the ledger has its record, so that a crash loses at most what was
//! generated since the last snapshot.

use crate::accounting::usage::{micros, sum, tokens};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, Price};
use estrade_model::sync::MutexExt;
use slab::Slab;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Younger calls are left out of a snapshot: most end before it would be written.
const MIN_AGE: Duration = Duration::from_millis(10);

/// The calls of one thread.
#[derive(Default)]
pub(crate) struct InFlightCalls(Mutex<Slab<Arc<CallProgress>>>);

impl InFlightCalls {
    fn slots(&self) -> MutexGuard<'_, Slab<Arc<CallProgress>>> {
        self.0.lock_ignoring_poison()
    }

    /// Adds a call for as long as the guard lives.
    pub(crate) fn add(self: &Arc<Self>, started: Instant, snapshot: CallSnapshot) -> InFlightGuard {
        let progress = Arc::new(CallProgress {
            started,
            content_bytes: AtomicU64::new(0),
            first_byte_us: AtomicU64::new(0),
            state: Mutex::new(State {
                snapshot,
                content_bytes: 0,
                latency_us: 0,
            }),
        });
        let calls = Arc::clone(self);
        let slot = self.slots().insert(Arc::clone(&progress));
        InFlightGuard {
            progress,
            calls,
            slot,
        }
    }
}

/// The calls of all threads.
#[derive(Default)]
pub(crate) struct InFlightRegistry(Mutex<Vec<Weak<InFlightCalls>>>);

impl InFlightRegistry {
    /// The calls of one more thread.
    pub(crate) fn register_thread(&self) -> Arc<InFlightCalls> {
        let one = Arc::default();
        let mut all = self.0.lock_ignoring_poison();
        all.retain(|thread| thread.strong_count() > 0);
        all.push(Arc::downgrade(&one));
        one
    }

    /// The usage of all calls so far, and whether there are younger ones.
    pub(crate) fn snapshot(&self) -> (Vec<Call>, bool) {
        let threads: Vec<_> = {
            let all = self.0.lock_ignoring_poison();
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let (mut calls, mut has_younger) = (Vec::new(), false);
        let now = Instant::now();
        for thread in threads {
            // Copied: the lock is not held while they are read.
            let all: Vec<_> = thread
                .slots()
                .iter()
                .map(|(_, it)| Arc::clone(it))
                .collect();
            calls.reserve(all.len());
            for progress in all {
                if now.saturating_duration_since(progress.started) < MIN_AGE {
                    has_younger = true;
                } else {
                    calls.extend(progress.snapshot());
                }
            }
        }
        (calls, has_younger)
    }
}

/// What is known of a call in flight.
#[derive(Debug, Clone)]
pub(crate) struct CallSnapshot {
    /// What is known of it.
    pub(crate) call: Call,
    /// The price at which it was sent to a provider that has not refused it.
    pub(crate) price: Option<Price>,
    /// What was sent, about.
    pub(crate) prompt: u64,
    /// What was sent in vain, and what it may have cost.
    pub(crate) lost: u64,
    pub(crate) owed: Amount,
}

/// The progress of a call in flight.
pub(crate) struct CallProgress {
    started: Instant,
    /// Bytes of content that the provider has sent.
    content_bytes: AtomicU64,
    first_byte_us: AtomicU64,
    state: Mutex<State>,
}

struct State {
    snapshot: CallSnapshot,
    /// Bytes and latency of the last snapshot: unchanged progress gives an unchanged record.
    content_bytes: u64,
    latency_us: u64,
}

impl CallProgress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_ignoring_poison()
    }

    fn snapshot(&self) -> Option<Call> {
        let mut state = self.state();
        let CallSnapshot {
            price, lost, owed, ..
        } = state.snapshot;
        if price.is_none() && lost == 0 {
            return None;
        }
        let content_bytes = self.content_bytes.load(Ordering::Relaxed);
        let first_byte = self.first_byte_us.load(Ordering::Relaxed);
        if content_bytes != state.content_bytes || state.latency_us < first_byte {
            state.content_bytes = content_bytes;
            state.latency_us = micros(self.started.elapsed());
        }
        let mut call = state.snapshot.call.clone();
        if let Some(price) = price {
            (call.tokens, _) = tokens(call.operation, None, state.snapshot.prompt, content_bytes);
            call.cost = price.cost(call.tokens);
        }
        call.tokens.prompt = call.tokens.prompt.saturating_add(lost);
        call.cost = sum(call.cost, owed);
        call.partial = true;
        call.estimated = true;
        call.latency_us = state.latency_us;
        call.ttfb_us = first_byte;
        Some(call)
    }
}

/// Keeps a call in the registry until it is dropped.
pub(crate) struct InFlightGuard {
    progress: Arc<CallProgress>,
    calls: Arc<InFlightCalls>,
    slot: usize,
}

impl InFlightGuard {
    /// Replaces what is known of the call.
    pub(crate) fn update(&self, snapshot: CallSnapshot) {
        self.progress.state().snapshot = snapshot;
    }

    /// The counter for the forwarder of the response.
    pub(crate) fn token_counter(&self) -> TokenCounter {
        TokenCounter(Some(Arc::clone(&self.progress)))
    }

    /// The first byte of the response has come.
    pub(crate) fn record_first_byte(&self, now: Instant) {
        let waited = micros(now.saturating_duration_since(self.progress.started));
        self.progress
            .first_byte_us
            .store(waited.max(1), Ordering::Relaxed);
    }
}

/// Counts the content of a response, if its call is in the registry.
#[derive(Default)]
pub(crate) struct TokenCounter(Option<Arc<CallProgress>>);

impl TokenCounter {
    pub(crate) fn set_content_bytes(&self, bytes: u64) {
        if let Some(progress) = &self.0 {
            progress.content_bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.calls.slots().try_remove(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::Id;
    use estrade_model::Timestamp;
    use estrade_model::call::{Operation, Tokens};

    fn snapshot(price: Option<Price>) -> CallSnapshot {
        let call = Call {
            id: Id::from_bytes([1; 12]),
            workspace: Id::from_bytes([2; 12]),
            key: Id::from_bytes([3; 12]),
            created_at: Timestamp::from_millis(5),
            operation: Operation::Chat,
            model: "model".into(),
            provider: "provider".into(),
            status: 0,
            streamed: true,
            partial: false,
            estimated: false,
            cached: false,
            tokens: Tokens::default(),
            cost: Amount::ZERO,
            latency_us: 0,
            ttfb_us: 0,
            attempts: 1,
        };
        CallSnapshot {
            call,
            price,
            prompt: 7,
            lost: 0,
            owed: Amount::ZERO,
        }
    }

    fn earlier() -> Instant {
        Instant::now().checked_sub(MIN_AGE).unwrap()
    }

    fn dear() -> Price {
        Price {
            prompt: "1".parse().unwrap(),
            completion: "2".parse().unwrap(),
        }
    }

    #[test]
    fn what_a_call_took_so_far_is_known_until_its_end() {
        let all = InFlightRegistry::default();
        let thread = all.register_thread();
        let guard = thread.add(earlier(), snapshot(Some(dear())));
        guard.record_first_byte(Instant::now());
        guard.token_counter().set_content_bytes(41);
        let (seen, _) = all.snapshot();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].tokens.prompt, seen[0].tokens.completion), (7, 11));
        assert_eq!(seen[0].cost.nanos(), 7 * 1000 + 11 * 2000);
        assert!(seen[0].partial && seen[0].estimated && seen[0].ttfb_us > 0);
        // Nothing new: then nothing has to be written again.
        assert_eq!(format!("{:?}", all.snapshot().0), format!("{seen:?}"));
        let has_younger = thread.add(Instant::now(), snapshot(Some(dear())));
        let (seen, others) = all.snapshot();
        assert!(others && seen.len() == 1);
        drop((guard, has_younger));
        assert!(all.snapshot().0.is_empty());
        drop(thread);
        drop(all.register_thread());
        assert_eq!(all.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_call_that_nobody_has_taken_is_not_written() {
        let all = InFlightRegistry::default();
        let thread = all.register_thread();
        let guard = thread.add(earlier(), snapshot(Some(dear())));
        guard.update(snapshot(None));
        assert!(all.snapshot().0.is_empty());
        guard.update(CallSnapshot {
            lost: 5,
            owed: Amount::from_nanos(9),
            ..snapshot(None)
        });
        let (seen, _) = all.snapshot();
        assert_eq!((seen[0].tokens.prompt, seen[0].cost.nanos()), (5, 9));
    }
}
