//! Calls the providers of a model: retries with backoff on one, then falls back to the next.

use crate::accounting::account::CallAccount;
use crate::error::GatewayError;
use crate::headers::BETA;
use crate::request::request_fields::RequestFields;
use crate::streaming::detached::PendingResponse;
use crate::streaming::worker::WorkerState;
use crate::trace::{TRACEPARENT, Trace};
use crate::upstream::catalogue::Target;
use crate::upstream::{
    self, Connection, ResponseHead, STALE_CONNECTION_WINDOW, SendError, Upstream,
};
use bytes::Bytes;
use estrade_http1::client::{Request, RequestFraming};
use estrade_model::call::Operation;
use http::{HeaderMap, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Upper bound of a provider's `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(2);
/// A call to be sent to the providers of its model.
pub(crate) struct UpstreamCall<'e> {
    pub(crate) operation: Operation,
    /// The targets to try in order; `true`: even if the breaker is open.
    pub(crate) order: Box<[(&'e Arc<Target>, bool)]>,
    pub(crate) fields: &'e RequestFields,
    pub(crate) body: &'e Bytes,
    pub(crate) headers: &'e HeaderMap,
}

/// The head of a provider's response, and the connection that its body comes from.
pub(crate) struct UpstreamResponse {
    pub(crate) target: Arc<Target>,
    pub(crate) head: Box<ResponseHead>,
    pub(crate) connection: Box<Connection>,
    /// Whether the usage of the stream was requested by us and not by the caller.
    pub(crate) hide_usage: bool,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy)]
enum AttemptError {
    Busy(Option<Duration>),
    Status(u16, Option<Duration>),
    Auth,
    /// The response's headers contain the provider's key.
    KeyLeaked,
    Failed(SendError),
}

impl AttemptError {
    /// Whether a retry at the same provider may succeed.
    fn is_transient(self) -> bool {
        match self {
            // After a timeout the provider may still be working: a retry would be billed twice.
            Self::Failed(SendError::Timeout | SendError::TooManyConnections)
            | Self::Auth
            | Self::KeyLeaked => false,
            Self::Busy(_) | Self::Failed(_) => true,
            Self::Status(status, _) => matches!(status, 500 | 502 | 503 | 504),
        }
    }

    /// Whether it says anything about the provider.
    fn is_of_provider(self) -> bool {
        !matches!(self, Self::Failed(SendError::TooManyConnections))
    }

    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Busy(retry_after) | Self::Status(_, retry_after) => retry_after,
            Self::Auth | Self::KeyLeaked | Self::Failed(_) => None,
        }
    }

    fn into_error(self) -> GatewayError {
        match self {
            Self::Busy(retry_after) => GatewayError::upstream_busy(retry_after),
            Self::Auth => GatewayError::upstream_auth(),
            Self::Failed(SendError::Timeout | SendError::ConnectTimeout) | Self::Status(504, _) => {
                GatewayError::upstream_timeout()
            }
            Self::Failed(SendError::TooManyConnections) => GatewayError::too_many_connections(),
            Self::KeyLeaked | Self::Failed(_) => GatewayError::upstream_error(None),
            Self::Status(status, _) => GatewayError::upstream_error(Some(status)),
        }
    }
}

/// Tries the targets in order until one responds; it is `now`.
pub(crate) async fn call_with_fallback(
    worker: &Arc<WorkerState>,
    call: &UpstreamCall<'_>,
    account: &mut CallAccount,
    mut now: Instant,
) -> Result<UpstreamResponse, GatewayError> {
    let mut last = None;
    for (target, anyway) in &call.order {
        let Some(permit) = target.health.acquire(now, *anyway) else {
            continue;
        };
        account.set_series(&target.series);
        match call_with_retries(worker, call, target, account, now).await {
            Ok(response) => {
                permit.response_began(account.first_byte_at());
                return Ok(response);
            }
            Err(error) => {
                now = Instant::now();
                if error.is_of_provider() {
                    target.report(permit.failed(now), &error);
                }
                last = Some(error);
                if account.is_unsettled() {
                    break;
                }
            }
        }
    }
    Err(last.map_or_else(GatewayError::no_target, AttemptError::into_error))
}

/// Calls one provider, and retries after a delay while its errors are transient.
async fn call_with_retries(
    worker: &Arc<WorkerState>,
    call: &UpstreamCall<'_>,
    target: &Arc<Target>,
    account: &mut CallAccount,
    mut now: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    let upstream = &target.upstream;
    let hide_usage = call.fields.stream
        && upstream.stream_usage
        && !call.fields.include_usage
        && call.operation == Operation::Chat;
    let body = call
        .fields
        .rewrite(call.body, target.name.as_deref(), hide_usage);
    let extra_headers = extra_headers(call.headers, account.trace, body.len());
    let request = Request {
        head: upstream.head(call.operation),
        extra_headers: &extra_headers,
        body: &body,
    };
    let mut delay = MIN_RETRY_DELAY;
    let mut retries = 0;
    loop {
        account.record_attempt(&upstream.name);
        let error = match send(worker, target, &request, account, now).await {
            // Some providers repeat the key that they were sent.
            Ok((head, _)) if head.shown().any(|value| upstream.leaks_key(value)) => {
                account.record_lost();
                AttemptError::KeyLeaked
            }
            Ok((head, connection)) => match classify(&head) {
                None => {
                    let target = Arc::clone(target);
                    return Ok(UpstreamResponse {
                        target,
                        head,
                        connection,
                        hide_usage,
                    });
                }
                Some(error) => {
                    account.record_unbilled();
                    discard(worker, upstream, connection);
                    error
                }
            },
            Err(failure) => AttemptError::Failed(failure),
        };
        if retries >= upstream.retries || !error.is_transient() || account.is_unsettled() {
            return Err(error);
        }
        retries += 1;
        let jitter = delay.mul_f64(fastrand::f64());
        let retry_after = error.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
        // Boxed: keeps the future of every call small.
        Box::pin(sleep(jitter.max(retry_after))).await;
        now = Instant::now();
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

/// The error of a response that is not forwarded to the client, but retried or sent to the next provider.
fn classify(head: &ResponseHead) -> Option<AttemptError> {
    match head.status {
        401 | 403 => Some(AttemptError::Auth),
        // Payment required: of the installation's account at the provider, not of the caller.
        402 => Some(AttemptError::Status(402, None)),
        429 => Some(AttemptError::Busy(head.retry_after)),
        200..=299 | 400..=499 => None,
        // Redirects are not followed: that would send the key to another host.
        status => Some(AttemptError::Status(status, head.retry_after)),
    }
}

/// Discards a response; its connection goes back to the pool if the body has arrived completely.
fn discard(worker: &WorkerState, upstream: &Upstream, mut connection: Box<Connection>) {
    if connection.take_whole().is_some() {
        worker
            .pool
            .put(upstream.number, connection, Instant::now(), || ());
    }
}

/// Sends a request and reads the response's head. A stale pooled connection is replaced once.
async fn send(
    worker: &Arc<WorkerState>,
    target: &Arc<Target>,
    request: &Request<'_>,
    account: &mut CallAccount,
    mut now: Instant,
) -> Result<(Box<ResponseHead>, Box<Connection>), SendError> {
    let upstream = &*target.upstream;
    let waiting = worker.pool.take(upstream.number, Duration::MAX, now);
    let mut may_be_closed = waiting.is_some();
    let mut connection = if let Some(connection) = waiting {
        connection
    } else {
        let opened = Box::pin(upstream::open(upstream, worker.gateway.upstreams())).await?;
        now = Instant::now();
        opened
    };
    loop {
        account.record_sent(target, &worker.in_flight);
        let deadline = now + upstream.timeouts.first_byte;
        let mut guard = DisconnectGuard {
            worker,
            target,
            account,
            connection: Some(connection),
        };
        let outcome = match &mut guard.connection {
            Some(connection) => connection
                .send(request, now, deadline, ResponseHead::read)
                .await
                .map_err(SendError::from),
            None => Err(SendError::Unanswered),
        };
        let Some(used) = guard.connection.take() else {
            return Err(SendError::Unanswered);
        };
        drop(guard);
        let attempt = Attempt(outcome, used);
        if !may_be_closed || !attempt.was_closed() || now.elapsed() > STALE_CONNECTION_WINDOW {
            return attempt.settle(account);
        }
        // The provider has not read the request. Its socket is closed before another is opened.
        drop(attempt);
        account.record_unbilled();
        account.record_attempt(&upstream.name);
        connection = Box::pin(upstream::open(upstream, worker.gateway.upstreams())).await?;
        now = Instant::now();
        may_be_closed = false;
    }
}

/// Dropped while a request is in flight: the client has disconnected, and the account reads on for the usage.
struct DisconnectGuard<'a> {
    worker: &'a Arc<WorkerState>,
    target: &'a Arc<Target>,
    account: &'a mut CallAccount,
    connection: Option<Box<Connection>>,
}

impl Drop for DisconnectGuard<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // A provider cannot process, or bill, a request of which it has only a part.
        if !connection.is_fully_sent() {
            return self.account.record_unbilled();
        }
        self.account.detach(Box::new(PendingResponse {
            worker: Arc::clone(self.worker),
            target: Arc::clone(self.target),
            connection,
            received: None,
        }));
    }
}

/// The outcome of a request, and its connection.
struct Attempt(Result<Box<ResponseHead>, SendError>, Box<Connection>);

impl Attempt {
    /// Whether the provider had closed the connection before the request arrived.
    fn was_closed(&self) -> bool {
        match &self.0 {
            Err(failure) => *failure == SendError::Unanswered,
            // Some servers send 408 before they close an idle connection.
            Ok(head) => head.status == 408 && self.1.is_last(),
        }
    }

    /// Records in the account whether the provider may bill the attempt.
    fn settle(
        self,
        account: &mut CallAccount,
    ) -> Result<(Box<ResponseHead>, Box<Connection>), SendError> {
        let Self(outcome, connection) = self;
        match outcome {
            Ok(head) => {
                account.record_first_byte(Instant::now());
                Ok((head, connection))
            }
            Err(failure) => {
                if connection.is_fully_sent() {
                    account.record_lost();
                } else {
                    account.record_unbilled();
                }
                Err(failure)
            }
        }
    }
}

/// The rest of a request's head: the client's headers that are forwarded, and the length.
fn extra_headers(headers: &HeaderMap, trace: Option<Trace>, length: usize) -> Vec<u8> {
    let mut more = Vec::with_capacity(128);
    let mut add = |name: &str, value: &[u8]| {
        more.extend_from_slice(name.as_bytes());
        more.extend_from_slice(value);
        more.extend_from_slice(b"\r\n");
    };
    if let Some(accept) = headers.get(header::ACCEPT) {
        add("accept: ", accept.as_bytes());
    }
    if let Some(beta) = headers.get(BETA) {
        add("openai-beta: ", beta.as_bytes());
    }
    if let Some(trace) = trace {
        add("traceparent: ", trace.header().as_bytes());
    } else if let Some(parent) = headers.get(TRACEPARENT) {
        add("traceparent: ", parent.as_bytes());
    }
    RequestFraming::Length(length as u64).write(&mut more);
    more.extend_from_slice(b"\r\n");
    more
}
