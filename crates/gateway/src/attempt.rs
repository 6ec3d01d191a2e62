//! Asks the providers of a model, one after the other and again, until one answers.

use crate::account::Account;
use crate::catalogue::Target;
use crate::detached::PendingResponse;
use crate::error::Refusal;
use crate::look::Look;
use crate::relay::{BETA, Lane};
use crate::trace::{TRACEPARENT, Trace};
use crate::upstream::{AnswerHead, Connection, Failure, Question, Upstream};
use bytes::Bytes;
use estrade_model::call::Operation;
use http::{HeaderMap, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A provider that asks for a longer pause gets this one.
const LONGEST_WISH: Duration = Duration::from_secs(2);
/// A connection that waited and ends so soon after a question was closed before it came: the longest
/// way there and back. Later, somebody has read it.
pub(crate) const WAS_CLOSED: Duration = Duration::from_millis(300);

/// A request on its way to a provider.
pub(crate) struct Errand<'e> {
    pub(crate) operation: Operation,
    /// Whom to ask, one after the other; `true`: even if its breaker is open.
    pub(crate) order: Box<[(&'e Arc<Target>, bool)]>,
    pub(crate) look: &'e Look,
    pub(crate) body: &'e Bytes,
    pub(crate) headers: &'e HeaderMap,
}

/// A provider answers.
pub(crate) struct Answered {
    pub(crate) target: Arc<Target>,
    pub(crate) head: Box<AnswerHead>,
    pub(crate) connection: Box<Connection>,
    /// Whether the usage of the stream was asked for by us and not by the caller.
    pub(crate) hide_usage: bool,
}

/// Why an attempt came to nothing.
#[derive(Debug, Clone, Copy)]
enum Miss {
    Busy(Option<Duration>),
    Status(u16, Option<Duration>),
    Auth,
    /// It has answered, and repeats our key.
    Betrayal,
    Failed(Failure),
}

impl Miss {
    /// Whether the same provider may do better next time.
    fn is_passing(self) -> bool {
        match self {
            // After a timeout it may still be at work, and would do it twice.
            Self::Failed(Failure::Timeout) | Self::Auth | Self::Betrayal => false,
            Self::Busy(_) | Self::Failed(_) => true,
            Self::Status(status, _) => matches!(status, 500 | 502 | 503 | 504),
        }
    }

    fn wish(self) -> Option<Duration> {
        match self {
            Self::Busy(wish) | Self::Status(_, wish) => wish,
            Self::Auth | Self::Betrayal | Self::Failed(_) => None,
        }
    }

    fn into_refusal(self) -> Refusal {
        match self {
            Self::Busy(wish) => Refusal::upstream_busy(wish),
            Self::Auth => Refusal::upstream_auth(),
            Self::Failed(Failure::Timeout | Failure::ConnectTimeout) | Self::Status(504, _) => {
                Refusal::upstream_timeout()
            }
            Self::Betrayal | Self::Failed(_) => Refusal::upstream_error(None),
            Self::Status(status, _) => Refusal::upstream_error(Some(status)),
        }
    }
}

/// Asks until somebody answers or nobody is left; it is `now`.
pub(crate) async fn ask_around(
    lane: &Arc<Lane>,
    errand: &Errand<'_>,
    account: &mut Account,
    mut now: Instant,
) -> Result<Answered, Refusal> {
    let mut last = None;
    for (target, anyway) in &errand.order {
        let Some(trial) = target.health.begin(now, *anyway) else {
            continue;
        };
        account.count_in(&target.series);
        match ask_often(lane, errand, target, account, now).await {
            Ok(answered) => {
                trial.answered(account.answered_at());
                return Ok(answered);
            }
            Err(miss) => {
                now = Instant::now();
                target.report(trial.failed(now), &miss);
                last = Some(miss);
                if account.is_unsettled() {
                    break;
                }
            }
        }
    }
    Err(last.map_or_else(Refusal::no_target, Miss::into_refusal))
}

/// Asks one provider, and again after a pause if that may help.
async fn ask_often(
    lane: &Arc<Lane>,
    errand: &Errand<'_>,
    target: &Arc<Target>,
    account: &mut Account,
    mut now: Instant,
) -> Result<Answered, Miss> {
    let upstream = &target.upstream;
    let hide_usage = errand.look.stream
        && upstream.stream_usage
        && !errand.look.include_usage
        && errand.operation == Operation::Chat;
    let body = errand
        .look
        .rewrite(errand.body, target.name.as_deref(), hide_usage);
    let more_head = more_head(errand.headers, account.trace, body.len());
    let question = Question {
        head: upstream.head(errand.operation),
        more_head: &more_head,
        body: &body,
    };
    let mut pause = FIRST_PAUSE;
    let mut tries = 0;
    loop {
        account.asks(&upstream.name);
        let miss = match ask(lane, target, &question, account, now).await {
            // Some repeat what they were sent.
            Ok((head, _)) if head.shown().any(|value| upstream.is_betrayed_by(value)) => {
                account.lost();
                Miss::Betrayal
            }
            Ok((head, connection)) => match judge(&head) {
                None => {
                    let target = Arc::clone(target);
                    return Ok(Answered {
                        target,
                        head,
                        connection,
                        hide_usage,
                    });
                }
                Some(miss) => {
                    account.not_taken();
                    discard(lane, upstream, connection);
                    miss
                }
            },
            Err(failure) => Miss::Failed(failure),
        };
        if tries >= upstream.retries || !miss.is_passing() || account.is_unsettled() {
            return Err(miss);
        }
        tries += 1;
        let jitter = pause.mul_f64(fastrand::f64());
        let wish = miss.wish().unwrap_or_default().min(LONGEST_WISH);
        // In a box: it would make the state of every call larger.
        Box::pin(sleep(jitter.max(wish))).await;
        now = Instant::now();
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether an answer is one that the caller shall not see.
fn judge(head: &AnswerHead) -> Option<Miss> {
    match head.status {
        401 | 403 => Some(Miss::Auth),
        // Our account there is empty, not the caller's here.
        402 => Some(Miss::Status(402, None)),
        429 => Some(Miss::Busy(head.retry_after)),
        200..=299 | 400..=499 => None,
        // We follow nobody elsewhere: that would take the key along.
        status => Some(Miss::Status(status, head.retry_after)),
    }
}

/// The connection is worth keeping when the answer nobody reads is in already.
fn discard(lane: &Lane, upstream: &Upstream, mut connection: Box<Connection>) {
    if connection.take_whole().is_some() {
        lane.pool.put(upstream, connection, Instant::now());
    }
}

/// One question, one answer. A connection that turns out to have been closed is replaced once.
async fn ask(
    lane: &Arc<Lane>,
    target: &Arc<Target>,
    question: &Question<'_>,
    account: &mut Account,
    mut now: Instant,
) -> Result<(Box<AnswerHead>, Box<Connection>), Failure> {
    let upstream = &*target.upstream;
    let waiting = lane.pool.take(upstream, now);
    let mut may_be_closed = waiting.is_some();
    let mut connection = if let Some(connection) = waiting {
        connection
    } else {
        let opened = Box::pin(Connection::open(upstream)).await?;
        now = Instant::now();
        opened
    };
    loop {
        account.sends(target, &lane.under_way);
        let due = now + upstream.timeouts.first_byte;
        let mut guard = DisconnectGuard {
            lane,
            target,
            account,
            connection: Some(connection),
        };
        let outcome = match &mut guard.connection {
            Some(connection) => connection.ask(question, now, due).await,
            None => Err(Failure::Unanswered),
        };
        let Some(answering) = guard.connection.take() else {
            return Err(Failure::Unanswered);
        };
        drop(guard);
        let asked = Asked(outcome, answering);
        if !may_be_closed || !asked.was_closed() || now.elapsed() > WAS_CLOSED {
            return asked.settle(account);
        }
        // Nobody has read it. Its socket goes before there is another.
        drop(asked);
        account.not_taken();
        account.asks(&upstream.name);
        connection = Box::pin(Connection::open(upstream)).await?;
        now = Instant::now();
        may_be_closed = false;
    }
}

/// Dropped while a request is out: its client has left, and the account needs the connection to read on.
struct DisconnectGuard<'a> {
    lane: &'a Arc<Lane>,
    target: &'a Arc<Target>,
    account: &'a mut Account,
    connection: Option<Box<Connection>>,
}

impl Drop for DisconnectGuard<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // Who has no more than a part of a request cannot work on it.
        if !connection.is_told() {
            return self.account.not_taken();
        }
        self.account.leave(PendingResponse {
            lane: Arc::clone(self.lane),
            target: Arc::clone(self.target),
            connection,
            received: None,
        });
    }
}

/// A question that was asked, on this connection.
struct Asked(Result<Box<AnswerHead>, Failure>, Box<Connection>);

impl Asked {
    /// Whether that is what a connection says that was closed before the question came.
    fn was_closed(&self) -> bool {
        match &self.0 {
            Err(failure) => *failure == Failure::Unanswered,
            // Some say goodbye.
            Ok(head) => head.status == 408 && self.1.is_last(),
        }
    }

    /// What is owed for it.
    fn settle(self, account: &mut Account) -> Result<(Box<AnswerHead>, Box<Connection>), Failure> {
        let Self(outcome, connection) = self;
        match outcome {
            Ok(head) => {
                account.answered(Instant::now());
                Ok((head, connection))
            }
            Err(failure) => {
                if connection.is_told() {
                    account.lost();
                } else {
                    account.not_taken();
                }
                Err(failure)
            }
        }
    }
}

/// The rest of a request's head: what the caller may say to a provider, and the length.
fn more_head(headers: &HeaderMap, trace: Option<Trace>, length: usize) -> Vec<u8> {
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
    add(
        "content-length: ",
        itoa::Buffer::new().format(length).as_bytes(),
    );
    more.extend_from_slice(b"\r\n");
    more
}
