//! Reading a request's body without trusting its sender.
//!
//! [`crate::body`] and [`crate::spool`] read through here, so that every body has a size limit and
//! a client cannot hold a handler by sending slowly.

use crate::api_error::ApiError;
use crate::body_budget::{BodyBudget, BodyReservation, Client};
use crate::context::RequestContext;
use axum::body::{Body, HttpBody};
use axum::http::{Request, header};
use bytes::{Bytes, BytesMut};
use estrade_service::Error;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Most bytes of a streamed body in memory, here and in its consumer.
const MAX_BUFFERED: u64 = 256 * 1024;

/// How much may come, and how slowly.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Most bytes of a body.
    pub max_bytes: u64,
    /// Longest pause between two chunks.
    pub idle: Duration,
    /// Fewest bytes per second, on average, once `idle` has passed: one byte before each pause ends
    /// would otherwise hold a request for ever.
    pub min_rate: u64,
}

impl BodyLimits {
    /// The usual limits for a body of at most so many bytes.
    pub const fn at_most(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            idle: Duration::from_secs(30),
            min_rate: 1024,
        }
    }

    /// The limits of an upload: it holds more than a small body does, so it may not take as long.
    pub const fn upload(max_bytes: u64) -> Self {
        Self {
            min_rate: 4096,
            ..Self::at_most(max_bytes)
        }
    }
}

impl Default for BodyLimits {
    /// 1 MiB: plenty for any JSON body but a release's.
    fn default() -> Self {
        Self::at_most(1024 * 1024)
    }
}

/// A body that is being read.
pub struct BodyReader {
    body: Body,
    limits: BodyLimits,
    announced: Option<u64>,
    context: Option<RequestContext>,
    started: Instant,
    received: u64,
    client: Client,
    reserved: BodyReservation,
}

impl BodyReader {
    /// Starts to read; refuses at once what announces itself as too large.
    pub fn new(request: Request<Body>, limits: BodyLimits) -> Result<Self, ApiError> {
        let announced = request
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limits.max_bytes) {
            return Err(too_large(limits.max_bytes));
        }
        let context = RequestContext::of(request.extensions()).cloned();
        let client = Client::of(request.extensions());
        let reserved = match &context {
            Some(context) => context.bodies().begin(client),
            None => BodyBudget::default().begin(client),
        };
        Ok(Self {
            reserved,
            client,
            context,
            body: request.into_body(),
            limits,
            announced,
            started: Instant::now(),
            received: 0,
        })
    }

    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    pub fn client(&self) -> Client {
        self.client
    }

    /// Reserves memory for as long as the body is read; what is returned by [`next`](Self::next) is
    /// the caller's to count.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), ApiError> {
        self.reserved.grow(bytes)
    }

    /// Reserves what a body takes that is passed on piece by piece: little for a small one, so that a client
    /// may send many of these at once.
    pub fn reserve_buffer(&mut self) -> Result<(), ApiError> {
        self.reserve(self.announced.unwrap_or(MAX_BUFFERED).min(MAX_BUFFERED))
    }

    /// Gives back what was reserved, because it is not in memory any more.
    pub fn release(&mut self) {
        self.reserved.release();
    }

    /// Ends reading; the reservation goes to the owner of the bytes.
    pub fn into_reservation(self) -> BodyReservation {
        self.reserved
    }

    /// The next chunk; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = timeout(self.chunk_timeout(), self.body.frame())
                .await
                .map_err(|_| ApiError::BodyTimeout)?;
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    tracing::debug!(%error, "body ended early");
                    return Err(Error::invalid("the body ended early").into());
                }
            };
            // Trailers are of no interest, but more data may not follow them either.
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            self.received += chunk.len() as u64;
            if self.received > self.limits.max_bytes {
                return Err(too_large(self.limits.max_bytes));
            }
            if let Some(context) = &self.context {
                context.restart_deadline();
            }
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
    }

    /// Reads all of it into memory.
    pub async fn read_all(mut self) -> Result<Bytes, ApiError> {
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        // Most bodies come in one chunk, which then needs no copy, and is not waited for.
        if self.body.is_end_stream() {
            return Ok(first);
        }
        self.reserve(first.len() as u64)?;
        let Some(second) = self.next().await? else {
            return Ok(first);
        };
        self.reserve(second.len() as u64)?;
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.next().await? {
            self.reserve(chunk.len() as u64)?;
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// How long the next chunk may take.
    fn chunk_timeout(&self) -> Duration {
        let earned = Duration::from_secs(self.received / self.limits.min_rate.max(1));
        let whole = self.limits.idle + earned;
        whole
            .saturating_sub(self.started.elapsed())
            .min(self.limits.idle)
    }
}

/// Whether a request comes with a body at all.
///
/// No `Content-Length`, or one of zero, and no `Transfer-Encoding` (in HTTP/2: the stream ended
/// with the headers) means that there is none.
pub fn has_body(body: &Body) -> bool {
    !body.is_end_stream()
}

fn too_large(max_bytes: u64) -> ApiError {
    Error::TooLarge(format!("the body is larger than {max_bytes} bytes")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use std::convert::Infallible;

    fn limits(max_bytes: u64) -> BodyLimits {
        BodyLimits::at_most(max_bytes)
    }

    /// A body that sends one byte every so often.
    fn dripping(pause: Duration) -> Request<Body> {
        let bytes = stream::repeat(()).then(move |()| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from_static(b" "))
        });
        Request::new(Body::from_stream(bytes))
    }

    /// Reads a body that comes one byte at a time, with a timeout of 100 ms.
    async fn read_dripping(pause: Duration) -> Result<Bytes, ApiError> {
        let limits = BodyLimits {
            idle: Duration::from_millis(100),
            ..limits(100)
        };
        BodyReader::new(dripping(pause), limits)?.read_all().await
    }

    #[tokio::test]
    async fn a_pause_that_is_too_long_ends_the_reading() {
        let read = read_dripping(Duration::from_mins(1)).await;
        assert!(matches!(read, Err(ApiError::BodyTimeout)));
    }

    #[tokio::test]
    async fn dripping_below_the_lowest_rate_ends_the_reading() {
        let read = read_dripping(Duration::from_millis(30)).await;
        assert!(matches!(read, Err(ApiError::BodyTimeout)));
    }

    #[tokio::test]
    async fn the_limit_holds_with_and_without_an_announced_length() {
        let announced = Request::builder()
            .header("content-length", 101)
            .body(Body::empty())
            .unwrap();
        let too_large = |error: ApiError| matches!(error, ApiError::Service(Error::TooLarge(_)));
        assert!(BodyReader::new(announced, limits(100)).is_err_and(too_large));
        let chunked = || {
            let chunks =
                [vec![1; 60], vec![2; 41]].map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
            Request::new(Body::from_stream(stream::iter(chunks)))
        };
        assert!(
            BodyReader::new(chunked(), limits(100))
                .unwrap()
                .read_all()
                .await
                .is_err_and(too_large)
        );
        assert_eq!(
            BodyReader::new(chunked(), limits(101))
                .unwrap()
                .read_all()
                .await
                .unwrap()
                .len(),
            101
        );
    }
}
