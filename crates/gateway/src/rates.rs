//! Requests and tokens per minute, of keys and of workspaces. Exact on this node.
//!
//! A bucket holds what was used; a limit of N lets it leak N per minute, without steps. So a bucket
//! is full at the start, and a limit that is changed keeps what was used.

use crate::doors::{Pass, Rates};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// One request or token, in the units of a bucket: a microsecond gives back N of them.
const ONE: u128 = 60_000_000;
const SHARDS: usize = 64;
/// Buckets of a shard are looked through when it has grown by so many.
const PRUNE_EVERY: usize = 256;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Requests,
    Tokens,
}

/// How a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) limit: u32,
    pub(crate) remaining: u64,
    /// Until nothing is used any more.
    pub(crate) reset: Duration,
}

/// A limit that does not let a request through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) of_workspace: bool,
    pub(crate) unit: Unit,
    pub(crate) standing: Standing,
    /// Until this very request would be let through.
    pub(crate) retry: Duration,
}

/// How the limits stand after a request was let through: the key's, else its workspace's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standings {
    pub(crate) requests: Option<Standing>,
    pub(crate) tokens: Option<Standing>,
}

/// What a request has taken, so that it can be settled or given back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    key: Option<[u8; 12]>,
    workspace: Option<[u8; 12]>,
    tokens: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    used: u128,
}

impl Bucket {
    fn leak(&mut self, limit: Option<NonZeroU32>, micros: u64) {
        let leaked = limit.map_or(u128::MAX, |limit| {
            u128::from(limit.get()) * u128::from(micros)
        });
        self.used = self.used.saturating_sub(leaked);
    }

    /// Takes what is asked for. More than the whole bucket is given when it is full, else it never could be.
    fn take(&mut self, limit: Option<NonZeroU32>, count: u64) -> Result<(), Duration> {
        let Some(limit) = limit else { return Ok(()) };
        let (size, wanted) = (u128::from(limit.get()) * ONE, u128::from(count) * ONE);
        if self.used + wanted > size && self.used > 0 {
            let over = (self.used + wanted - size).min(self.used);
            return Err(micros(over.div_ceil(u128::from(limit.get()))));
        }
        self.used += wanted;
        Ok(())
    }

    fn standing(self, limit: Option<NonZeroU32>) -> Option<Standing> {
        let limit = limit?.get();
        let size = u128::from(limit) * ONE;
        Some(Standing {
            limit,
            remaining: u64::try_from(size.saturating_sub(self.used) / ONE).unwrap_or(u64::MAX),
            reset: micros(self.used.div_ceil(u128::from(limit))),
        })
    }
}

fn micros(count: u128) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The buckets of one key or workspace.
#[derive(Debug)]
struct Buckets {
    at: Instant,
    limits: Rates,
    requests: Bucket,
    tokens: Bucket,
}

impl Buckets {
    fn forward(&mut self, now: Instant, limits: Rates) {
        let passed = now.saturating_duration_since(self.at);
        let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        self.requests.leak(self.limits.rpm, passed);
        self.tokens.leak(self.limits.tpm, passed);
        // Not simply `now`: what is less than a microsecond must not be lost with each request.
        self.at += Duration::from_micros(passed);
        self.limits = limits;
    }

    fn take(&mut self, tokens: u64) -> Result<(), (Unit, Duration)> {
        self.requests
            .take(self.limits.rpm, 1)
            .map_err(|retry| (Unit::Requests, retry))?;
        self.tokens.take(self.limits.tpm, tokens).map_err(|retry| {
            if self.limits.rpm.is_some() {
                self.requests.used = self.requests.used.saturating_sub(ONE);
            }
            (Unit::Tokens, retry)
        })
    }

    fn is_full(&self) -> bool {
        self.requests.used == 0 && self.tokens.used == 0
    }
}

#[derive(Default)]
struct Shard {
    buckets: HashMap<[u8; 12], Buckets>,
    prune_at: usize,
}

/// All buckets of this node.
pub(crate) struct Limiter {
    shards: Vec<Mutex<Shard>>,
}

impl Limiter {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    fn shard(&self, id: &[u8; 12]) -> MutexGuard<'_, Shard> {
        // The last byte of an id is random.
        self.shards[usize::from(id[11]) % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a limit at all.
    pub(crate) fn applies(pass: &Pass) -> bool {
        limited(pass.key.rates) || limited(pass.workspace.rates)
    }

    /// Takes a request and so many tokens from the buckets of a key and of its workspace: from all
    /// of them, or from none.
    pub(crate) fn take(
        &self,
        pass: &Pass,
        tokens: u64,
        now: Instant,
    ) -> Result<(Taken, Standings), Exceeded> {
        let mut taken = Taken {
            tokens,
            ..Taken::default()
        };
        let mut standings = Standings::default();
        let (key, workspace) = (&pass.key, &pass.workspace);
        if limited(key.rates) {
            standings = self.take_from(*key.id.as_bytes(), key.rates, false, tokens, now)?;
            taken.key = Some(*key.id.as_bytes());
        }
        if limited(workspace.rates) {
            let id = *workspace.id.as_bytes();
            let outcome = self.take_from(id, workspace.rates, true, tokens, now);
            let of_workspace = outcome.inspect_err(|_| self.give_back(taken))?;
            taken.workspace = Some(id);
            standings.requests = standings.requests.or(of_workspace.requests);
            standings.tokens = standings.tokens.or(of_workspace.tokens);
        }
        Ok((taken, standings))
    }

    fn take_from(
        &self,
        id: [u8; 12],
        limits: Rates,
        of_workspace: bool,
        tokens: u64,
        now: Instant,
    ) -> Result<Standings, Exceeded> {
        let mut shard = self.shard(&id);
        shard.prune(now);
        let buckets = shard.buckets.entry(id).or_insert_with(|| Buckets {
            at: now,
            limits,
            requests: Bucket::default(),
            tokens: Bucket::default(),
        });
        buckets.forward(now, limits);
        let outcome = buckets.take(tokens);
        let standings = Standings {
            requests: buckets.requests.standing(limits.rpm),
            tokens: buckets.tokens.standing(limits.tpm),
        };
        drop(shard);
        let Err((unit, retry)) = outcome else {
            return Ok(standings);
        };
        let standing = match unit {
            Unit::Requests => standings.requests,
            Unit::Tokens => standings.tokens,
        };
        Err(Exceeded {
            of_workspace,
            unit,
            standing: standing.unwrap_or(Standing {
                limit: 0,
                remaining: 0,
                reset: retry,
            }),
            retry,
        })
    }

    /// Replaces the estimate of tokens by what was really used.
    pub(crate) fn settle(&self, taken: Taken, used: u64) {
        for id in [taken.key, taken.workspace].into_iter().flatten() {
            if let Some(buckets) = self.shard(&id).buckets.get_mut(&id) {
                let bucket = &mut buckets.tokens;
                let more = u128::from(used) * ONE;
                bucket.used = (bucket.used + more).saturating_sub(u128::from(taken.tokens) * ONE);
            }
        }
    }

    /// Undoes a take: the request is not made after all.
    pub(crate) fn give_back(&self, taken: Taken) {
        self.settle(taken, 0);
        for id in [taken.key, taken.workspace].into_iter().flatten() {
            if let Some(buckets) = self.shard(&id).buckets.get_mut(&id) {
                buckets.requests.used = buckets.requests.used.saturating_sub(ONE);
            }
        }
    }
}

fn limited(rates: Rates) -> bool {
    rates.rpm.is_some() || rates.tpm.is_some()
}

impl Shard {
    /// Forgets buckets that are full again; now and then, so that it costs nothing per request.
    fn prune(&mut self, now: Instant) {
        if self.buckets.len() <= self.prune_at.max(PRUNE_EVERY) {
            return;
        }
        self.buckets.retain(|_, buckets| {
            buckets.forward(now, buckets.limits);
            !buckets.is_full()
        });
        self.prune_at = self.buckets.len() + PRUNE_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::{KeyPass, WorkspacePass};
    use estrade_model::Id;
    use std::sync::Arc;

    fn rates(rpm: u32, tpm: u32) -> Rates {
        Rates {
            rpm: NonZeroU32::new(rpm),
            tpm: NonZeroU32::new(tpm),
        }
    }

    fn pass(number: u64, key: Rates, workspace: Rates) -> Pass {
        Pass {
            key: Arc::new(KeyPass {
                id: Id::generate(1, number),
                owner: Id::generate(1, 1),
                models: None,
                cache: false,
                rates: key,
                budget: None,
            }),
            workspace: Arc::new(WorkspacePass {
                id: Id::generate(1, number),
                preference: estrade_model::provider::Preference::Order,
                rates: workspace,
                budget: None,
            }),
        }
    }

    fn with_rates(of: &Pass, rates: Rates) -> Pass {
        let mut new = pass(0, rates, of.workspace.rates);
        new.workspace = Arc::clone(&of.workspace);
        Arc::get_mut(&mut new.key).unwrap().id = of.key.id;
        new
    }

    #[test]
    fn a_bucket_is_full_at_the_start_and_refills_without_steps() {
        let (limiter, start) = (Limiter::new(), Instant::now());
        let pass = pass(1, rates(60, 0), rates(0, 0));
        for left in (0..60).rev() {
            let (_, standings) = limiter.take(&pass, 1, start).unwrap();
            assert_eq!(standings.requests.unwrap().remaining, left);
            assert_eq!(standings.tokens, None);
        }
        let refused = limiter.take(&pass, 1, start).unwrap_err();
        assert_eq!(
            (refused.unit, refused.of_workspace),
            (Unit::Requests, false)
        );
        assert_eq!(refused.retry, Duration::from_secs(1));
        assert_eq!(refused.standing.reset, Duration::from_mins(1));
        let later = start + Duration::from_millis(999);
        assert!(limiter.take(&pass, 1, later).is_err());
        let later = start + Duration::from_secs(1);
        assert!(limiter.take(&pass, 1, later).is_ok());
        assert!(limiter.take(&pass, 1, later).is_err());
    }

    #[test]
    fn tokens_are_estimated_then_settled() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let pass = pass(2, rates(0, 100), rates(0, 0));
        let (taken, standings) = limiter.take(&pass, 80, now).unwrap();
        assert_eq!(standings.tokens.unwrap().remaining, 20);
        assert_eq!(limiter.take(&pass, 30, now).unwrap_err().unit, Unit::Tokens);
        limiter.settle(taken, 10);
        let (_, standings) = limiter.take(&pass, 30, now).unwrap();
        assert_eq!(standings.tokens.unwrap().remaining, 60);
    }

    #[test]
    fn more_than_the_whole_bucket_goes_only_when_it_is_full() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let pass = pass(3, rates(0, 60), rates(0, 0));
        limiter.take(&pass, 600, now).unwrap();
        let refused = limiter
            .take(&pass, 1, now + Duration::from_mins(1))
            .unwrap_err();
        assert_eq!(refused.retry, Duration::from_secs(600 - 60 - 60 + 1));
        assert!(
            limiter
                .take(&pass, 600, now + Duration::from_secs(599))
                .is_err()
        );
        assert!(
            limiter
                .take(&pass, 600, now + Duration::from_secs(601))
                .is_ok()
        );
    }

    #[test]
    fn what_was_taken_is_given_back_when_the_workspace_refuses() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let pass = pass(4, rates(10, 1000), rates(1, 0));
        limiter.take(&pass, 100, now).unwrap();
        for _ in 0..20 {
            let refused = limiter.take(&pass, 100, now).unwrap_err();
            assert!(refused.of_workspace, "{refused:?}");
        }
        let alone = with_rates(&pass, rates(10, 1000));
        let mut alone = alone;
        alone.workspace = pass_without_limits(&alone);
        let (_, standings) = limiter.take(&alone, 100, now).unwrap();
        assert_eq!(standings.requests.unwrap().remaining, 8);
        assert_eq!(standings.tokens.unwrap().remaining, 800);
    }

    fn pass_without_limits(of: &Pass) -> Arc<WorkspacePass> {
        Arc::new(WorkspacePass {
            id: of.workspace.id,
            preference: of.workspace.preference,
            rates: Rates::default(),
            budget: None,
        })
    }

    #[test]
    fn a_changed_limit_keeps_what_was_used() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let before = pass(5, rates(10, 0), rates(0, 0));
        for _ in 0..10 {
            limiter.take(&before, 1, now).unwrap();
        }
        let after = with_rates(&before, rates(12, 0));
        assert!(limiter.take(&after, 1, now).is_ok());
        assert!(limiter.take(&after, 1, now).is_ok());
        assert!(limiter.take(&after, 1, now).is_err());
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        for number in 0..100_000 {
            let at = now + Duration::from_millis(number);
            limiter
                .take(&pass(number * 7, rates(60, 0), rates(0, 0)), 1, at)
                .unwrap();
        }
        let kept: usize = limiter
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().buckets.len())
            .sum();
        assert!(kept < 3 * SHARDS * PRUNE_EVERY, "{kept}");
    }

    #[test]
    fn many_threads_take_exactly_what_is_there() {
        let (limiter, now) = (Limiter::new(), Instant::now());
        let pass = pass(6, rates(500, 0), rates(0, 0));
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..200)
                            .filter(|_| limiter.take(&pass, 1, now).is_ok())
                            .count()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(admitted, 500);
    }
}
