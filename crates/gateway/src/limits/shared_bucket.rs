//! What this node knows of a bucket that it shares with other nodes.
//!
//! An asynchronous counter whose error is bounded: the node admits calls by what it last heard of the shared bucket and
//! by what it has used since, and reports that within milliseconds. All nodes together may have admitted [`CREDIT`] of
//! the limit that the shared bucket does not know of yet; a call beyond that waits until the shared bucket has decided.
//! What is reported counts even when the bucket is full, so whatever was admitted too much has to leak before anybody
//! is admitted again: in t seconds all nodes admit at most limit × (1 + CREDIT + t / 60).

use super::bucket::{Bucket, size};
use super::report_queue::Place;
use estrade_model::rate::{RateReply, RateReport, RateUnit};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How much of a limit all nodes together may use before they report it, in hundredths.
const CREDIT: u128 = 9;
/// What was heard of a full bucket is believed for so long: others may have given back what they did not need.
const FRESH: Duration = Duration::from_millis(250);

pub(crate) struct SharedBucket {
    limit: NonZeroU32,
    /// The limit in the report that is under way, and the one that the shared bucket has.
    reporting_limit: NonZeroU32,
    reported_limit: NonZeroU32,
    /// Used here since the last report; negative: to be given back.
    unreported: i128,
    /// In the report that is under way.
    reporting: i128,
    heard: Option<Heard>,
    /// Calls that the shared bucket has to decide, oldest first; one per open request at most.
    waiting: VecDeque<Waiting>,
    /// In the queue of reports; also while it was taken out of it and the report is not made yet.
    pub(crate) place: Option<Place>,
}

/// The shared bucket, when it last replied.
#[derive(Clone, Copy)]
struct Heard {
    /// Without what has leaked until `at`.
    bucket: Bucket,
    at: Instant,
    fresh_until: Instant,
}

impl Heard {
    fn leak(&mut self, limit: NonZeroU32, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.bucket.leak(Some(limit), passed);
        self.at = self.at.max(now);
    }
}

struct Waiting {
    wanted: u128,
    decision: oneshot::Sender<Decision>,
}

/// What the shared bucket says to a call that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decision {
    /// It is taken from the bucket, which has this much now.
    Granted(Bucket),
    Refused(Bucket),
    /// There is no answer: this node has to decide by itself.
    Unreachable,
}

/// What this node thinks of a call by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Judgement {
    Admit,
    Refuse,
    /// Only the shared bucket knows.
    Ask,
}

impl SharedBucket {
    pub(crate) fn new(limit: NonZeroU32) -> Self {
        Self {
            limit,
            reporting_limit: limit,
            reported_limit: limit,
            unreported: 0,
            reporting: 0,
            heard: None,
            waiting: VecDeque::new(),
            place: None,
        }
    }

    /// Whether the limit is another one from now on, which the shared bucket has to be told.
    pub(crate) fn set_limit(&mut self, limit: NonZeroU32, now: Instant) -> bool {
        if limit == self.limit {
            return false;
        }
        // Until now it leaked by the limit before.
        if let Some(heard) = &mut self.heard {
            heard.leak(self.limit, now);
        }
        self.limit = limit;
        true
    }

    /// What all nodes have used, as far as this node can tell. `own` is what it has used itself.
    pub(crate) fn estimate(&self, own: Bucket, now: Instant) -> Bucket {
        let heard = self.heard.map_or(0, |mut heard| {
            heard.leak(self.limit, now);
            heard.bucket.used
        });
        Bucket {
            used: (heard + self.pending()).max(own.used),
        }
    }

    /// What was used here and the shared bucket does not know of.
    fn pending(&self) -> u128 {
        u128::try_from(self.unreported + self.reporting).unwrap_or(0)
    }

    pub(crate) fn judge(&self, own: Bucket, wanted: u128, nodes: usize, now: Instant) -> Judgement {
        let estimate = self.estimate(own, now);
        if estimate.has_room(self.limit, wanted) {
            let credit = size(self.limit) * CREDIT / 100 / nodes.max(2) as u128;
            let is_covered = self.pending() + wanted <= credit && self.waiting.is_empty();
            return if is_covered {
                Judgement::Admit
            } else {
                Judgement::Ask
            };
        }
        match &self.heard {
            Some(heard) if now < heard.fresh_until => Judgement::Refuse,
            _ => Judgement::Ask,
        }
    }

    /// Something was used here, or is given back.
    pub(crate) fn change(&mut self, by: i128) {
        self.unreported += by;
    }

    /// Waits for what the shared bucket decides.
    pub(crate) fn ask(&mut self, wanted: u128) -> oneshot::Receiver<Decision> {
        let (decision, receiver) = oneshot::channel();
        self.waiting.push_back(Waiting { wanted, decision });
        receiver
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next report; none when there is nothing to say.
    pub(crate) fn report(
        &mut self,
        (subject, unit): ([u8; 12], RateUnit),
        own: Bucket,
    ) -> Option<RateReport> {
        self.place = None;
        self.waiting.retain(|waiting| !waiting.decision.is_closed());
        if !self.needs_report() {
            return None;
        }
        self.reporting = std::mem::take(&mut self.unreported);
        self.reporting_limit = self.limit;
        let mut wanted = self.waiting.iter().map(|waiting| waiting.wanted);
        let first = wanted.next().unwrap_or(0);
        Some(RateReport {
            subject,
            unit,
            limit: self.limit,
            change: clamp_signed(self.reporting),
            own: clamp(own.used),
            first: clamp(first),
            all: clamp(wanted.fold(first, u128::saturating_add)),
        })
    }

    /// Takes the reply to a report: calls get what was granted in the order in which they came, and those for which there
    /// is no room are refused. `own` grows by what is granted.
    pub(crate) fn apply(&mut self, reply: RateReply, own: &mut Bucket, now: Instant) {
        self.reporting = 0;
        self.reported_limit = self.reporting_limit;
        self.heard = Some(Heard {
            bucket: Bucket {
                used: u128::try_from(reply.used).unwrap_or(0),
            },
            at: now,
            fresh_until: now + FRESH,
        });
        let mut granted = u128::try_from(reply.granted).unwrap_or(0);
        while let Some(next) = self.waiting.front() {
            let wanted = next.wanted;
            let estimate = self.estimate(*own, now);
            let decision = if wanted <= granted {
                Decision::Granted(estimate)
            } else if estimate.has_room(self.limit, wanted) {
                // It came after the report: the next one is for it.
                break;
            } else {
                Decision::Refused(estimate)
            };
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            let is_taken = next.decision.send(decision).is_ok();
            if is_taken && matches!(decision, Decision::Granted(_)) {
                granted -= wanted;
                own.used += wanted;
            }
        }
        // Granted to callers who have left.
        self.unreported -= i128::try_from(granted).unwrap_or(0);
    }

    /// There was no reply, and nobody waits any longer. What was refused is reported again, as far as it has not leaked
    /// from what this node has used itself. What may have arrived is not: repeated with each attempt it would add up to
    /// hours of use, and the shared bucket is told what this node has used in any case.
    pub(crate) fn give_up(&mut self, own: Bucket, may_have_arrived: bool) {
        let reported = std::mem::take(&mut self.reporting);
        if !may_have_arrived {
            self.unreported += reported;
        }
        let own = i128::try_from(own.used).unwrap_or(i128::MAX);
        self.unreported = self.unreported.min(own);
        self.release_waiting();
    }

    /// Lets the calls that wait decide by themselves.
    pub(crate) fn release_waiting(&mut self) {
        for waiting in self.waiting.drain(..) {
            // Whoever has left needs no decision.
            let _ = waiting.decision.send(Decision::Unreachable);
        }
    }

    /// Whether anything would be lost without it.
    pub(crate) fn is_needed(&self, now: Instant) -> bool {
        self.place.is_some()
            || self.needs_report()
            || self.reporting != 0
            || self.estimate(Bucket::default(), now).used > 0
    }

    pub(crate) fn needs_report(&self) -> bool {
        self.unreported != 0 || !self.waiting.is_empty() || self.limit != self.reported_limit
    }
}

fn clamp_signed(amount: i128) -> i64 {
    let end = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(end)
}

fn clamp(amount: u128) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
