//! Group commit for small stagings: those that wait at the same moment share one pack and one PUT.
//!
//! A pack is open while it waits for its turn; it is closed before it is sent, and nothing is ever added to an object
//! that is in the bucket. There are a few turns, so that a staging that comes alone does not wait for a PUT that is
//! under way, and many that come at once are few PUTs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use estrade_model::sync::MutexExt;

use super::failure::Failure;
use crate::storage::PackPart;
use crate::{BlobError, ObjectId, UniqueId};

/// How many shared packs are sent at a time.
const MAX_TURNS: usize = 4;

#[derive(Debug)]
pub(super) struct SharedPut {
    queue: Mutex<Queue>,
    turn_ended: Condvar,
    max_bytes: u64,
}

#[derive(Debug, Default)]
struct Queue {
    open: Option<Arc<Batch>>,
    turns: usize,
}

/// A pack that is being collected, or sent.
#[derive(Debug)]
struct Batch {
    pack: UniqueId,
    parts: Arc<AtomicU64>,
    body: Mutex<Vec<u8>>,
    outcome: Mutex<Option<Result<(), Failure>>>,
    has_outcome: Condvar,
}

impl SharedPut {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            queue: Mutex::default(),
            turn_ended: Condvar::new(),
            max_bytes,
        }
    }

    /// Stores these bytes in a pack with those of others; `put` is called by the first one of each pack.
    pub(super) fn append(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
        put: impl FnOnce(UniqueId, Bytes) -> Result<(), Failure>,
    ) -> Result<PackPart, Failure> {
        let (batch, offset, is_first) = self.join(bytes, reserved)?;
        if is_first {
            let turn = self.wait_for_turn(&batch);
            let body = std::mem::take(&mut *batch.body.lock_ignoring_poison());
            turn.finish(put(batch.pack, body.into()));
        }
        batch.wait()?;
        Ok(PackPart {
            pack: batch.pack,
            offset,
            siblings: Arc::clone(&batch.parts),
        })
    }

    /// Ends a pack, so that nobody joins it any more; whether it was this one. It is sent all the same.
    pub(super) fn close(&self, id: ObjectId) -> bool {
        self.lock()
            .open
            .take_if(|open| open.object() == id)
            .is_some()
    }

    pub(super) fn is_open(&self, id: ObjectId) -> bool {
        let queue = self.lock();
        queue.open.as_ref().is_some_and(|open| open.object() == id)
    }

    /// Gives up a part; whether it was the last one that its pack had.
    pub(super) fn give_up(part: &PackPart) -> bool {
        part.siblings.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Adds a part to the open pack. `reserved` is called under the lock: a search for orphans that finds the pack
    /// closed finds the claim, too.
    fn join(
        &self,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> Result<(Arc<Batch>, u64, bool), Failure> {
        let mut queue = self.lock();
        let length = bytes.len() as u64;
        queue
            .open
            .take_if(|open| open.length().saturating_add(length) > self.max_bytes);
        let is_first = queue.open.is_none();
        let batch = match &mut queue.open {
            Some(open) => open,
            none => none.insert(Arc::new(Batch::new()?)),
        };
        let mut body = batch.body.lock_ignoring_poison();
        // What is empty lies anywhere, but not behind the end.
        let offset = if length == 0 { 0 } else { body.len() as u64 };
        body.extend_from_slice(bytes);
        batch.parts.fetch_add(1, Ordering::Relaxed);
        reserved(batch.object());
        drop(body);
        Ok((Arc::clone(batch), offset, is_first))
    }

    /// Waits until the pack may be sent, and closes it.
    fn wait_for_turn<'s>(&'s self, batch: &'s Batch) -> Turn<'s> {
        let mut queue = self.lock();
        while queue.turns >= MAX_TURNS {
            let waited = self.turn_ended.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
        queue.turns += 1;
        queue.open.take_if(|open| open.pack == batch.pack);
        drop(queue);
        Turn {
            shared: self,
            batch,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock_ignoring_poison()
    }
}

impl Batch {
    fn new() -> Result<Self, Failure> {
        let id = UniqueId::new()
            .map_err(|error: BlobError| Failure::from(std::io::Error::from(error)))?;
        Ok(Self {
            pack: id,
            parts: Arc::default(),
            body: Mutex::default(),
            outcome: Mutex::default(),
            has_outcome: Condvar::new(),
        })
    }

    const fn object(&self) -> ObjectId {
        ObjectId::Pack(self.pack)
    }

    fn length(&self) -> u64 {
        self.body.lock_ignoring_poison().len() as u64
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut outcome = self.outcome.lock_ignoring_poison();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            let waited = self.has_outcome.wait(outcome);
            outcome = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, new: Result<(), Failure>) {
        self.outcome.lock_ignoring_poison().get_or_insert(new);
        self.has_outcome.notify_all();
    }
}

/// The right to send a pack. It ends with an outcome in any case, since others wait for it.
struct Turn<'s> {
    shared: &'s SharedPut,
    batch: &'s Batch,
}

impl Turn<'_> {
    fn finish(self, outcome: Result<(), Failure>) {
        self.batch.end(outcome);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.batch.end(Err(Failure::transient("a put ended early")));
        self.shared.lock().turns -= 1;
        self.shared.turn_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// While all turns are taken, those who come share one pack.
    #[test]
    fn those_who_wait_share_one_put() {
        let shared = SharedPut::new(100);
        let puts = Mutex::new(Vec::new());
        let put = |pack, body: Bytes| {
            puts.lock_ignoring_poison().push((pack, body));
            Ok(())
        };
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        thread::scope(|scope| {
            for _ in 0..MAX_TURNS {
                let released = &released;
                let slow = move |_, _| {
                    let _ = released.lock_ignoring_poison().recv();
                    Ok(())
                };
                let (shared, before) = (&shared, shared.lock().turns);
                scope.spawn(move || shared.append(b"slow", &mut |_| {}, slow));
                while shared.lock().turns == before {
                    thread::yield_now();
                }
            }
            let waiting: Vec<_> = (0..10_u8)
                .map(|byte| {
                    let shared = &shared;
                    scope.spawn(move || shared.append(&[byte; 10], &mut |_| {}, put))
                })
                .collect();
            let open = || shared.lock().open.clone();
            while open().is_none_or(|open| open.length() < 100) {
                thread::yield_now();
            }
            drop(release);
            for part in waiting {
                let part = part.join().ok().and_then(Result::ok);
                assert!(part.is_some_and(|it| it.offset % 10 == 0));
            }
        });
        let puts = puts.lock_ignoring_poison();
        assert_eq!(puts.len(), 1);
        assert_eq!(puts[0].1.len(), 100);
        assert_eq!(shared.lock().turns, 0);
    }

    #[test]
    fn what_does_not_fit_begins_another_pack() {
        let shared = SharedPut::new(10);
        let mut claimed = Vec::new();
        let outcomes = [6, 6].map(|length| {
            let bytes = vec![0; length];
            shared.append(&bytes, &mut |id| claimed.push(id), |_, _| Ok(()))
        });
        assert!(outcomes.iter().all(Result::is_ok));
        assert_ne!(claimed[0], claimed[1]);
        assert!(!shared.is_open(claimed[1]) && !shared.close(claimed[1]));
    }

    #[test]
    fn all_hear_of_a_failure() {
        let shared = SharedPut::new(10);
        let refuse = |_, _| Err(Failure::Missing);
        let outcome = shared.append(b"x", &mut |_| {}, refuse);
        assert!(matches!(outcome, Err(Failure::Missing)));
        assert_eq!(shared.lock().turns, 0);
    }
}
