//! A response on its way from a provider to a client: redacted, metered, rewritten, and accounted for exactly once.
//!
//! State machine behind `GatewayBody`. Invariant: the account is closed once, with the reported usage where there is
//! one, before the client sees the end of the body; in strict mode the end waits until the call is on disk. A client
//! that leaves early does not end the read: `detached` goes on for the usage, else budgets could be overspent by
//! hanging up.

use crate::accounting::account::{CallAccount, CallEnd, DurabilityWait};
use crate::accounting::in_flight::TokenCounter;
use crate::accounting::usage::tokens;
use crate::error::last_event;
use crate::streaming::active_responses::Sweep;
use crate::streaming::body_error::BodyError;
use crate::streaming::content::Content;
use crate::streaming::detached::{self, PendingResponse, Received};
use crate::streaming::key_redactor::KeyRedactor;
use crate::streaming::sse::EventStream;
use crate::streaming::worker::WorkerState;
use crate::upstream::catalogue::Target;
use crate::upstream::{Connection, ResponseError};
use bytes::Bytes;
use estrade_http1::buffer_pool;
use estrade_http1::framing::find_chunk;
use estrade_http1::server::{OutputBuffer, Part};
use estrade_model::call::Operation;
use estrade_model::sync::MutexExt;
use http_body::Frame;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

/// Reads per poll that may produce no output, before the task yields to others of its thread.
const MAX_STEPS: usize = 64;
const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// A response that is being forwarded, shared with `ActiveResponses`.
pub(crate) type SharedResponse = Arc<Mutex<MeteredResponse>>;

/// Locks a response. Never contended: all that use it take turns on one thread.
pub(crate) fn lock(response: &SharedResponse) -> MutexGuard<'_, MeteredResponse> {
    response.lock_ignoring_poison()
}

/// A response that is being forwarded.
pub(crate) struct MeteredResponse {
    worker: Arc<WorkerState>,
    /// Its key in `ActiveResponses`, removed on drop.
    slot: usize,
    target: Arc<Target>,
    operation: Operation,
    account: Box<CallAccount>,
    token_counter: TokenCounter,
    status: u16,
    /// None once the response has been read to its end or aborted.
    connection: Option<Box<Connection>>,
    content: Content,
    redactor: KeyRedactor,
    /// Output that is ready to be sent.
    out: VecDeque<Bytes>,
    /// Strict mode: resolves when the call is on disk; `out` waits for it.
    durability_wait: DurabilityWait,
    passed: u64,
    /// When the provider last sent something…
    last_upstream_byte: Instant,
    /// …and when something was last sent to the client.
    last_client_write: Instant,
    /// The waker that the connection's timer is registered with.
    timer_waker: Option<Waker>,
    broken: Option<ResponseError>,
    /// Whether the body is delimited by the end of the connection: a crash of the provider looks like its end.
    until_close: bool,
    /// Sweeps since the client last took a part; none while it waits for the next one.
    unread: Option<u32>,
}

impl MeteredResponse {
    pub(crate) fn new(
        (worker, slot): (Arc<WorkerState>, usize),
        target: Arc<Target>,
        operation: Operation,
        status: u16,
        connection: Box<Connection>,
        content: Content,
        account: Box<CallAccount>,
    ) -> Self {
        let now = Instant::now();
        Self {
            worker,
            slot,
            target,
            operation,
            token_counter: account.token_counter(),
            account,
            status,
            until_close: connection.is_until_close(),
            connection: Some(connection),
            content,
            redactor: KeyRedactor::default(),
            out: VecDeque::new(),
            durability_wait: None,
            passed: 0,
            last_upstream_byte: now,
            last_client_write: now,
            timer_waker: None,
            broken: None,
            unread: None,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.poll_next(cx);
        self.unread = polled.is_ready().then_some(0);
        polled
    }

    /// Fast path for events that match the template of the previous one: read into a pooled buffer and copied straight
    /// into the connection's output, without an allocation per event. None: use `poll_frame`.
    ///
    /// It stays for the memory: 5,000 streams are held in 83 MiB instead of 97, since no stream keeps a read buffer
    /// between two events; the CPU per event is 0.971 to 0.979 × (`./bench gateway --only streams --before FILE`).
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut OutputBuffer<'_>,
    ) -> Option<Poll<Part>> {
        let may_match_template =
            matches!(&self.content, Content::Events(events) if events.may_match_template());
        if !may_match_template || self.durability_wait.is_some() || !self.out.is_empty() {
            return None;
        }
        let connection = self.connection.as_mut().filter(|it| it.is_before_chunk())?;
        let mut read = buffer_pool::acquire();
        let came = connection.poll_read_into(cx, &mut read);
        let polled = match came {
            Poll::Ready(Ok(1..)) => self
                .forward_events(&read, output)
                .then_some(Poll::Ready(Part::Buffered)),
            Poll::Ready(_) => {
                self.abort(ResponseError::Closed);
                None
            }
            Poll::Pending => self.poll_silence(cx).is_pending().then_some(Poll::Pending),
        };
        buffer_pool::release(read);
        if let Some(polled) = &polled {
            self.unread = polled.is_ready().then_some(0);
        }
        polled
    }

    /// Forwards the events that match the template and puts the rest back for `poll_frame`. Whether any was forwarded.
    fn forward_events(&mut self, read: &[u8], output: &mut OutputBuffer<'_>) -> bool {
        let (mut at, upstream) = (0, &self.target.upstream);
        let most = self.worker.gateway.options.max_response;
        if let Content::Events(events) = &mut self.content {
            while let Some((data, end)) = find_chunk(&read[at..]) {
                let event = &read[at..][data];
                let passed = self.passed + event.len() as u64;
                let is_clean = passed <= most && self.redactor.is_clean(upstream, event);
                if !is_clean || !events.match_template(event) {
                    break;
                }
                match events.rewrite(event) {
                    None => output.add(event),
                    Some(pieces) => output.add_pieces(&pieces),
                }
                (self.passed, at) = (passed, at + end);
            }
            self.token_counter.set_content_bytes(events.content_bytes());
        }
        if let (Some(connection), true) = (&mut self.connection, at < read.len()) {
            connection.put_back(&read[at..]);
        }
        if at > 0 {
            self.last_upstream_byte = Instant::now();
            self.last_client_write = self.last_upstream_byte;
        }
        at > 0
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        for _ in 0..MAX_STEPS {
            if let Some(wait) = &mut self.durability_wait {
                let on_disk = ready!(wait.as_mut().poll(cx));
                self.durability_wait = None;
                if !on_disk {
                    self.withhold();
                }
            }
            if let Some(data) = self.out.pop_front() {
                if let Content::Json {
                    left: Some(left), ..
                } = &mut self.content
                {
                    *left = left.saturating_sub(data.len() as u64);
                }
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(error) = self.broken.take() {
                return Poll::Ready(Some(Err(BodyError(error))));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(None);
            };
            match connection.poll_data(cx) {
                Poll::Ready(Ok(Some(data))) => self.receive(data),
                Poll::Ready(Ok(None)) => self.finish(),
                Poll::Ready(Err(error)) => self.abort(error.into()),
                Poll::Pending => ready!(self.poll_silence(cx)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn receive(&mut self, data: Bytes) {
        self.last_upstream_byte = Instant::now();
        self.passed += data.len() as u64;
        if self.passed > self.worker.gateway.options.max_response {
            return self.abort(ResponseError::TooLarge);
        }
        // Some providers repeat the key that they were sent.
        let Some(data) = self.redactor.filter(&self.target.upstream, data) else {
            return self.abort(ResponseError::Garbage);
        };
        self.feed(data);
        // Bytes that the redactor holds back do not count as a write to the client.
        if !self.out.is_empty() {
            self.last_client_write = self.last_upstream_byte;
        }
        self.token_counter
            .set_content_bytes(self.content.content_bytes());
        // A client that disconnects after the last event has read everything, even without the final chunk.
        if self.connection.as_mut().is_some_and(|it| it.is_done()) {
            self.finish();
        }
    }

    /// Scans a part and queues it for the client.
    fn feed(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        match &mut self.content {
            Content::Events(events) => {
                events.feed(data, &mut self.out);
                // Clients disconnect once they have read `[DONE]`: the response is complete then.
                if events.is_done() && self.account.is_open() {
                    self.close(false);
                }
            }
            Content::Json {
                scan,
                readable,
                cache_writer,
                model,
                ..
            } => {
                scan.feed(&data);
                let mut push = |piece: Bytes| {
                    if let Some(cache_writer) = cache_writer {
                        cache_writer.add(&piece);
                    }
                    if !piece.is_empty() {
                        self.out.push_back(piece);
                    }
                };
                if *readable {
                    model.rewrite(data, scan, push);
                } else {
                    push(data);
                }
            }
        }
    }

    /// The provider is silent: sends a keep-alive comment after `keep_alive_interval`, aborts after the idle timeout.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle_deadline = self.last_upstream_byte + self.target.upstream.timeouts.idle;
        let comment = match &self.content {
            Content::Events(events) if events.is_between_events() => {
                Some(self.last_client_write + self.worker.gateway.options.keep_alive_interval)
            }
            _ => None,
        };
        let due = comment.map_or(idle_deadline, |comment| comment.min(idle_deadline));
        if let Some(connection) = &mut self.connection {
            let timer_waker = self.timer_waker.as_ref();
            let waits = timer_waker.is_some_and(|it| it.will_wake(cx.waker()));
            // Polling the timer costs more than comparing its deadline.
            if waits && connection.is_timer_set(Instant::now(), due) {
                return Poll::Pending;
            }
            if connection.poll_deadline(cx, due).is_pending() {
                // tokio's coop budget is exhausted: this poll returned `Pending` without registering our waker, so forget
                // the cached one.
                if !has_budget_remaining() {
                    self.timer_waker = None;
                } else if !waits {
                    self.timer_waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            self.timer_waker = None;
        }
        if due == idle_deadline {
            self.abort(ResponseError::Idle);
        } else {
            self.out.push_back(KEEP_ALIVE_COMMENT);
            self.last_client_write = Instant::now();
        }
        Poll::Ready(())
    }

    /// The provider's response has ended regularly.
    fn finish(&mut self) {
        let rest = self.redactor.flush();
        self.feed(rest);
        if let Content::Json { model, .. } = &mut self.content {
            let rest = model.rest();
            self.out.extend((!rest.is_empty()).then_some(rest));
        }
        if self.until_close && !self.content.is_complete(self.passed) {
            return self.abort(ResponseError::Closed);
        }
        if let Content::Events(events) = &mut self.content {
            events.finish(&mut self.out);
        }
        if let Some(connection) = self.connection.take() {
            let pool = &self.worker.pool;
            pool.put(
                self.target.upstream.number,
                connection,
                Instant::now(),
                || (),
            );
        }
        if self.account.is_open() {
            self.close(false);
        }
        // A body delimited by the end of its connection may be truncated: it is not cached.
        if let Content::Json {
            cache_writer, scan, ..
        } = &mut self.content
            && let Some(cache_writer) = cache_writer.take()
            && !self.until_close
            && !scan.is_open()
            && !scan.has_error()
        {
            cache_writer.save(self.content.usage());
        }
    }

    /// Ends the response early, because of the provider or of a limit.
    fn abort(&mut self, error: ResponseError) {
        self.connection = None;
        if !self.account.is_open() {
            return;
        }
        if !matches!(error, ResponseError::TooLarge | ResponseError::Unread) {
            let notice = self.target.health.response_failed(Instant::now());
            self.target.report(notice, &error);
        }
        match &self.content {
            Content::Events(events) => {
                if !events.is_between_events() {
                    self.out.push_back(Bytes::from_static(b"\n\n"));
                }
                self.out.push_back(last_event(error));
            }
            Content::Json { .. } => self.broken = Some(error),
        }
        self.close(true);
    }

    /// Strict mode: the call did not reach the disk in time, so the end of its response is withheld.
    fn withhold(&mut self) {
        self.out.clear();
        self.connection = None;
        match &self.content {
            Content::Events(_) => self.out.push_back(last_event(ResponseError::NotRecorded)),
            Content::Json { .. } => self.broken = Some(ResponseError::NotRecorded),
        }
    }

    fn close(&mut self, partial: bool) {
        let (tokens, estimated) = tokens(
            self.operation,
            self.content.usage(),
            self.account.prompt_estimate,
            self.content.content_bytes(),
        );
        let (first_byte, since) = self.account.timings();
        if !partial {
            self.target.health.succeeded(self.last_upstream_byte);
            self.target.measured(first_byte, since, tokens, estimated);
        }
        self.durability_wait = self.account.close(&CallEnd {
            status: self.status,
            partial,
            estimated,
            unsettled: !self.content.is_settled(!partial),
            cached: false,
            tokens,
            price: Some(self.target.price),
        });
    }

    /// The client has disconnected: a detached task reads the rest for its usage.
    fn detach(&mut self, connection: Box<Connection>) {
        // Bytes that may begin the provider's key were held back: the usage may lie across them.
        let rest = self.redactor.flush();
        self.feed(rest);
        if !self.account.is_open() {
            return;
        }
        let nothing = Content::Events(EventStream::default());
        let response = PendingResponse {
            worker: Arc::clone(&self.worker),
            target: Arc::clone(&self.target),
            connection,
            received: Some(Received {
                status: self.status,
                content: std::mem::replace(&mut self.content, nothing),
                passed: 0,
                until_close: self.until_close,
            }),
        };
        detached::take_over(self.account.hand_over(), response);
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Events(_))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.connection.is_none()
            && self.out.is_empty()
            && self.durability_wait.is_none()
            && self.broken.is_none()
    }

    /// Bytes left, if known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match &self.content {
            Content::Json { left, .. } => *left,
            Content::Events(_) => None,
        }
    }
}

impl Sweep for MeteredResponse {
    /// Aborts it if the client has read nothing for so many sweeps.
    fn sweep(&mut self, most: u32) {
        let Some(unread) = &mut self.unread else {
            return;
        };
        *unread = unread.saturating_add(1);
        if *unread > most && self.connection.is_some() {
            self.abort(ResponseError::Unread);
        }
    }
}

impl Drop for MeteredResponse {
    fn drop(&mut self) {
        self.worker.active_responses.remove(self.slot);
        let mut connection = self.connection.take();
        if let Some(done) = connection.take_if(|it| it.is_done()) {
            let pool = &self.worker.pool;
            pool.put(self.target.upstream.number, done, Instant::now(), || ());
        }
        if !self.account.is_open() {
            return;
        }
        // The client disconnected before the end.
        match connection {
            Some(connection) if !self.content.is_settled(false) => self.detach(connection),
            _ => self.close(true),
        }
    }
}
