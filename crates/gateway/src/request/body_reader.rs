//! Reads a request's body: not more than allowed, not slower than bearable.

use crate::options::Options;
use crate::request::CallBody;
use bytes::{Bytes, BytesMut};
use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use http_body::Body;
use hyper::body::Incoming;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes per second that have to come on average once the longest pause has passed: one byte before
/// each pause ends would otherwise hold a call for ever.
const MIN_BYTES_PER_SECOND: u64 = 16 * 1024;

/// Bodies up to this size are not counted for their owner: most are smaller, and counting takes a
/// lock.
const MAX_UNCOUNTED_BODY: u32 = 64 * 1024;

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyReadError {
    /// It is larger than so many bytes.
    TooLarge(u64),
    /// All bodies of the node together are too large.
    NodeFull,
    /// Those of its owner are.
    OwnerFull,
    /// It did not arrive in time.
    TooSlow,
    /// The client broke off.
    Incomplete,
}

/// Bounds of request bodies, and how much of them is in memory.
pub(crate) struct BodyLimits {
    max_body: u64,
    max_bodies: u64,
    max_owner_bodies: u64,
    idle_timeout: Duration,
    bytes: AtomicU64,
    /// Large bodies, by owner.
    by_owner: Mutex<HashMap<OwnerId, u64>>,
}

impl BodyLimits {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            max_body: options.max_body,
            max_bodies: options.max_bodies,
            max_owner_bodies: options.max_owner_bodies,
            idle_timeout: options.body_idle_timeout,
            bytes: AtomicU64::new(0),
            by_owner: Mutex::default(),
        }
    }

    /// Bytes of bodies in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// How much of a body of so many bytes is counted for its owner.
fn owned(taken: u32) -> u64 {
    if taken > MAX_UNCOUNTED_BODY {
        taken.into()
    } else {
        0
    }
}

/// Memory that a body takes, given back when it is dropped.
pub(crate) struct BodyMemory<'g> {
    limits: &'g BodyLimits,
    owner: OwnerId,
    /// As many bits as lie beside the owner: it is part of the state of every call.
    taken: u32,
}

impl<'g> BodyMemory<'g> {
    fn grow(&mut self, to: u64) -> Result<(), BodyReadError> {
        let Ok(to) = u32::try_from(to) else {
            return Err(BodyReadError::TooLarge(u32::MAX.into()));
        };
        let (more, most) = (u64::from(to - self.taken), self.limits.max_bodies);
        let is_owners_share = self.count_owned(to);
        self.taken = to;
        if self.limits.bytes.fetch_add(more, Ordering::Relaxed) + more > most {
            return Err(BodyReadError::NodeFull);
        }
        if !is_owners_share {
            return Err(BodyReadError::OwnerFull);
        }
        Ok(())
    }

    /// Counts a body that grows to `to` for its owner; whether the owner may have that much.
    fn count_owned(&self, to: u32) -> bool {
        let more = owned(to) - owned(self.taken);
        if more == 0 {
            return true;
        }
        let mut owners = self.owners();
        let own = owners.entry(self.owner).or_default();
        *own += more;
        *own <= self.limits.max_owner_bodies
    }

    fn owners(&self) -> MutexGuard<'g, HashMap<OwnerId, u64>> {
        self.limits.by_owner.lock_ignoring_poison()
    }
}

impl Drop for BodyMemory<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.limits
                .bytes
                .fetch_sub(self.taken.into(), Ordering::Relaxed);
        }
        let owned = owned(self.taken);
        if owned > 0 {
            let mut owners = self.owners();
            if let Some(own) = owners.get_mut(&self.owner) {
                *own = own.saturating_sub(owned);
                if *own == 0 {
                    owners.remove(&self.owner);
                }
            }
        }
    }
}

/// Reads all of it.
pub(crate) async fn read<'g>(
    body: &mut CallBody,
    limits: &'g BodyLimits,
    owner: OwnerId,
) -> Result<(Bytes, BodyMemory<'g>), BodyReadError> {
    let mut memory = BodyMemory {
        limits,
        owner,
        taken: 0,
    };
    let body = match body {
        // In a box: it would make the state of every call larger.
        CallBody::Incoming(body) => Box::pin(read_incoming(body, limits, &mut memory)).await?,
        CallBody::Whole(bytes) => take_whole(std::mem::take(bytes), limits, &mut memory)?,
    };
    Ok((body, memory))
}

fn take_whole(
    bytes: Bytes,
    limits: &BodyLimits,
    memory: &mut BodyMemory<'_>,
) -> Result<Bytes, BodyReadError> {
    let (most, length) = (limits.max_body, bytes.len() as u64);
    if length > most {
        return Err(BodyReadError::TooLarge(most));
    }
    memory.grow(length)?;
    Ok(bytes)
}

async fn read_incoming(
    body: &mut Incoming,
    limits: &BodyLimits,
    memory: &mut BodyMemory<'_>,
) -> Result<Bytes, BodyReadError> {
    let (most, idle) = (limits.max_body, limits.idle_timeout);
    if body.size_hint().lower() > most {
        return Err(BodyReadError::TooLarge(most));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let (started, mut length) = (Instant::now(), 0);
    while let Some(part) = next(body, part_deadline(started, length, idle)).await? {
        length += part.len() as u64;
        if length > most {
            return Err(BodyReadError::TooLarge(most));
        }
        memory.grow(length)?;
        if first.is_empty() && all.is_empty() {
            // Most bodies come in one part, which is taken as it is.
            first = part;
            if body.is_end_stream() {
                break;
            }
            continue;
        }
        if !first.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&part);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Until when the next part has to be there.
fn part_deadline(started: Instant, length: u64, idle: Duration) -> Instant {
    let earned = started + idle + Duration::from_secs(length / MIN_BYTES_PER_SECOND);
    earned.min(Instant::now() + idle)
}

async fn next(body: &mut Incoming, due: Instant) -> Result<Option<Bytes>, BodyReadError> {
    loop {
        let frame = timeout_at(due, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
        match frame.await {
            Err(_) => return Err(BodyReadError::TooSlow),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(BodyReadError::Incomplete),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_to_be_there_in_the_end() {
        let (idle, now) = (Duration::from_secs(20), Instant::now());
        // The largest body takes half an hour at most, however steadily it trickles.
        let started = now.checked_sub(Duration::from_mins(40)).unwrap_or(now);
        assert!(
            part_deadline(started, 32 << 20, idle) < now,
            "it is too late"
        );
        assert!(part_deadline(now, 0, idle) >= now + idle);
        assert!(part_deadline(now, 1 << 40, idle) <= Instant::now() + idle);
    }
}
