//! Reads a request's body: not more than allowed, not slower than bearable.

use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::request::CallBody;
use bytes::{Bytes, BytesMut};
use estrade_model::OwnerId;
use http_body::Body;
use hyper::body::Incoming;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes per second that have to come on average once the longest pause has passed: one byte before
/// each pause ends would otherwise hold a call for ever.
const MIN_BYTES_PER_SECOND: u64 = 16 * 1024;

/// Bodies up to this size are not counted for their owner: most are smaller, and counting takes a
/// lock.
const MAX_UNCOUNTED_BODY: u32 = 64 * 1024;

/// How much of a body of so many bytes is counted for its owner.
fn owned(taken: u32) -> u64 {
    if taken > MAX_UNCOUNTED_BODY {
        taken.into()
    } else {
        0
    }
}

/// BodyMemory in memory for a body, given back when it is dropped.
pub(crate) struct BodyMemory<'g> {
    gateway: &'g Gateway,
    owner: OwnerId,
    /// As many bits as lie beside the owner: it is part of the state of every call.
    taken: u32,
}

impl<'g> BodyMemory<'g> {
    fn grow(&mut self, to: u64) -> Result<(), GatewayError> {
        let Ok(to) = u32::try_from(to) else {
            return Err(GatewayError::too_large(u32::MAX.into()));
        };
        let (more, most) = (u64::from(to - self.taken), self.gateway.options.max_bodies);
        let is_owners_share = self.count_owned(to);
        self.taken = to;
        if self.gateway.bodies.fetch_add(more, Ordering::Relaxed) + more > most {
            return Err(GatewayError::too_many_bodies());
        }
        if !is_owners_share {
            return Err(GatewayError::too_many_own_bodies());
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
        *own <= self.gateway.options.max_owner_bodies
    }

    fn owners(&self) -> MutexGuard<'g, HashMap<OwnerId, u64>> {
        let owners = self.gateway.owner_bodies.lock();
        owners.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BodyMemory<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.gateway
                .bodies
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
    gateway: &'g Gateway,
    owner: OwnerId,
) -> Result<(Bytes, BodyMemory<'g>), GatewayError> {
    let mut memory = BodyMemory {
        gateway,
        owner,
        taken: 0,
    };
    let body = match body {
        // In a box: it would make the state of every call larger.
        CallBody::Incoming(body) => Box::pin(read_incoming(body, gateway, &mut memory)).await?,
        CallBody::Whole(bytes) => take_whole(std::mem::take(bytes), gateway, &mut memory)?,
    };
    Ok((body, memory))
}

fn take_whole(
    bytes: Bytes,
    gateway: &Gateway,
    memory: &mut BodyMemory<'_>,
) -> Result<Bytes, GatewayError> {
    let (most, length) = (gateway.options.max_body, bytes.len() as u64);
    if length > most {
        return Err(GatewayError::too_large(most));
    }
    memory.grow(length)?;
    Ok(bytes)
}

async fn read_incoming(
    body: &mut Incoming,
    gateway: &Gateway,
    memory: &mut BodyMemory<'_>,
) -> Result<Bytes, GatewayError> {
    let (most, idle) = (gateway.options.max_body, gateway.options.body_idle_timeout);
    if body.size_hint().lower() > most {
        return Err(GatewayError::too_large(most));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let (started, mut length) = (Instant::now(), 0);
    while let Some(part) = next(body, part_deadline(started, length, idle)).await? {
        length += part.len() as u64;
        if length > most {
            return Err(GatewayError::too_large(most));
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

async fn next(body: &mut Incoming, due: Instant) -> Result<Option<Bytes>, GatewayError> {
    loop {
        let frame = timeout_at(due, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
        match frame.await {
            Err(_) => return Err(GatewayError::slow_body()),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(GatewayError::broken_body()),
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
