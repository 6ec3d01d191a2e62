//! The account of one call: opened when its key was let in, closed exactly once, whatever happens.

use crate::accounting::Accounting;
use crate::accounting::in_flight::{CallSnapshot, InFlightCalls, InFlightGuard, TokenCounter};
use crate::accounting::usage::{micros, sum};
use crate::auth::AuthContext;
use crate::limits::rate_limiter::RateLimitCharge;
use crate::metrics::Series;
use crate::trace::Trace;
use crate::upstream::catalogue::Target;
use estrade_model::Id;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, Operation, Price, RowState, Tokens};
use estrade_model::provider::OnDisconnect;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What to wait for before the caller sees the end, in strict mode: whether the call is on disk.
pub(crate) type DurabilityWait = Option<BoxFuture<'static, bool>>;

/// A call that is under way.
pub(crate) struct CallAccount {
    accounting: Arc<Accounting>,
    pub(crate) auth: AuthContext,
    /// None once it is closed.
    call: Option<Call>,
    reservation: BudgetReservation,
    /// What was taken from the buckets: the request, and its tokens.
    request: Option<RateLimitCharge>,
    tokens: Option<RateLimitCharge>,
    started: Instant,
    authenticated_at: Instant,
    first_byte: Option<Instant>,
    series: Option<Arc<Series>>,
    /// The price at which it has been sent to a provider.
    sent: Option<Price>,
    pub(crate) prompt_estimate: u64,
    /// Tokens of prompts that were sent in vain, and what they may have cost.
    lost: u64,
    owed: Amount,
    /// Where it is recorded that it is under way, unless it is on record.
    in_flight_guard: Option<InFlightGuard>,
    /// Whether a provider may bill an attempt that nothing is known of.
    unsettled: bool,
    /// What was being received when the client left, and when that was.
    pending: Option<Box<dyn DetachedCall>>,
    left_at: Option<Instant>,
    /// Set when nothing is waited for once the client has left.
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    pub(crate) trace: Option<Trace>,
}

/// A call whose client has left while its response is awaited: takes over the account, to close it.
pub(crate) trait DetachedCall: Send + Sync {
    fn take_over(self: Box<Self>, account: Box<CallAccount>);
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that have nothing to do with each other"
)]
pub(crate) struct CallEnd {
    pub(crate) status: u16,
    pub(crate) partial: bool,
    pub(crate) estimated: bool,
    /// Whether the provider may bill more than is known: then a budget pays what was reserved.
    pub(crate) unsettled: bool,
    pub(crate) cached: bool,
    pub(crate) tokens: Tokens,
    pub(crate) price: Option<Price>,
}

impl CallAccount {
    pub(crate) fn open(
        accounting: Arc<Accounting>,
        auth: AuthContext,
        operation: Operation,
        (started, authenticated_at): (Instant, Instant),
    ) -> Box<Self> {
        let now = (accounting.clock)();
        let call = Call {
            id: Id::generate(now.millis(), fastrand::u64(..)),
            workspace: auth.workspace.id,
            key: auth.key.id,
            created_at: now,
            operation,
            model: Arc::clone(&accounting.empty),
            provider: Arc::clone(&accounting.empty),
            status: 0,
            streamed: false,
            partial: false,
            estimated: false,
            cached: false,
            tokens: Tokens::default(),
            cost: Amount::ZERO,
            latency_us: 0,
            ttfb_us: 0,
            attempts: 0,
        };
        // It goes from hand to hand: that is cheap only for something small.
        Box::new(Self {
            accounting,
            auth,
            call: Some(call),
            reservation: BudgetReservation::NONE,
            request: None,
            tokens: None,
            started,
            authenticated_at,
            first_byte: None,
            series: None,
            sent: None,
            prompt_estimate: 0,
            lost: 0,
            owed: Amount::ZERO,
            in_flight_guard: None,
            unsettled: false,
            pending: None,
            left_at: None,
            cancel: None,
            trace: None,
        })
    }

    /// The client has left while a response is awaited; what is dropped next is read on.
    pub(crate) fn detach(&mut self, response: Box<dyn DetachedCall>) {
        self.pending = Some(response);
    }

    /// Moves the account to a detached read; this one is closed.
    pub(crate) fn hand_over(&mut self) -> Box<Self> {
        Box::new(Self {
            accounting: Arc::clone(&self.accounting),
            auth: self.auth.clone(),
            call: self.call.take(),
            reservation: self.reservation,
            request: self.request.take(),
            tokens: self.tokens.take(),
            started: self.started,
            authenticated_at: self.authenticated_at,
            first_byte: self.first_byte,
            series: self.series.take(),
            sent: self.sent,
            prompt_estimate: self.prompt_estimate,
            lost: self.lost,
            owed: self.owed,
            in_flight_guard: self.in_flight_guard.take(),
            unsettled: self.unsettled,
            pending: None,
            left_at: Some(Instant::now()),
            cancel: self.cancel.take(),
            trace: self.trace,
        })
    }

    /// Whether nothing is waited for once the client has left.
    pub(crate) fn is_cancelled(&self) -> bool {
        let cancel = self.cancel.as_ref();
        cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Whether it is paid from a budget.
    fn has_budget(&self) -> bool {
        self.reservation.key_slice.is_some() || self.reservation.workspace_slice.is_some()
    }

    /// Whether an attempt may be billed in full, so that there is nothing reserved for another one.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// The record; none when it is closed already.
    pub(crate) fn call(&mut self) -> Option<&mut Call> {
        self.call.as_mut()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.call.is_some()
    }

    /// Where the call is counted from now on.
    pub(crate) fn set_series(&mut self, series: &Arc<Series>) {
        self.series = Some(Arc::clone(series));
    }

    /// The request was taken from the buckets.
    pub(crate) fn set_request(&mut self, taken: RateLimitCharge) {
        self.request = Some(taken);
    }

    /// Tokens were taken from the buckets: settled or given back when the account is closed.
    pub(crate) fn set_tokens(&mut self, taken: RateLimitCharge) {
        self.tokens = Some(taken);
    }

    /// What was set aside.
    pub(crate) fn set_reservation(&mut self, reservation: BudgetReservation) {
        self.reservation = reservation;
    }

    /// The call is refused by a later check: it does not count as a request.
    pub(crate) fn refund_rate_limits(&mut self) {
        let now = Instant::now();
        for taken in [self.request.take(), self.tokens.take()]
            .into_iter()
            .flatten()
        {
            self.accounting.limiter.settle(&taken, 0, now);
        }
    }

    /// Records an attempt at a provider.
    pub(crate) fn record_attempt(&mut self, provider: &Arc<str>) {
        if let Some(call) = &mut self.call {
            call.provider = Arc::clone(provider);
            call.attempts += 1;
        }
    }

    /// The request is sent: from now on the provider may bill the prompt.
    pub(crate) fn record_sent(&mut self, target: &Target, in_flight: &Arc<InFlightCalls>) {
        self.sent = Some(target.price);
        if let Some(cancel) = &self.cancel {
            let at_once = target.upstream.on_disconnect == OnDisconnect::CancelAndChargeReserved;
            cancel.store(at_once, Ordering::Relaxed);
        }
        if self.reservation.row_state != RowState::Absent {
            return;
        }
        let Some(snapshot) = self.snapshot() else {
            return;
        };
        match &self.in_flight_guard {
            Some(in_flight_guard) => in_flight_guard.update(snapshot),
            None => self.in_flight_guard = Some(in_flight.add(self.started, snapshot)),
        }
        // For each attempt: between two of them the journal may have found nothing in flight.
        self.accounting.ledger.call_sent();
    }

    /// How it stands; nothing once it is closed.
    fn snapshot(&self) -> Option<CallSnapshot> {
        Some(CallSnapshot {
            call: self.call.clone()?,
            price: self.sent,
            prompt: self.prompt_estimate,
            lost: self.lost,
            owed: self.owed,
        })
    }

    fn update_in_flight(&self) {
        if let Some(in_flight_guard) = &self.in_flight_guard
            && let Some(snapshot) = self.snapshot()
        {
            in_flight_guard.update(snapshot);
        }
    }

    /// Where it is counted what the provider says.
    pub(crate) fn token_counter(&self) -> TokenCounter {
        self.in_flight_guard
            .as_ref()
            .map(InFlightGuard::token_counter)
            .unwrap_or_default()
    }

    /// The provider did not take the call: nothing is owed.
    pub(crate) fn record_unbilled(&mut self) {
        self.sent = None;
        self.update_in_flight();
    }

    /// The provider has the request, and gave no response: it may have worked on it, so the prompt
    /// is paid for.
    pub(crate) fn record_lost(&mut self) {
        let Some(price) = self.sent.take() else {
            return;
        };
        self.unsettled |= self.has_budget() && price != Price::FREE;
        let tokens = Tokens {
            prompt: self.prompt_estimate,
            completion: 0,
        };
        self.lost = self.lost.saturating_add(tokens.prompt);
        self.owed = sum(self.owed, price.cost(tokens));
        self.update_in_flight();
    }

    /// Adds what was sent in vain.
    fn add_lost(&self, call: &mut Call, ending: &CallEnd) {
        if self.lost == 0 {
            return;
        }
        call.estimated = true;
        call.partial |= ending.price.is_none();
        call.tokens.prompt = call.tokens.prompt.saturating_add(self.lost);
        call.cost = sum(call.cost, self.owed);
    }

    /// The first byte of the response has come.
    pub(crate) fn record_first_byte(&mut self, now: Instant) {
        self.first_byte = Some(now);
        if let Some(in_flight_guard) = &self.in_flight_guard {
            in_flight_guard.record_first_byte(now);
        }
    }

    /// When the first byte came.
    pub(crate) fn first_byte_at(&self) -> Instant {
        self.first_byte.unwrap_or(self.started)
    }

    /// When its key was let in.
    pub(crate) fn authenticated_at(&self) -> Instant {
        self.authenticated_at
    }

    /// How long it took until the first byte.
    pub(crate) fn time_to_first_byte(&self) -> Duration {
        self.first_byte_at() - self.started
    }

    /// How long it took until the first byte, and since then.
    pub(crate) fn timings(&self) -> (Duration, Duration) {
        (self.time_to_first_byte(), self.first_byte_at().elapsed())
    }

    /// Closes it. What comes back has to be waited for before the end is sent.
    pub(crate) fn close(&mut self, ending: &CallEnd) -> DurabilityWait {
        let mut call = self.call.take()?;
        let now = Instant::now();
        let ended = self.left_at.unwrap_or(now);
        let took = ended.saturating_duration_since(self.started);
        call.status = ending.status;
        call.partial = ending.partial;
        call.estimated = ending.estimated;
        call.cached = ending.cached;
        call.tokens = ending.tokens;
        call.cost = ending
            .price
            .map_or(Amount::ZERO, |price| price.cost(ending.tokens));
        self.add_lost(&mut call, ending);
        let may_bill = ending.unsettled && ending.price.is_some_and(|price| price != Price::FREE);
        if (may_bill || self.unsettled) && self.has_budget() {
            call.estimated = true;
            call.cost = call.cost.max(self.reservation.reserved);
        }
        call.latency_us = micros(took);
        call.ttfb_us = self
            .first_byte
            .map_or(call.latency_us, |first| micros(first - self.started));
        let used = if ending.cached {
            0
        } else {
            call.tokens.total()
        };
        if let Some(taken) = &self.tokens {
            self.accounting.limiter.settle(taken, used, now);
        }
        let series = self.series.as_ref().unwrap_or(&self.accounting.unknown);
        series.note(call.status, took, call.tokens, call.attempts);
        if let (Some(trace), Some(tracing)) = (self.trace, &self.accounting.tracing) {
            tracing.sink.call_ended(trace, &call);
        }
        let durability_wait = self.accounting.ledger.close(self.reservation, call);
        // Only now: a crash in between would lose the call.
        self.in_flight_guard = None;
        durability_wait
    }
}

impl Drop for CallAccount {
    fn drop(&mut self) {
        // Still open: the caller left before the first byte. What was sent is owed all the same.
        if self.call.is_none() {
            return;
        }
        if let Some(response) = self.pending.take() {
            return response.take_over(self.hand_over());
        }
        let sent = self.sent.is_some();
        let _ = self.close(&CallEnd {
            status: 499,
            partial: sent,
            estimated: sent,
            unsettled: sent,
            cached: false,
            tokens: Tokens {
                prompt: if sent { self.prompt_estimate } else { 0 },
                completion: 0,
            },
            price: self.sent,
        });
    }
}
