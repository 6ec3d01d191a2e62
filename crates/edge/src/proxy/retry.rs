//! From a request to the head of its response: which connection it is sent on, and when it is sent again.
//!
//! A request is sent again only if no connection was accepted, so that no instance has seen it, or if it is idempotent,
//! has no body and its connection ended without a byte of a response.

use crate::cookies;
use crate::proxy::outgoing::{OutgoingRequest, Progress, SendError};
use crate::proxy::pool::Pool;
use crate::proxy::response_head::ResponseHead;
use crate::proxy::upstream_body::UpstreamBody;
use crate::proxy::{Connection, Failure, ProxyOptions, ProxyTarget};
use crate::routing::load_balancer::InFlightGuard;
use estrade_http1::client::{ResponseContext, connect};
use estrade_listener::UpstreamSocket;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Keep-alive race: an instance may close an idle connection while a request is on its way. A request that cannot be
/// repeated is sent only on a connection that was idle for less than this, or on a new one.
const MAX_IDLE_UNREPEATABLE: Duration = Duration::from_secs(1);
/// Requests that are sent plus connections that are tried, for one request of a client.
const MAX_ATTEMPTS: usize = 5;

/// What a request needs to reach an instance.
#[derive(Clone, Copy)]
pub(crate) struct Upstream<'u> {
    pub(crate) options: &'u ProxyOptions,
    pub(crate) pool: &'u Arc<Pool>,
    /// Domains that projects share, for which none of them may set cookies.
    pub(crate) shared_domains: &'u [String],
}

/// A response whose head has been read.
pub(crate) struct UpstreamResponse {
    pub(crate) head: ResponseHead,
    pub(crate) connection: Box<Connection>,
    pub(crate) in_flight: InFlightGuard,
    outgoing: OutgoingRequest,
}

impl UpstreamResponse {
    pub(crate) fn into_body(self, upstream: Upstream<'_>) -> (ResponseHead, UpstreamBody) {
        let idle = upstream.options.idle_timeout;
        let pool = Arc::clone(upstream.pool);
        let body = UpstreamBody::new(self.connection, self.in_flight, pool, self.outgoing, idle);
        (self.head, body)
    }
}

/// Sends a request to an instance, and to another one if that fails and it may be sent again. `repeatable`: its method is
/// idempotent.
pub(crate) async fn forward(
    upstream: Upstream<'_>,
    target: ProxyTarget,
    mut outgoing: OutgoingRequest,
    context: ResponseContext,
    repeatable: bool,
) -> Result<UpstreamResponse, Failure> {
    let options = upstream.options;
    let repeatable = repeatable && !outgoing.has_body();
    let ProxyTarget {
        route,
        endpoints,
        mut in_flight,
    } = target;
    let (mut tried, mut pooled) = (Vec::new(), true);
    for _ in 0..MAX_ATTEMPTS {
        let kept = pooled
            .then(|| take_idle(upstream, &in_flight, repeatable))
            .flatten();
        let reused = kept.is_some();
        let connection = if let Some(connection) = kept {
            Ok(connection)
        } else {
            let permit = options.upstreams.acquire(Some(route.project));
            let permit = permit.ok_or(Failure::TooManyConnections)?;
            let socket = connect(in_flight.instance().address, options.connect_timeout).await;
            socket.map(|socket| Box::new(Connection::new(UpstreamSocket::new(socket, permit))))
        };
        let failure = match connection {
            Ok(mut connection) => {
                match send_request(&mut connection, &mut outgoing, context, options).await {
                    Ok(mut head) => {
                        if head.sets_cookies {
                            let domains = upstream.shared_domains;
                            cookies::restrict_lines(&mut head.lines, domains);
                        }
                        return Ok(UpstreamResponse {
                            head,
                            connection,
                            in_flight,
                            outgoing,
                        });
                    }
                    Err(Failure::NoResponse) if repeatable => Failure::NoResponse,
                    Err(failure) => return Err(failure),
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot connect to an instance");
                Failure::Unreachable
            }
        };
        if !outgoing.rewind() {
            return Err(failure);
        }
        if reused {
            // Closed while it was idle. The instance may be healthy, but its other idle connections are likely closed,
            // too: the next attempt opens one.
            pooled = false;
            continue;
        }
        if failure == Failure::Unreachable {
            in_flight.instance().back_off();
        }
        tried.push(in_flight.instance().id);
        in_flight = endpoints.acquire(&tried).ok_or(failure)?;
    }
    Err(Failure::Unreachable)
}

fn take_idle(
    upstream: Upstream<'_>,
    in_flight: &InFlightGuard,
    repeatable: bool,
) -> Option<Box<Connection>> {
    if repeatable {
        return upstream.pool.take(in_flight.instance(), Duration::MAX);
    }
    let kept = upstream
        .pool
        .take(in_flight.instance(), MAX_IDLE_UNREPEATABLE);
    kept.filter(|connection| connection.is_quiet_now())
}

/// Sends a request and waits for the head of its response.
async fn send_request(
    connection: &mut Connection,
    outgoing: &mut OutgoingRequest,
    context: ResponseContext,
    options: &ProxyOptions,
) -> Result<ResponseHead, Failure> {
    let mut since = Instant::now();
    // How long the client was waited for before, and since when it is now.
    let (mut waited, mut waiting) = (Duration::ZERO, None::<Instant>);
    poll_fn(|cx| {
        let mut progressed = false;
        if let Some(began) = waiting.take() {
            waited += began.elapsed();
        }
        let progress = match outgoing.poll_send(cx, connection, &mut progressed) {
            Ok(progress) => progress,
            // An instance that stops reading may have sent a response that says why: it is read anyway.
            Err(SendError::Upstream) => Progress::Done,
            Err(SendError::TooLarge) => return Poll::Ready(Err(Failure::TooLarge)),
            Err(SendError::Client) => return Poll::Ready(Err(Failure::ClientAborted)),
        };
        if let Poll::Ready(head) = connection.poll_head(cx, context, ResponseHead::read) {
            return Poll::Ready(match head {
                Ok(Some(head)) => Ok(head),
                Ok(None) => Err(Failure::NoResponse),
                Err(_) => Err(Failure::MalformedResponse),
            });
        }
        if progressed {
            since = Instant::now();
        }
        let (due, failure) = match progress {
            Progress::WaitingForClient => {
                let now = *waiting.insert(Instant::now());
                let earned = outgoing.received() / options.min_upload_rate.max(1);
                let allowed = options.upload_grace + Duration::from_secs(earned);
                let due = now + allowed.saturating_sub(waited);
                (
                    due.min(since + options.idle_timeout),
                    Failure::ClientTimeout,
                )
            }
            _ => (since + options.first_byte_timeout, Failure::Timeout),
        };
        ready!(connection.poll_deadline(cx, due));
        Poll::Ready(Err(failure))
    })
    .await
}
