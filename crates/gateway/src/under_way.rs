//! Calls that have gone out and are on record nowhere: what they took so far, for whoever writes that down.

use crate::account::{micros, sum};
use crate::metered::tokens;
use crate::slots::Slots;
use estrade_model::amount::Amount;
use estrade_model::call::{Call, Price};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Most calls that are younger have ended before anybody has to know of them.
const YOUNG: Duration = Duration::from_millis(10);

/// Those of one thread.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<Slots<Arc<Note>>>);

impl UnderWay {
    fn slots(&self) -> MutexGuard<'_, Slots<Arc<Note>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call for as long as it is under way.
    pub(crate) fn add(self: &Arc<Self>, started: Instant, standing: Standing) -> Noted {
        let note = Arc::new(Note {
            started,
            said: AtomicU64::new(0),
            first_byte_us: AtomicU64::new(0),
            state: Mutex::new(State {
                standing,
                said: 0,
                latency_us: 0,
            }),
        });
        let among = Arc::clone(self);
        self.slots()
            .add(|place| (Arc::clone(&note), Noted { note, among, place }))
    }
}

/// Those of all threads.
#[derive(Default)]
pub(crate) struct AllUnderWay(Mutex<Vec<Weak<UnderWay>>>);

impl AllUnderWay {
    /// A place for those of one more thread.
    pub(crate) fn of_thread(&self) -> Arc<UnderWay> {
        let one = Arc::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|thread| thread.strong_count() > 0);
        all.push(Arc::downgrade(&one));
        one
    }

    /// What they took so far, and whether there are others that have only just begun.
    pub(crate) fn look(&self) -> (Vec<Call>, bool) {
        let threads: Vec<_> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let (mut calls, mut young) = (Vec::new(), false);
        let now = Instant::now();
        for thread in threads {
            // Copied: nobody waits while they are read.
            let notes: Vec<_> = thread.slots().iter().cloned().collect();
            calls.reserve(notes.len());
            for note in notes {
                if now.saturating_duration_since(note.started) < YOUNG {
                    young = true;
                } else {
                    calls.extend(note.look());
                }
            }
        }
        (calls, young)
    }
}

/// How a call stands.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
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

/// A call that is under way.
pub(crate) struct Note {
    started: Instant,
    /// Bytes that the provider has said.
    said: AtomicU64,
    first_byte_us: AtomicU64,
    state: Mutex<State>,
}

struct State {
    standing: Standing,
    /// What had been said when somebody looked, and when that was.
    said: u64,
    latency_us: u64,
}

impl Note {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> Option<Call> {
        let mut state = self.state();
        let Standing {
            price, lost, owed, ..
        } = state.standing;
        if price.is_none() && lost == 0 {
            return None;
        }
        let said = self.said.load(Ordering::Relaxed);
        let first_byte = self.first_byte_us.load(Ordering::Relaxed);
        if said != state.said || state.latency_us < first_byte {
            state.said = said;
            state.latency_us = micros(self.started.elapsed());
        }
        let mut call = state.standing.call.clone();
        if let Some(price) = price {
            (call.tokens, _) = tokens(call.operation, None, state.standing.prompt, said);
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

/// What the account of a call has of its note. Dropped, it is under way no longer.
pub(crate) struct Noted {
    note: Arc<Note>,
    among: Arc<UnderWay>,
    place: usize,
}

impl Noted {
    /// It stands otherwise now.
    pub(crate) fn stands(&self, standing: Standing) {
        self.note.state().standing = standing;
    }

    /// Where it is counted what the provider says.
    pub(crate) fn tally(&self) -> Tally {
        Tally(Some(Arc::clone(&self.note)))
    }

    /// The first byte of the answer has come.
    pub(crate) fn answered(&self, now: Instant) {
        let waited = micros(now.saturating_duration_since(self.note.started));
        self.note
            .first_byte_us
            .store(waited.max(1), Ordering::Relaxed);
    }
}

/// Where it is counted what a provider says, if anybody has to know: in the hand of whoever passes it on.
#[derive(Default)]
pub(crate) struct Tally(Option<Arc<Note>>);

impl Tally {
    /// So many bytes were said so far.
    pub(crate) fn said(&self, bytes: u64) {
        if let Some(note) = &self.0 {
            note.said.store(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.among.slots().remove(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::Id;
    use estrade_model::Timestamp;
    use estrade_model::call::{Operation, Tokens};

    fn standing(price: Option<Price>) -> Standing {
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
        Standing {
            call,
            price,
            prompt: 7,
            lost: 0,
            owed: Amount::ZERO,
        }
    }

    fn earlier() -> Instant {
        Instant::now().checked_sub(YOUNG).unwrap()
    }

    fn dear() -> Price {
        Price {
            prompt: "1".parse().unwrap(),
            completion: "2".parse().unwrap(),
        }
    }

    #[test]
    fn what_a_call_took_so_far_is_known_until_its_end() {
        let all = AllUnderWay::default();
        let thread = all.of_thread();
        let noted = thread.add(earlier(), standing(Some(dear())));
        noted.answered(Instant::now());
        noted.tally().said(41);
        let (seen, _) = all.look();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].tokens.prompt, seen[0].tokens.completion), (7, 11));
        assert_eq!(seen[0].cost.nanos(), 7 * 1000 + 11 * 2000);
        assert!(seen[0].partial && seen[0].estimated && seen[0].ttfb_us > 0);
        // Nothing new: then nothing has to be written again.
        assert_eq!(format!("{:?}", all.look().0), format!("{seen:?}"));
        let young = thread.add(Instant::now(), standing(Some(dear())));
        let (seen, others) = all.look();
        assert!(others && seen.len() == 1);
        drop((noted, young));
        assert!(all.look().0.is_empty());
        drop(thread);
        drop(all.of_thread());
        assert_eq!(all.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_call_that_nobody_has_taken_is_not_written() {
        let all = AllUnderWay::default();
        let thread = all.of_thread();
        let noted = thread.add(earlier(), standing(Some(dear())));
        noted.stands(standing(None));
        assert!(all.look().0.is_empty());
        noted.stands(Standing {
            lost: 5,
            owed: Amount::from_nanos(9),
            ..standing(None)
        });
        let (seen, _) = all.look();
        assert_eq!((seen[0].tokens.prompt, seen[0].cost.nanos()), (5, 9));
    }
}
