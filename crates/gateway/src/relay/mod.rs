//! One call, from its head to its end.

mod fallback;
mod local_response;
mod outcome;
mod receive;

use crate::accounting::account::{CallAccount, CallEnd};
use crate::accounting::in_flight::InFlightCalls;
use crate::accounting::usage_ledger::{Admission, CallEstimate};
use crate::auth::{AuthContext, AuthError, WorkspaceSelector};
use crate::error::{GatewayError, rate_limit_headers};
use crate::gateway::Gateway;
use crate::headers::{ATTEMPTS, CALL, PROVIDER};
use crate::limits::bucket::RateLimitStatus;
use crate::limits::cost_estimate::CostEstimate;
use crate::limits::rate_limiter::{RateLimitStatuses, RateLimiter};
use crate::limits::taking::Taking;
use crate::models::may_use;
use crate::request::body_reader;
use crate::request::request_fields::{RequestFields, parse_request_fields};
use crate::request::route::{Endpoint, InferenceRoute};
use crate::request::{CallBody, CallRequest, SentKey};
use crate::streaming::active_responses::ActiveResponses;
use crate::streaming::body::GatewayBody;
use crate::streaming::readers::Readers;
use crate::streaming::worker::WorkerState;
use crate::upstream::Pool;
use crate::upstream::catalogue::{Catalogue, Model, Target};
use estrade_model::call::{BudgetReservation, CallId, Operation};
use estrade_model::rate::RateUnit;
use fallback::{UpstreamCall, call_with_fallback};
use http::{HeaderMap, HeaderValue, Response, header};
use local_response::{cache_key, echo, from_cache};
use outcome::Outcome;
use percent_encoding::percent_decode_str;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Serves calls on one thread, with its own connections to the providers. Clones share them.
#[derive(Clone)]
pub struct Relay(Arc<WorkerState>);

impl Gateway {
    /// The relay of one serving thread.
    pub fn relay(self: &Arc<Self>) -> Relay {
        Relay::new(Arc::clone(self), self.in_flight.register_thread())
    }
}

impl Relay {
    pub(crate) fn new(gateway: Arc<Gateway>, in_flight: Arc<InFlightCalls>) -> Self {
        let pool = Pool::new(gateway.options.max_idle, gateway.options.idle_timeout);
        let active_responses = ActiveResponses::default();
        let upstreams = gateway.options.upstreams.clone();
        let worker = Arc::new(WorkerState {
            gateway,
            pool,
            active_responses,
            in_flight,
            readers: Readers::default(),
        });
        let idle: Weak<WorkerState> = Arc::downgrade(&worker);
        upstreams.register(idle);
        Self(worker)
    }

    /// The gateway that it belongs to.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.0.gateway
    }

    /// Closes idle connections and aborts responses whose client does not read, for as long as it is
    /// polled. Run one beside each relay.
    pub async fn maintain(&self) {
        let unread = self.0.gateway.options.unread_timeout.as_secs() / SWEEP_INTERVAL.as_secs();
        let unread = u32::try_from(unread).unwrap_or(u32::MAX);
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let known = self.0.gateway.catalogue.load_full();
            let is_known = |number| known.upstreams.iter().any(|it| it.number == number);
            self.0
                .pool
                .sweep(Instant::now(), |number, ()| is_known(number));
            self.0.active_responses.sweep(unread);
        }
    }

    /// Aborts the detached reads of clients that have disconnected; those calls are charged what was reserved.
    pub async fn shutdown(&self) {
        self.0.readers.shutdown().await;
    }

    /// Idle connections in the pool.
    pub fn idle_connections(&self) -> usize {
        self.0.pool.len()
    }

    /// Serves an inference request whose path was parsed already.
    pub async fn handle(
        &self,
        route: InferenceRoute<'_>,
        request: Box<CallRequest>,
    ) -> Response<GatewayBody> {
        match self.begin(route, &request).await {
            Ok((operation, account)) => self.0.serve(operation, request, account).await,
            Err(response) => *response,
        }
    }

    /// Serves a call of somebody who was authorized without the secret of a key. Models, limits, budget and accounting
    /// are those of [`Self::handle`].
    pub async fn handle_authorized(
        &self,
        operation: Operation,
        auth: Result<AuthContext, AuthError>,
        request: Box<CallRequest>,
    ) -> Response<GatewayBody> {
        let now = Instant::now();
        match auth {
            Ok(auth) => {
                let account = self.open_account(auth, operation, (now, now), &request.headers);
                self.0.serve(operation, request, account).await
            }
            Err(denied) => GatewayError::denied(denied).into_response(),
        }
    }

    /// Authenticates a call and opens its account. `Err` is the response to a request that is no call.
    async fn begin(
        &self,
        route: InferenceRoute<'_>,
        request: &CallRequest,
    ) -> Result<(Operation, Box<CallAccount>), Box<Response<GatewayBody>>> {
        let started = Instant::now();
        let key = request.key.as_ref();
        let operation = match route.endpoint {
            Endpoint::Call(operation) => operation,
            Endpoint::Models | Endpoint::Model(_) => {
                return Err(Box::new(self.models(route, key).await));
            }
            other => {
                // Authenticated first: without a key, a client cannot find out which paths exist.
                let error = match (self.authenticate(key, route.selector, started).await, other) {
                    (Err(error), _) => error,
                    (Ok(_), Endpoint::WrongMethod(allow)) => GatewayError::wrong_method(allow),
                    (Ok(_), _) => GatewayError::unknown_path(),
                };
                return Err(Box::new(error.into_response()));
            }
        };
        let (auth, authenticated_at) = self
            .authenticate(key, route.selector, started)
            .await
            .map_err(|error| Box::new(error.into_response()))?;
        let times = (started, authenticated_at);
        let account = self.open_account(auth, operation, times, &request.headers);
        Ok((operation, account))
    }

    fn open_account(
        &self,
        auth: AuthContext,
        operation: Operation,
        times: (Instant, Instant),
        headers: &HeaderMap,
    ) -> Box<CallAccount> {
        let gateway = &self.0.gateway;
        let tracing = gateway.options.tracing.as_ref();
        let trace = tracing.and_then(|tracing| tracing.begin(headers));
        let accounting = Arc::clone(&gateway.accounting);
        let mut account = CallAccount::open(accounting, auth, operation, times);
        account.trace = trace;
        account
    }

    async fn models(
        &self,
        route: InferenceRoute<'_>,
        key: Option<&SentKey>,
    ) -> Response<GatewayBody> {
        let auth = match self.authenticate(key, route.selector, Instant::now()).await {
            Err(error) => return error.into_response(),
            Ok((auth, _)) => auth,
        };
        let gateway = &self.0.gateway;
        let body = if let Endpoint::Model(id) = route.endpoint {
            let id = percent_decode_str(id).decode_utf8_lossy();
            match gateway.model_for(&id, Some(&auth.key)) {
                None => return GatewayError::model_not_found(&id).into_response(),
                Some(body) => body,
            }
        } else {
            gateway.models_for(&auth.key)
        };
        let mut response = Response::new(GatewayBody::whole(body));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    /// Checks the key of a request, from memory if possible. Returns `now`, or the time after a look-up that had to
    /// wait.
    async fn authenticate(
        &self,
        key: Option<&SentKey>,
        selector: WorkspaceSelector<'_>,
        now: Instant,
    ) -> Result<(AuthContext, Instant), GatewayError> {
        let token = key.ok_or_else(GatewayError::no_key)?.as_str();
        let authenticator = &self.0.gateway.authenticator;
        let (outcome, now) = match authenticator.check(token, selector) {
            Some(outcome) => (outcome, now),
            None => (authenticator.look_up(token, selector).await, Instant::now()),
        };
        outcome
            .map(|auth| (auth, now))
            .map_err(GatewayError::denied)
    }
}

impl WorkerState {
    /// Serves an authenticated call and closes its account.
    async fn serve(
        self: &Arc<Self>,
        operation: Operation,
        request: Box<CallRequest>,
        mut account: Box<CallAccount>,
    ) -> Response<GatewayBody> {
        let id = account.call().map(|call| call.id);
        account.cancel.clone_from(&request.cancel);
        let mut statuses = RateLimitStatuses::default();
        let outcome = self
            .steps(operation, request, &mut account, &mut statuses)
            .await;
        let (provider, attempts) = account.call().map_or((None, 0), |call| {
            let was_sent = call.attempts > 0;
            (was_sent.then(|| Arc::clone(&call.provider)), call.attempts)
        });
        let mut response = match outcome {
            Ok(Outcome::Streaming(received, cache_writer)) => {
                self.stream_response(operation, *received, cache_writer, account)
            }
            Ok(Outcome::Complete(whole)) => {
                let on_disk = match account.close(&whole.ending) {
                    Some(wait) => wait.await,
                    None => true,
                };
                if on_disk {
                    let mut response = Response::new(whole.body);
                    *response.status_mut() = whole.status;
                    *response.headers_mut() = whole.headers;
                    response
                } else {
                    GatewayError::not_recorded().into_response()
                }
            }
            Err(error) => {
                let status = error.status.as_u16();
                if let Some(wait) = account.close(&CallEnd {
                    status,
                    ..CallEnd::default()
                }) {
                    wait.await;
                }
                error.into_response()
            }
        };
        let headers = response.headers_mut();
        if let Some(id) = id {
            headers.insert(CALL, hex(id));
        }
        if let Some(provider) = provider {
            if !headers.contains_key(PROVIDER)
                && let Ok(name) = HeaderValue::from_str(&provider)
            {
                headers.insert(PROVIDER, name);
            }
            headers.insert(ATTEMPTS, count(attempts));
        }
        rate_limit_headers(&statuses, headers);
        response
    }

    /// The steps of a call, in order.
    async fn steps(
        self: &Arc<Self>,
        operation: Operation,
        mut request: Box<CallRequest>,
        account: &mut CallAccount,
        statuses: &mut RateLimitStatuses,
    ) -> Result<Outcome, GatewayError> {
        // Before the body is read: a request whose body never arrives counts as well.
        statuses.requests = self.take_request(account).await?;
        let is_here = matches!(request.body, CallBody::Whole(_));
        let (body, held) = body_reader::read(
            &mut request.body,
            &self.gateway.bodies,
            account.auth.key.owner,
        )
        .await?;
        // Reading the clock costs as much as some of the steps, so it is read only after a wait.
        let now = if is_here {
            account.authenticated_at()
        } else {
            Instant::now()
        };
        let catalogue = self.gateway.catalogue.load_full();
        let fields = parse_request_fields(&body, catalogue.strict_fields)
            .map_err(|bad| GatewayError::bad_body(&bad))?;
        let model = choose_model(&catalogue, &fields, account)?;
        check_fields(model, &fields)?;
        let estimate = CostEstimate::new(operation, &fields, model, body.len());
        account.prompt_estimate = estimate.prompt;
        statuses.tokens = self.take_tokens(account, estimate, &fields, now).await?;
        // Before the reservation, which records the first provider.
        let order = order(model, &fields, account, now);
        let first = order.first().map(|(target, _)| &target.upstream.name);
        let now = self.reserve(account, first, estimate, now).await?;
        if model.echo {
            return echo(operation, &body, account);
        }
        let cache_key = cache_key(operation, &fields, &body, &request.headers, account);
        if let Some(key) = &cache_key
            && let Some(kept) = self.gateway.response_cache.get(key, now)
        {
            return Ok(Outcome::Complete(from_cache(kept)));
        }
        let call = UpstreamCall {
            operation,
            order,
            fields: &fields,
            body: &body,
            headers: &request.headers,
        };
        let received = call_with_fallback(self, &call, account, now).await?;
        drop((body, held));
        self.receive(operation, received, cache_key, account).await
    }

    async fn take_request(
        &self,
        account: &mut CallAccount,
    ) -> Result<Option<RateLimitStatus>, GatewayError> {
        if !RateLimiter::applies(&account.auth, RateUnit::Requests) {
            return Ok(None);
        }
        let (limiter, now) = (&self.gateway.accounting.limiter, account.authenticated_at());
        let taken = match limiter.take(&account.auth, RateUnit::Requests, 1, now) {
            Taking::Done(outcome) => outcome,
            Taking::Waits(waiting) => waiting.await,
        };
        let taken = taken.map_err(|exceeded| GatewayError::rate(&exceeded))?;
        Ok(taken.map(|(taken, status)| {
            account.set_request(taken);
            status
        }))
    }

    async fn take_tokens(
        &self,
        account: &mut CallAccount,
        estimate: CostEstimate,
        fields: &RequestFields,
        now: Instant,
    ) -> Result<Option<RateLimitStatus>, GatewayError> {
        if !RateLimiter::applies(&account.auth, RateUnit::Tokens) {
            return Ok(None);
        }
        // Without `max_tokens` the length of the completion cannot be estimated: it is counted when it
        // is known.
        let completion = fields.max_tokens.map_or(0, |_| estimate.completion);
        let tokens = estimate.prompt.saturating_add(completion);
        let limiter = &self.gateway.accounting.limiter;
        let taken = match limiter.take(&account.auth, RateUnit::Tokens, tokens, now) {
            Taking::Done(outcome) => outcome,
            Taking::Waits(waiting) => waiting.await,
        };
        let taken = taken.map_err(|exceeded| {
            account.refund_rate_limits();
            GatewayError::rate(&exceeded)
        })?;
        Ok(taken.map(|(taken, status)| {
            account.set_tokens(taken);
            status
        }))
    }

    /// Reserves the most that the call may cost. Returns `now`, or the time after a wait for the ledger.
    async fn reserve(
        &self,
        account: &mut CallAccount,
        provider: Option<&Arc<str>>,
        estimate: CostEstimate,
        now: Instant,
    ) -> Result<Instant, GatewayError> {
        let Some(call) = account.call() else {
            return Err(GatewayError::no_target());
        };
        let call_estimate = CallEstimate {
            id: call.id,
            created_at: call.created_at,
            operation: call.operation,
            model: Arc::clone(&call.model),
            provider: Arc::clone(provider.unwrap_or(&self.gateway.accounting.empty)),
            streamed: call.streamed,
            max_cost: estimate.max_cost,
        };
        let outcome = match self
            .gateway
            .accounting
            .ledger
            .admit(&account.auth, &call_estimate)
        {
            Admission::Ready(reservation) => Ok((reservation, now)),
            Admission::Wait(waiting) => {
                // A client that disconnects during the wait may leave a reservation behind.
                account.set_reservation(BudgetReservation::UNCONFIRMED);
                waiting
                    .await
                    .map(|reservation| (reservation, Instant::now()))
            }
            Admission::Refused(refused) => Err(refused),
        };
        match outcome {
            Ok((reservation, now)) => {
                account.set_reservation(reservation);
                Ok(now)
            }
            Err(refused) => {
                account.refund_rate_limits();
                Err(GatewayError::ledger(
                    refused,
                    (self.gateway.options.clock)(),
                ))
            }
        }
    }
}

fn choose_model<'c>(
    catalogue: &'c Catalogue,
    fields: &RequestFields,
    account: &mut CallAccount,
) -> Result<&'c Model, GatewayError> {
    let model = catalogue.model(&fields.model);
    if let Some(call) = account.call() {
        call.streamed = fields.stream;
        call.model = model.map_or_else(
            || fields.model.chars().take(200).collect::<String>().into(),
            |model| Arc::clone(&model.id),
        );
    }
    if !may_use(&account.auth.key, &fields.model) {
        return Err(GatewayError::model_not_allowed(&fields.model));
    }
    let model = model.ok_or_else(|| GatewayError::model_not_found(&fields.model))?;
    account.set_series(&model.series);
    Ok(model)
}

/// The targets of a model that may be sent a request, in the order in which they are tried.
fn order<'m>(
    model: &'m Model,
    fields: &RequestFields,
    account: &CallAccount,
    now: Instant,
) -> Box<[(&'m Arc<Target>, bool)]> {
    let preference = account.auth.workspace.preference;
    let accepts = |target: &Target| {
        target
            .upstream
            .field_policy
            .refused(fields.guarded.as_deref())
            .is_none()
    };
    model.order(preference, now, accepts).into_boxed_slice()
}

/// Refuses what no provider of a model may be sent.
fn check_fields(model: &Model, fields: &RequestFields) -> Result<(), GatewayError> {
    let mut refused = None;
    for target in &model.targets {
        match target
            .upstream
            .field_policy
            .refused(fields.guarded.as_deref())
        {
            None => return Ok(()),
            Some(field) => refused = Some(field),
        }
    }
    refused.map_or(Ok(()), |field| Err(GatewayError::field_not_allowed(field)))
}

/// A small number as a header.
fn count(number: u32) -> HeaderValue {
    match number {
        1 => HeaderValue::from_static("1"),
        2 => HeaderValue::from_static("2"),
        more => HeaderValue::from(more),
    }
}

/// An id as a header, without an intermediate `String`.
fn hex(id: CallId) -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 24];
    for (pair, byte) in text.chunks_exact_mut(2).zip(id.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every level of a call copies the state of the levels below once: that was 18 KB per call.
    #[test]
    fn the_state_of_a_call_is_small() {
        fn of_3<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        fn of_4<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        let (whole, asking) = (of_3(Relay::handle), of_4(call_with_fallback));
        assert!(whole < 1350 && asking < 550, "{whole} and {asking} bytes");
    }
}
