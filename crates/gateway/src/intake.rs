//! Reads a request's body: not more than allowed, not slower than bearable.

use crate::error::Refusal;
use crate::gateway::Gateway;
use crate::request::CallBody;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes per second that have to come on average once the longest pause has passed: one byte before
/// each pause ends would otherwise hold a call for ever.
const SLOWEST: u64 = 16 * 1024;

/// Room in memory for a body, given back when it is dropped.
pub(crate) struct Room<'g> {
    all: &'g AtomicU64,
    taken: u64,
}

impl Room<'_> {
    fn grow(&mut self, to: u64, most: u64) -> Result<(), Refusal> {
        let more = to - self.taken;
        self.taken = to;
        if self.all.fetch_add(more, Ordering::Relaxed) + more > most {
            return Err(Refusal::too_many_bodies());
        }
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.all.fetch_sub(self.taken, Ordering::Relaxed);
        }
    }
}

/// Reads all of it.
pub(crate) async fn read<'g>(
    body: &mut CallBody,
    gateway: &'g Gateway,
) -> Result<(Bytes, Room<'g>), Refusal> {
    let mut room = Room {
        all: &gateway.bodies,
        taken: 0,
    };
    let body = match body {
        // In a box: it would make the state of every call larger.
        CallBody::Incoming(body) => Box::pin(read_incoming(body, gateway, &mut room)).await?,
        CallBody::Whole(bytes) => take_whole(std::mem::take(bytes), gateway, &mut room)?,
    };
    Ok((body, room))
}

fn take_whole(bytes: Bytes, gateway: &Gateway, room: &mut Room<'_>) -> Result<Bytes, Refusal> {
    let (most, length) = (gateway.options.most_body, bytes.len() as u64);
    if length > most {
        return Err(Refusal::too_large(most));
    }
    room.grow(length, gateway.options.most_bodies)?;
    Ok(bytes)
}

async fn read_incoming(
    body: &mut Incoming,
    gateway: &Gateway,
    room: &mut Room<'_>,
) -> Result<Bytes, Refusal> {
    let (most, idle) = (gateway.options.most_body, gateway.options.body_idle);
    if body.size_hint().lower() > most {
        return Err(Refusal::too_large(most));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let (started, mut length) = (Instant::now(), 0);
    while let Some(part) = next(body, patience(started, length, idle)).await? {
        length += part.len() as u64;
        if length > most {
            return Err(Refusal::too_large(most));
        }
        room.grow(length, gateway.options.most_bodies)?;
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
fn patience(started: Instant, length: u64, idle: Duration) -> Instant {
    let earned = started + idle + Duration::from_secs(length / SLOWEST);
    earned.min(Instant::now() + idle)
}

async fn next(body: &mut Incoming, due: Instant) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = timeout_at(due, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
        match frame.await {
            Err(_) => return Err(Refusal::slow_body()),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(Refusal::broken_body()),
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
        assert!(patience(started, 32 << 20, idle) < now, "it is too late");
        assert!(patience(now, 0, idle) >= now + idle);
        assert!(patience(now, 1 << 40, idle) <= Instant::now() + idle);
    }
}
