//! Reads a request's body: not more than allowed, not slower than bearable.

use crate::error::Refusal;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// Reads all of it.
pub(crate) async fn read(mut body: Incoming, most: u64, idle: Duration) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > most {
        return Err(Refusal::too_large(most));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(part) = next(&mut body, idle).await? {
        if (first.len() + all.len() + part.len()) as u64 > most {
            return Err(Refusal::too_large(most));
        }
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

async fn next(body: &mut Incoming, idle: Duration) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = timeout(idle, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
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
