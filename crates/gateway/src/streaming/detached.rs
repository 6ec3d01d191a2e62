//! Detached reads: responses that are read on after their client has disconnected. The usage is at their end,
//! and the provider bills what it generated whether it is read or not.
//!
//! Invariant: a call with a budget is closed at what the provider reports, or at what was reserved for it,
//! never at less. A read is bounded in time and bytes, reads are bounded per node and per owner, and they
//! end with the worker that they belong to.

use crate::accounting::account::{CallAccount, CallEnd, DetachedCall};
use crate::accounting::usage::tokens;
use crate::limits::detached_reads::ReadPermit;
use crate::streaming::content::Content;
use crate::streaming::model_name::ModelRewriter;
use crate::streaming::response_scanner::ResponseScanner;
use crate::streaming::sse::EventStream;
use crate::streaming::worker::WorkerState;
use crate::upstream::catalogue::Target;
use crate::upstream::{
    Connection, ResponseError, ResponseHead, STALE_CONNECTION_WINDOW, SendError,
};
use bytes::Bytes;
use estrade_http1::client::ResponseContext;
use estrade_model::call::Price;
use estrade_model::provider::OnDisconnect;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;

/// Bytes that are read of one response after its client has disconnected.
const MAX_BYTES: u64 = 64 << 20;
/// The status of a call whose client disconnected before the first byte.
const LEFT: u16 = 499;

/// A response whose client has disconnected.
pub(crate) struct PendingResponse {
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) target: Arc<Target>,
    pub(crate) connection: Box<Connection>,
    /// None: its head has not arrived.
    pub(crate) received: Option<Received>,
}

/// A response of which the head was received, and perhaps a part of its body.
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) content: Content,
    /// Bytes that were read since the client disconnected.
    pub(crate) passed: u64,
    /// Whether the body is delimited by the end of the connection.
    pub(crate) until_close: bool,
}

impl DetachedCall for PendingResponse {
    fn take_over(self: Box<Self>, account: Box<CallAccount>) {
        take_over(account, *self);
    }
}

/// Takes over a call whose client has disconnected: its response is read on if the provider bills it and a
/// permit is free, else the call is charged at once.
pub(crate) fn take_over(account: Box<CallAccount>, response: PendingResponse) {
    let (upstream, worker) = (&response.target.upstream, Arc::clone(&response.worker));
    let worth_it = !account.is_cancelled()
        && response.target.price != Price::FREE
        && upstream.on_disconnect == OnDisconnect::Finish;
    let owner = account.auth.key.owner;
    let permit = worth_it
        .then(|| ReadPermit::acquire(&worker.gateway.detached, owner))
        .flatten();
    let reads = permit.is_some();
    let read = DetachedRead {
        account,
        response,
        _permit: permit,
    };
    if reads {
        worker.readers.spawn(read.run());
    }
}

/// A response that is read on. Dropped before its end, the call is charged what was reserved.
struct DetachedRead {
    account: Box<CallAccount>,
    response: PendingResponse,
    _permit: Option<ReadPermit>,
}

enum Wait<T> {
    Done(T),
    TimedOut,
}

impl DetachedRead {
    async fn run(mut self) {
        let timeout = self.response.worker.gateway.options.detached_timeout;
        let deadline = Instant::now() + timeout;
        if self.response.received.is_none() {
            match self.read_head(deadline).await {
                Wait::Done(Ok(head)) => self.take_head(&head),
                Wait::Done(Err(SendError::Unanswered)) if self.may_have_been_closed() => {
                    self.close_free();
                }
                // A provider that has the whole request may bill it.
                Wait::Done(Err(_)) | Wait::TimedOut => {}
            }
        }
        while self.account.is_open() {
            match self.read_part(deadline).await {
                Wait::Done(Ok(Some(data))) => self.take_part(data),
                Wait::Done(Ok(None)) => self.finish(),
                Wait::Done(Err(_)) | Wait::TimedOut => return,
            }
            if self.passed() > MAX_BYTES {
                return;
            }
        }
    }

    async fn read_head(&mut self, deadline: Instant) -> Wait<Result<Box<ResponseHead>, SendError>> {
        let connection = &mut self.response.connection;
        poll_fn(|cx| {
            match connection.poll_head(cx, ResponseContext::default(), ResponseHead::read) {
                Poll::Ready(Ok(Some(head))) => Poll::Ready(Wait::Done(Ok(head))),
                Poll::Ready(Ok(None)) => Poll::Ready(Wait::Done(Err(SendError::Unanswered))),
                Poll::Ready(Err(_)) => Poll::Ready(Wait::Done(Err(SendError::Garbage))),
                Poll::Pending => connection
                    .poll_deadline(cx, deadline)
                    .map(|()| Wait::TimedOut),
            }
        })
        .await
    }

    /// Whether an end of the connection means that it was stale and the provider has not read the request.
    fn may_have_been_closed(&self) -> bool {
        self.response
            .connection
            .may_have_been_closed(STALE_CONNECTION_WINDOW)
    }

    fn take_head(&mut self, head: &ResponseHead) {
        if !matches!(head.status, 200..=299) {
            return self.close_free();
        }
        let readable = head.content_encoding.is_none();
        let content = if head.events && readable {
            Content::Events(EventStream::new(false, None))
        } else {
            Content::Json {
                scan: ResponseScanner::default(),
                readable,
                left: None,
                cache_writer: None,
                // It is not forwarded, so nothing is rewritten.
                model: ModelRewriter::new(Bytes::new()),
            }
        };
        self.response.received = Some(Received {
            // The client has seen nothing of it.
            status: LEFT,
            content,
            passed: 0,
            until_close: self.response.connection.is_until_close(),
        });
    }

    async fn read_part(&mut self, deadline: Instant) -> Wait<Result<Option<Bytes>, ResponseError>> {
        if self.response.received.is_none() {
            return Wait::TimedOut;
        }
        let idle = self.response.target.upstream.timeouts.idle;
        let part_deadline = deadline.min(Instant::now() + idle);
        let connection = &mut self.response.connection;
        poll_fn(|cx| match connection.poll_data(cx) {
            // A response that never pauses is not read without end either.
            Poll::Ready(_) if Instant::now() >= deadline => Poll::Ready(Wait::TimedOut),
            Poll::Ready(part) => Poll::Ready(Wait::Done(part.map_err(ResponseError::from))),
            Poll::Pending => connection
                .poll_deadline(cx, part_deadline)
                .map(|()| Wait::TimedOut),
        })
        .await
    }

    fn take_part(&mut self, data: Bytes) {
        let Some(received) = &mut self.response.received else {
            return;
        };
        received.passed += data.len() as u64;
        match &mut received.content {
            Content::Events(events) => events.feed(data, &mut VecDeque::new()),
            Content::Json { scan, .. } => scan.feed(&data),
        }
        self.account
            .token_counter()
            .set_content_bytes(received.content.content_bytes());
        if received.content.is_announced_end() {
            self.finish();
        }
    }

    /// The response has ended as it should.
    fn finish(&mut self) {
        let Some(received) = &mut self.response.received else {
            return;
        };
        if received.until_close && !received.content.is_complete(received.passed) {
            return self.close(false);
        }
        if let Content::Events(events) = &mut received.content {
            events.finish(&mut VecDeque::new());
        }
        self.response.target.health.succeeded(Instant::now());
        self.close(true);
    }

    fn passed(&self) -> u64 {
        let received = self.response.received.as_ref();
        received.map_or(0, |received| received.passed)
    }

    /// The provider did not take the request, or refused it.
    fn close_free(&mut self) {
        self.account.record_unbilled();
        let _ = self.account.close(&CallEnd {
            status: LEFT,
            ..CallEnd::default()
        });
    }

    fn close(&mut self, finished: bool) {
        let Some(operation) = self.account.call().map(|call| call.operation) else {
            return;
        };
        let received = self.response.received.as_ref();
        let status = received.map_or(LEFT, |received| received.status);
        let content = received.map(|received| &received.content);
        let reported = content.and_then(Content::usage);
        let content_bytes = content.map_or(0, Content::content_bytes);
        let prompt = self.account.prompt_estimate;
        let (tokens, estimated) = tokens(operation, reported, prompt, content_bytes);
        let settled = content.is_some_and(|content| content.is_settled(finished));
        // Durability is not awaited: there is no client.
        let _ = self.account.close(&CallEnd {
            status,
            partial: true,
            estimated,
            unsettled: !settled,
            cached: false,
            tokens,
            price: Some(self.response.target.price),
        });
    }
}

impl Drop for DetachedRead {
    fn drop(&mut self) {
        if self.account.is_open() {
            self.close(false);
        }
    }
}
