//! A circuit breaker: once the bucket was seen not to answer, calls fail at once for a while instead of each waiting
//! for all of its retries. Then one call asks whether the bucket is back, and the others go on failing until it
//! knows.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use estrade_model::sync::MutexExt;

const MIN_COOLDOWN: Duration = Duration::from_secs(1);
const MAX_COOLDOWN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    Open {
        until: Instant,
        cooldown: Duration,
    },
    /// Somebody asks.
    Probing,
}

/// Whether a call may be made.
#[derive(Debug)]
pub(super) enum Admission<'o> {
    Granted,
    /// The caller has to find out first.
    Probe(Probe<'o>),
    Refused,
}

/// The right to ask whether the bucket is back. Dropped without an answer, the outage goes on.
#[derive(Debug)]
pub(super) struct Probe<'o> {
    outage: &'o Outage,
    cooldown: Duration,
    has_ended: bool,
}

impl Outage {
    pub(super) fn admit(&self) -> Admission<'_> {
        let mut state = self.lock();
        match *state {
            State::Closed => Admission::Granted,
            State::Open { until, cooldown } if until <= Instant::now() => {
                *state = State::Probing;
                Admission::Probe(Probe {
                    outage: self,
                    cooldown,
                    has_ended: false,
                })
            }
            State::Open { .. } | State::Probing => Admission::Refused,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(*self.lock(), State::Closed)
    }

    /// All retries of a call failed, and the bucket answers nothing else either.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        if matches!(*state, State::Closed) {
            tracing::warn!("the bucket of the blob store does not answer");
            *state = open(MIN_COOLDOWN);
        }
    }

    /// It has answered.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        if !matches!(*state, State::Closed) {
            tracing::info!("the bucket of the blob store answers again");
            *state = State::Closed;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock_ignoring_poison()
    }
}

impl Probe<'_> {
    pub(super) fn succeeded(mut self) {
        self.has_ended = true;
        self.outage.end();
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let mut state = self.outage.lock();
        if !self.has_ended && matches!(*state, State::Probing) {
            *state = open((self.cooldown * 2).min(MAX_COOLDOWN));
        }
    }
}

fn open(cooldown: Duration) -> State {
    State::Open {
        until: Instant::now() + cooldown,
        cooldown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_asks_and_the_others_fail_at_once() {
        let outage = Outage::default();
        assert!(matches!(outage.admit(), Admission::Granted));
        outage.begin();
        assert!(matches!(outage.admit(), Admission::Refused));
        let past = |state: &mut State| {
            if let State::Open { until, .. } = state {
                *until = Instant::now();
            }
        };
        past(&mut outage.lock());
        let Admission::Probe(probe) = outage.admit() else {
            panic!("nobody asks");
        };
        assert!(matches!(outage.admit(), Admission::Refused));
        drop(probe);
        assert!(matches!(outage.admit(), Admission::Refused));
        past(&mut outage.lock());
        let Admission::Probe(probe) = outage.admit() else {
            panic!("nobody asks again");
        };
        probe.succeeded();
        assert!(matches!(outage.admit(), Admission::Granted));
        assert!(!outage.is_open());
    }
}
