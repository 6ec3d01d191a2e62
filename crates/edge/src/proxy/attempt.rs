//! From a request to the head of its answer: which connection it goes out on, and what is tried when
//! that fails.

use crate::cookies;
use crate::lane::Lane;
use crate::load_balancer::InFlightGuard;
use crate::proxy::answer_head::{AnswerHead, Asked};
use crate::proxy::connection::Connection;
use crate::proxy::exchange::Exchange;
use crate::proxy::outgoing::{Outgoing, Progress, Stop};
use crate::proxy::{Failure, ProxyOptions, ProxyTarget};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A request that cannot be repeated goes out on a connection that was used just now or on a new one:
/// one that has waited for long may be closed by the instance at the very same moment.
const JUST_NOW: Duration = Duration::from_secs(1);
/// Times that a request is sent or a connection tried.
const MOST_TRIES: usize = 5;

/// An answer whose head is there.
pub(crate) struct Answered {
    pub(crate) head: AnswerHead,
    pub(crate) connection: Connection,
    pub(crate) in_flight: InFlightGuard,
    outgoing: Outgoing,
}

impl Answered {
    /// The body, as it comes.
    pub(crate) fn into_exchange(self, lane: &Lane) -> (AnswerHead, Exchange) {
        let idle = lane.edge.proxy.idle_timeout;
        let pool = Arc::clone(&lane.pool);
        let exchange = Exchange::new(self.connection, self.in_flight, pool, self.outgoing, idle);
        (self.head, exchange)
    }
}

/// Sends a request to an instance, and to another one when that is possible and right.
///
/// `repeatable` says whether it does the same when it is carried out twice.
pub(crate) async fn forward(
    lane: &Lane,
    way: ProxyTarget,
    mut outgoing: Outgoing,
    asked: Asked,
    repeatable: bool,
) -> Result<Answered, Failure> {
    let options = &lane.edge.proxy;
    let repeatable = repeatable && !outgoing.has_body();
    let ProxyTarget {
        endpoints,
        mut in_flight,
        ..
    } = way;
    let (mut tried, mut pooled) = (Vec::new(), true);
    for _ in 0..MOST_TRIES {
        let kept = pooled
            .then(|| take_kept(lane, &in_flight, repeatable))
            .flatten();
        let reused = kept.is_some();
        let connection = match kept {
            Some(connection) => Ok(connection),
            None => Connection::open(in_flight.instance().address, options.connect_timeout).await,
        };
        let failure = match connection {
            Ok(mut connection) => match ask(&mut connection, &mut outgoing, asked, options).await {
                Ok(mut head) => {
                    if head.sets_cookies {
                        let domains = lane.edge.shared_domains();
                        cookies::restrict_lines(&mut head.lines, domains);
                    }
                    return Ok(Answered {
                        head,
                        connection,
                        in_flight,
                        outgoing,
                    });
                }
                Err(Failure::Unanswered) if repeatable => Failure::Unanswered,
                Err(failure) => return Err(failure),
            },
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

fn take_kept(lane: &Lane, in_flight: &InFlightGuard, repeatable: bool) -> Option<Connection> {
    if repeatable {
        return lane.pool.take(in_flight.instance(), Duration::MAX);
    }
    let kept = lane.pool.take(in_flight.instance(), JUST_NOW);
    kept.filter(Connection::is_quiet_now)
}

/// Sends a request and waits for the head of its answer.
async fn ask(
    connection: &mut Connection,
    outgoing: &mut Outgoing,
    asked: Asked,
    options: &ProxyOptions,
) -> Result<AnswerHead, Failure> {
    let mut since = Instant::now();
    // How long the visitor has been waited for before, and since when it is.
    let (mut waited, mut waiting) = (Duration::ZERO, None::<Instant>);
    poll_fn(|cx| {
        let mut moved = false;
        if let Some(began) = waiting.take() {
            waited += began.elapsed();
        }
        let progress = match outgoing.poll_send(cx, connection, &mut moved) {
            Ok(progress) => progress,
            // One that hangs up while we send may have said why: so its answer is looked for anyway.
            Err(Stop::Instance) => Progress::Done,
            Err(Stop::TooLarge) => return Poll::Ready(Err(Failure::TooLarge)),
            Err(Stop::Visitor) => return Poll::Ready(Err(Failure::VisitorBroken)),
        };
        if let Poll::Ready(answer) = connection.poll_head(cx, asked) {
            return Poll::Ready(match answer {
                Ok(Some(head)) => Ok(head),
                Ok(None) => Err(Failure::Unanswered),
                Err(_) => Err(Failure::Garbage),
            });
        }
        if moved {
            since = Instant::now();
        }
        let (due, failure) = match progress {
            Progress::Visitor => {
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
