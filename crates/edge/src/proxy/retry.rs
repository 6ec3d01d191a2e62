//! From a request to the head of its answer: which connection it goes out on, and what is tried when
//! that fails.

use crate::cookies;
use crate::proxy::connection::Connection;
use crate::proxy::outgoing::{OutgoingRequest, Progress, SendError};
use crate::proxy::pool::Pool;
use crate::proxy::response_head::{ResponseContext, ResponseHead};
use crate::proxy::upstream_body::UpstreamBody;
use crate::proxy::{Failure, ProxyOptions, ProxyTarget};
use crate::routing::load_balancer::InFlightGuard;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A request that cannot be repeated goes out on a connection that was used just now or on a new one:
/// one that has waited for long may be closed by the instance at the very same moment.
const MAX_IDLE_UNREPEATABLE: Duration = Duration::from_secs(1);
/// Times that a request is sent or a connection tried.
const MAX_ATTEMPTS: usize = 5;

/// What a request needs to reach an instance.
#[derive(Clone, Copy)]
pub(crate) struct Upstream<'u> {
    pub(crate) options: &'u ProxyOptions,
    pub(crate) pool: &'u Arc<Pool>,
    /// Domains that projects share, for which none of them may set cookies.
    pub(crate) shared_domains: &'u [String],
}

/// An answer whose head is there.
pub(crate) struct UpstreamResponse {
    pub(crate) head: ResponseHead,
    pub(crate) connection: Connection,
    pub(crate) in_flight: InFlightGuard,
    outgoing: OutgoingRequest,
}

impl UpstreamResponse {
    /// The body, as it comes.
    pub(crate) fn into_body(self, upstream: Upstream<'_>) -> (ResponseHead, UpstreamBody) {
        let idle = upstream.options.idle_timeout;
        let pool = Arc::clone(upstream.pool);
        let body = UpstreamBody::new(self.connection, self.in_flight, pool, self.outgoing, idle);
        (self.head, body)
    }
}

/// Sends a request to an instance, and to another one when that is possible and right.
///
/// `repeatable` says whether it does the same when it is carried out twice.
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
        endpoints,
        mut in_flight,
        ..
    } = target;
    let (mut tried, mut pooled) = (Vec::new(), true);
    for _ in 0..MAX_ATTEMPTS {
        let kept = pooled
            .then(|| take_idle(upstream, &in_flight, repeatable))
            .flatten();
        let reused = kept.is_some();
        let connection = match kept {
            Some(connection) => Ok(connection),
            None => Connection::open(in_flight.instance().address, options.connect_timeout).await,
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
                    Err(Failure::Unanswered) if repeatable => Failure::Unanswered,
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
            // It was closed while it waited. That says nothing about the instance, but much about
            // its other connections.
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
) -> Option<Connection> {
    if repeatable {
        return upstream.pool.take(in_flight.instance(), Duration::MAX);
    }
    let kept = upstream
        .pool
        .take(in_flight.instance(), MAX_IDLE_UNREPEATABLE);
    kept.filter(Connection::is_quiet_now)
}

/// Sends a request and waits for the head of its answer.
async fn send_request(
    connection: &mut Connection,
    outgoing: &mut OutgoingRequest,
    context: ResponseContext,
    options: &ProxyOptions,
) -> Result<ResponseHead, Failure> {
    let mut since = Instant::now();
    // How long the visitor has been waited for before, and since when it is.
    let (mut waited, mut waiting) = (Duration::ZERO, None::<Instant>);
    poll_fn(|cx| {
        let mut progressed = false;
        if let Some(began) = waiting.take() {
            waited += began.elapsed();
        }
        let progress = match outgoing.poll_send(cx, connection, &mut progressed) {
            Ok(progress) => progress,
            // One that hangs up while we send may have said why: so its answer is looked for anyway.
            Err(SendError::Upstream) => Progress::Done,
            Err(SendError::TooLarge) => return Poll::Ready(Err(Failure::TooLarge)),
            Err(SendError::Client) => return Poll::Ready(Err(Failure::VisitorBroken)),
        };
        if let Poll::Ready(answer) = connection.poll_head(cx, context) {
            return Poll::Ready(match answer {
                Ok(Some(head)) => Ok(head),
                Ok(None) => Err(Failure::Unanswered),
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
                    Failure::VisitorSilent,
                )
            }
            _ => (since + options.first_byte_timeout, Failure::Timeout),
        };
        ready!(connection.poll_due(cx, due));
        Poll::Ready(Err(failure))
    })
    .await
}
