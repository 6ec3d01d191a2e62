//! A gateway on a socket, and what a test needs around it.

pub(crate) mod caller;

use bytes::Bytes;
use caller::Caller;
use estrade_gateway::auth::{AuthorizedKey, AuthorizedWorkspace, RateLimits};
use estrade_gateway::fast_path::{self, CallHandler};
use estrade_gateway::usage_ledger::CallEstimate;
use estrade_gateway::{
    Admission, AdmissionError, AuthContext, AuthError, CallRequest, Gateway, GatewayBody,
    InferenceRoute, KeyAuthenticator, Options, Relay, UsageLedger, WorkspaceSelector, route,
};
use estrade_http1::Rewind;
use estrade_http1::server::Outcome;
use estrade_listener::{ConnectionHandle, ListenerOptions};
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, Price, RowState};
use estrade_model::provider::{
    FieldRules, OfferedModel, OnDisconnect, Preference, Provider, Timeouts,
};
use estrade_model::secret::Secret;
use estrade_model::{Id, Timestamp};
use futures_util::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What providers are sent as bearer.
pub(crate) const SECRET: &str = "sk-provider-secret";
/// The key that is good for everything.
pub(crate) const KEY: &str = "good";
/// The model that [`provider_at`] offers.
pub(crate) const MODEL: &str = "acme/large";

/// Lets in whom it knows.
#[derive(Default)]
pub(crate) struct StaticKeys(Mutex<HashMap<String, AuthContext>>);

impl KeyAuthenticator for StaticKeys {
    fn check(
        &self,
        token: &str,
        selector: WorkspaceSelector<'_>,
    ) -> Option<Result<AuthContext, AuthError>> {
        match (token, selector) {
            ("cold" | "down", _) => None,
            ("off", _) => Some(Err(AuthError::Forbidden("key_disabled", "switched off"))),
            ("many", WorkspaceSelector::Only) => Some(Err(AuthError::WorkspaceRequired)),
            _ => {
                let unknown = AuthError::Unauthorized("invalid_key", "no such key");
                Some(self.0.lock().unwrap().get(token).cloned().ok_or(unknown))
            }
        }
    }

    fn look_up<'a>(
        &'a self,
        token: &'a str,
        _: WorkspaceSelector<'a>,
    ) -> BoxFuture<'a, Result<AuthContext, AuthError>> {
        let known = self.0.lock().unwrap().get(KEY).cloned();
        Box::pin(async move {
            tokio::task::yield_now().await;
            match token {
                "cold" => known.ok_or(AuthError::Unavailable),
                _ => Err(AuthError::Unavailable),
            }
        })
    }
}

/// Remembers every call that was closed.
#[derive(Default)]
pub(crate) struct RecordingLedger {
    closed: Mutex<Vec<(BudgetReservation, Call)>>,
    changed: Notify,
    refuse: Mutex<Option<AdmissionError>>,
    estimates: Mutex<Vec<CallEstimate>>,
    /// Whether calls go out without being on record.
    pub(crate) relaxed: AtomicBool,
    /// In strict mode: whether calls are not durable in time.
    pub(crate) full: AtomicBool,
    /// Whether calls are paid from a budget.
    pub(crate) budgets: AtomicBool,
    /// How often one that is not did.
    pub(crate) gone_out: AtomicUsize,
    /// In strict mode: lets calls be durable.
    pub(crate) durable: Mutex<Option<Arc<Notify>>>,
}

/// The reservation of every call that was let in.
pub(crate) const RESERVATION: BudgetReservation = BudgetReservation {
    row_state: RowState::Open,
    ..BudgetReservation::NONE
};

impl UsageLedger for RecordingLedger {
    fn admit(&self, _: &AuthContext, estimate: &CallEstimate) -> Admission {
        self.estimates.lock().unwrap().push(estimate.clone());
        match self.refuse.lock().unwrap().clone() {
            Some(refused) => Admission::Wait(Box::pin(async { Err(refused) })),
            None if self.relaxed.load(Ordering::Relaxed) => {
                Admission::Ready(BudgetReservation::NONE)
            }
            None if self.budgets.load(Ordering::Relaxed) => Admission::Ready(BudgetReservation {
                key_slice: Some(Id::from_bytes([7; 12])),
                reserved: estimate.max_cost,
                ..RESERVATION
            }),
            None => Admission::Ready(RESERVATION),
        }
    }

    fn call_sent(&self) {
        self.gone_out.fetch_add(1, Ordering::Relaxed);
    }

    fn close(
        &self,
        reservation: BudgetReservation,
        call: Call,
    ) -> Option<BoxFuture<'static, bool>> {
        self.closed.lock().unwrap().push((reservation, call));
        self.changed.notify_waiters();
        let durable = self.durable.lock().unwrap().clone()?;
        let on_disk = !self.full.load(Ordering::Relaxed);
        Some(Box::pin(async move {
            durable.notified().await;
            on_disk
        }))
    }
}

impl RecordingLedger {
    pub(crate) fn refuse(&self, refused: AdmissionError) {
        *self.refuse.lock().unwrap() = Some(refused);
    }

    pub(crate) fn max_cost(&self) -> Amount {
        self.estimates.lock().unwrap().last().unwrap().max_cost
    }

    pub(crate) fn rows(&self) -> Vec<(BudgetReservation, Call)> {
        self.closed.lock().unwrap().clone()
    }

    /// Waits until so many calls are closed; there must not be more.
    pub(crate) async fn wait(&self, count: usize) -> Vec<(BudgetReservation, Call)> {
        let enough = async {
            loop {
                let changed = self.changed.notified();
                if self.rows().len() >= count {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, enough).await;
        let rows = self.rows();
        assert_eq!(rows.len(), count, "{rows:?}");
        rows
    }

    pub(crate) async fn only(&self) -> Call {
        self.wait(1).await.remove(0).1
    }
}

/// Longer than any machine stands still: for waits that end by themselves when all is well.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The same provider, given up soon: for those that say nothing.
pub(crate) fn with_short_timeouts(mut provider: Provider) -> Provider {
    let soon = Duration::from_millis(400);
    provider.timeouts.first_byte = soon;
    provider.timeouts.idle = soon;
    provider
}

/// A gateway that listens.
pub(crate) struct TestGateway {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) relay: Relay,
    pub(crate) ledger: Arc<RecordingLedger>,
    pub(crate) keys: Arc<StaticKeys>,
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl TestGateway {
    pub(crate) async fn new(providers: &[Provider]) -> Self {
        Self::with(providers, |_| {}).await
    }

    pub(crate) async fn with(providers: &[Provider], set: impl FnOnce(&mut Options)) -> Self {
        let (keys, ledger) = (
            Arc::new(StaticKeys::default()),
            Arc::new(RecordingLedger::default()),
        );
        let mut options = Options::new(Arc::new(|| Timestamp::from_millis(1_800_000_000_000)));
        options.body_idle_timeout = TIMEOUT;
        set(&mut options);
        let gateway = Gateway::new(Arc::clone(&keys) as _, Arc::clone(&ledger) as _, options);
        gateway.set_providers(providers, true).unwrap();
        let relay = gateway.relay();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(socket, relay.clone()));
        let this = Self {
            gateway,
            relay,
            ledger,
            keys,
            address,
            _tasks: tasks,
        };
        this.add_key(KEY, |_, _| {});
        this
    }

    /// Lets a key in, with the given properties.
    pub(crate) fn add_key(
        &self,
        token: &str,
        set: impl FnOnce(&mut AuthorizedKey, &mut AuthorizedWorkspace),
    ) {
        let mut key = AuthorizedKey {
            id: Id::generate(1, fastrand::u64(..)),
            // The same for all, unless a test says otherwise.
            owner: "0123456789abcdef01234567".parse().unwrap(),
            models: None,
            cache: false,
            rates: RateLimits::default(),
            budget: None,
        };
        let mut workspace = AuthorizedWorkspace {
            id: Id::generate(1, fastrand::u64(..)),
            preference: Preference::Order,
            rates: RateLimits::default(),
            budget: None,
        };
        set(&mut key, &mut workspace);
        let auth = AuthContext {
            key,
            workspace: Arc::new(workspace),
        };
        self.keys.0.lock().unwrap().insert(token.to_owned(), auth);
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.address, KEY)
    }

    pub(crate) fn caller_with(&self, key: &str) -> Caller {
        Caller::new(self.address, key)
    }
}

/// Answers calls as the product does, without what it adds.
struct Plain(Relay);

impl CallHandler for Plain {
    async fn handle(
        &self,
        route: InferenceRoute<'_>,
        request: Box<CallRequest>,
    ) -> http::Response<GatewayBody> {
        self.0.handle(route, request).await
    }

    fn now(&self) -> Timestamp {
        self.0.gateway().now()
    }

    fn half_close_timeout(&self) -> Duration {
        self.0.gateway().detached_timeout()
    }
}

async fn serve(socket: TcpListener, relay: Relay) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = socket.accept().await {
        let relay = relay.clone();
        stream.set_nodelay(true).unwrap();
        connections.spawn(async move {
            let (options, stop) = (ListenerOptions::default(), CancellationToken::new());
            let mut read = Vec::new();
            if crate::FAST_PATH {
                let plain = Plain(relay.clone());
                let connection = Arc::new(ConnectionHandle::uncounted(&stop));
                match fast_path::serve(&plain, stream, &options, &connection).await {
                    Outcome::Fallback(back, input) => (stream, read) = (back, input.into_bytes()),
                    Outcome::Closed(_) => return,
                }
            }
            let stream = Rewind::new(read, stream);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let relay = relay.clone();
                async move { Ok::<_, Infallible>(response(&relay, request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn response(
    relay: &Relay,
    request: http::Request<hyper::body::Incoming>,
) -> http::Response<GatewayBody> {
    let uri = request.uri().clone();
    match route::parse(request.method(), uri.path()) {
        Some(route) => relay.handle(route, Box::new(request.into())).await,
        None => panic!("not a path of the gateway: {uri}"),
    }
}

/// A provider of [`MODEL`] at this address; a slow machine does not make it time out.
pub(crate) fn provider_at(name: &str, address: SocketAddr) -> Provider {
    Provider {
        name: name.to_owned(),
        base_url: format!("http://{address}/v1"),
        api_key: Some(Secret(SECRET.to_owned())),
        ca_file: None,
        timeouts: Timeouts {
            connect: TIMEOUT,
            first_byte: TIMEOUT,
            idle: TIMEOUT,
        },
        retries: 1,
        stream_usage: true,
        on_disconnect: OnDisconnect::default(),
        fields: FieldRules::default(),
        models: vec![OfferedModel {
            id: MODEL.to_owned(),
            upstream: Some("large-v1".to_owned()),
            price: Price {
                prompt: "1".parse().unwrap(),
                completion: "2".parse().unwrap(),
            },
            context_length: NonZeroU32::new(1000),
            weight: None,
        }],
    }
}

/// A chat request.
pub(crate) fn chat(more: &str) -> String {
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"hi"}}]{more}}}"#)
}

/// A chat response with so many tokens, in which the model is called as callers call it.
pub(crate) fn chat_response(prompt: u64, completion: u64) -> String {
    format!(
        r#"{{"id":"c1","object":"chat.completion","model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"Hello there"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
        prompt + completion
    )
}

/// Checks a body for the shape of an error, and gives its code.
pub(crate) fn error_code(body: &Bytes) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    let error = &value["error"];
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{value}"
    );
    assert!(
        error["type"].is_string() && error.get("param").is_some(),
        "{value}"
    );
    error["code"].as_str().unwrap().to_owned()
}

/// Waits until something is so; fails when it never is.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    estrade_fixtures::eventually(what, || std::future::ready(so())).await;
}
