//! Counters of calls, per model and provider.

use estrade_model::call::Tokens;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The statuses that are counted one by one; others count as 0.
pub const STATUSES: [u16; 18] = [
    200, 400, 401, 402, 403, 404, 408, 409, 413, 415, 422, 429, 499, 500, 502, 503, 504, 0,
];
/// The upper bounds of the histogram of durations, in milliseconds; one more bucket is without.
pub const BOUNDS_MS: [u64; 14] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 15_000, 60_000,
];

/// The counters of one model at one provider.
#[derive(Debug, Default)]
pub(crate) struct Series {
    statuses: [AtomicU64; STATUSES.len()],
    durations: [AtomicU64; BOUNDS_MS.len() + 1],
    micros: AtomicU64,
    prompt: AtomicU64,
    completion: AtomicU64,
    attempts: AtomicU64,
}

/// What was counted of one model at one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The model; empty for calls that name none that exists.
    pub model: Arc<str>,
    /// The provider; empty for calls that were sent to none.
    pub provider: Arc<str>,
    /// How many calls ended with which status, those that occurred.
    pub statuses: Vec<(u16, u64)>,
    /// How many took how long: as many as [`BOUNDS_MS`] has bounds, and one more.
    pub durations: [u64; BOUNDS_MS.len() + 1],
    /// How long all of them took.
    pub total: Duration,
    pub tokens: Tokens,
    /// How often providers were asked for them.
    pub attempts: u64,
}

impl Series {
    pub(crate) fn note(&self, status: u16, took: Duration, tokens: Tokens, attempts: u32) {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        let slot = STATUSES.iter().position(|known| *known == status);
        add(&self.statuses[slot.unwrap_or(STATUSES.len() - 1)], 1);
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MS.iter().position(|bound| millis < *bound);
        add(&self.durations[bucket.unwrap_or(BOUNDS_MS.len())], 1);
        add(&self.micros, u64::try_from(took.as_micros()).unwrap_or(0));
        add(&self.prompt, tokens.prompt);
        add(&self.completion, tokens.completion);
        add(&self.attempts, u64::from(attempts));
    }
}

type ByName = HashMap<(Arc<str>, Arc<str>), Arc<Series>>;

/// All series since the start; as many as models and providers were ever configured.
#[derive(Default)]
pub(crate) struct Registry(Mutex<ByName>);

impl Registry {
    pub(crate) fn series(&self, model: &str, provider: &str) -> Arc<Series> {
        let mut all = self.0.lock_ignoring_poison();
        Arc::clone(
            all.entry((Arc::from(model), Arc::from(provider)))
                .or_default(),
        )
    }

    pub(crate) fn snapshot(&self) -> Vec<Snapshot> {
        let all = self.0.lock_ignoring_poison();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut snapshot: Vec<_> = all
            .iter()
            .map(|((model, provider), series)| Snapshot {
                model: Arc::clone(model),
                provider: Arc::clone(provider),
                statuses: STATUSES
                    .iter()
                    .zip(&series.statuses)
                    .map(|(status, counter)| (*status, read(counter)))
                    .filter(|(_, count)| *count > 0)
                    .collect(),
                durations: std::array::from_fn(|at| read(&series.durations[at])),
                total: Duration::from_micros(read(&series.micros)),
                tokens: Tokens {
                    prompt: read(&series.prompt),
                    completion: read(&series.completion),
                },
                attempts: read(&series.attempts),
            })
            .filter(|snapshot| !snapshot.statuses.is_empty())
            .collect();
        snapshot.sort_by(|one, other| {
            (&one.model, &one.provider).cmp(&(&other.model, &other.provider))
        });
        snapshot
    }
}
