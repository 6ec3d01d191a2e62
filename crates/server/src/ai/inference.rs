//! Inference: the gateway on the AI listener, and its connection to the services.
//!
//! A serving thread looks at the path: inference goes to its relay, everything else to the router.

use super::authorize;
use super::cors::Cors;
use super::traces::{self, Exporter, TraceOptions};
use crate::api_error::ApiError;
use crate::context::request_id;
use crate::error::KeysError;
use crate::metrics::{RequestSeries, Route};
use crate::middleware::{self, Middleware};
use crate::on_runtime::OnRuntime;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use estrade_gateway::fast_path::{self, CallHandler};
use estrade_gateway::usage_ledger::CallEstimate;
use estrade_gateway::{
    Admission, AuthContext, AuthError, CallRequest, Endpoint, Gateway, GatewayBody, InferenceRoute,
    KeyAuthenticator, Options, Relay, SharedRates, SharedRatesUnavailable, Tracing, UsageLedger,
    WorkspaceSelector, route,
};
use estrade_http1::server::Outcome;
use estrade_listener::peer::{PeerAddr, SocketPeer};
use estrade_listener::{
    ConnectionHandle, FastPath, ListenerOptions, Port, UpstreamBudget, WorkerContext,
};
use estrade_model::Timestamp;
use estrade_model::call::{BudgetReservation, Call, Operation};
use estrade_model::error::error_chain;
use estrade_model::ip_range::IpRange;
use estrade_model::provider::Provider;
use estrade_model::rate::{RateReply, RateReport};
use estrade_service::ai::key_check::KeyCheck;
use estrade_service::ai::usage::Ledger;
use estrade_service::nodes::Membership;
use estrade_service::{Core, Error};
use estrade_store::{Db, rate_buckets};
use futures_util::future::{self, BoxFuture, Ready, ready};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::Service;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Configuration of inference.
#[derive(Debug, Clone, Default)]
pub struct InferenceOptions {
    /// Providers of the configuration; those of the database come after them.
    pub providers: Vec<Provider>,
    /// Whether the built-in test model exists.
    pub echo: bool,
    /// Most bytes of a request's body; none: the gateway's own choice.
    pub max_body: Option<u64>,
    /// Where traces of calls go.
    pub traces: Option<TraceOptions>,
    /// The origins whose scripts may call models from a browser.
    pub cors: Cors,
}

/// The gateway over these services, and what sends its traces.
pub(crate) fn open(
    core: &Arc<Core>,
    keys: &Arc<KeyCheck>,
    ledger: &Arc<Ledger>,
    options: &InferenceOptions,
    upstreams: UpstreamBudget,
    nodes: &Arc<Membership>,
) -> io::Result<(Arc<Gateway>, Option<Exporter>)> {
    let runtime = Handle::current();
    let authenticator = ServiceAuthenticator {
        keys: Arc::clone(keys),
        runtime: runtime.clone(),
    };
    let ledger = ServiceLedger {
        ledger: Arc::clone(ledger),
        runtime,
    };
    let clock = Arc::clone(core);
    let mut gateway = Options::new(Arc::new(move || clock.now()));
    gateway.max_body = options.max_body.unwrap_or(gateway.max_body);
    gateway.upstreams = upstreams;
    if !core.db.is_sqlite() {
        gateway.shared_rates = Some(Arc::new(ServiceRates {
            db: core.db.clone(),
            nodes: Arc::clone(nodes),
        }));
    }
    let exporter = match &options.traces {
        None => None,
        Some(options) => {
            let (queue, exporter) = traces::open(options.clone())?;
            gateway.tracing = Some(Tracing {
                sink: Arc::new(queue),
                percent: options.percent,
            });
            Some(exporter)
        }
    };
    let gateway = Gateway::new(Arc::new(authenticator), Arc::new(ledger), gateway);
    Ok((gateway, exporter))
}

/// Shares the rate limits of keys and workspaces with the other nodes until `stop`.
pub(crate) async fn share_rates(gateway: Arc<Gateway>, stop: CancellationToken) {
    tokio::select! {
        () = gateway.share_rates() => {}
        () = stop.cancelled() => {}
    }
    gateway.stop_sharing_rates().await;
}

/// Opens the in-flight journal: a server that is killed loses little of the calls that the gateway has in flight.
pub(crate) async fn open_journal(
    ledger: &Ledger,
    gateway: &Arc<Gateway>,
    directory: &Path,
) -> io::Result<()> {
    // The gateway has the ledger already: not the other way round as well.
    let gateway = Arc::downgrade(gateway);
    let in_flight = move || {
        let gateway = gateway.upgrade();
        gateway.map_or_else(Default::default, |gateway| gateway.in_flight())
    };
    ledger.open_journal(directory, in_flight).await
}

/// Serves the AI listener until `stop` is cancelled and what is in flight has ended. Instances, which have
/// addresses out of `instances`, may call models and do nothing else.
pub(crate) async fn serve(
    port: Port,
    middleware: Middleware<KeysError>,
    gateway: Arc<Gateway>,
    instances: IpRange,
    cors: Cors,
    stop: CancellationToken,
) {
    let runtime = Handle::current();
    let worker = move |context: WorkerContext| {
        let relay = gateway.relay();
        let worker = Arc::new(Worker {
            middleware: middleware.clone(),
            relay: relay.clone(),
            runtime: runtime.clone(),
            instances,
            cors: cors.clone(),
            chats: middleware
                .metrics()
                .series(&Method::POST, CHAT, StatusCode::OK),
        });
        async move {
            tokio::select! {
                () = context.serve_fast_path(AiService(worker)) => {}
                () = relay.maintain() => {}
            }
            relay.shutdown().await;
        }
    };
    port.serve("ai", worker, stop).await;
}

/// The state of one serving thread.
struct Worker {
    middleware: Middleware<KeysError>,
    relay: Relay,
    runtime: Handle,
    /// The addresses of instances.
    instances: IpRange,
    cors: Cors,
    /// Where the ordinary request is counted: looking that up every time takes longer than counting.
    chats: RequestSeries,
}

/// The service of one serving thread.
#[derive(Clone)]
struct AiService(Arc<Worker>);

impl FastPath for AiService {
    async fn serve_fast_path(
        &self,
        stream: TcpStream,
        _: IpAddr,
        options: &ListenerOptions,
        connection: &Arc<ConnectionHandle>,
    ) -> Outcome {
        fast_path::serve(&*self.0, stream, options, connection).await
    }
}

/// How every ordinary call is made.
static POST: Method = Method::POST;

impl CallHandler for Worker {
    fn handle(
        &self,
        route: InferenceRoute<'_>,
        request: Box<CallRequest>,
    ) -> impl Future<Output = Response<GatewayBody>> + Send {
        self.infer(&POST, route, request)
    }

    fn now(&self) -> Timestamp {
        self.relay.gateway().now()
    }

    fn half_close_timeout(&self) -> Duration {
        self.relay.gateway().detached_timeout()
    }
}

type AiBody = Either<GatewayBody, OnRuntime<Body>>;

/// A response that is ready, or a future of one.
type ResponseFuture<T> = future::Either<Ready<T>, BoxFuture<'static, T>>;

impl Service<Request<Incoming>> for AiService {
    type Response = Response<AiBody>;
    type Error = Infallible;
    type Future = ResponseFuture<Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(response) = self.0.serve_fast_path(&mut request) {
            return ResponseFuture::Left(ready(Ok(response)));
        }
        let worker = Arc::clone(&self.0);
        ResponseFuture::Right(Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let Some(route) = route::parse(&method, uri.path()) else {
                let is_models = is_models(uri.path());
                let reads = matches!(method, Method::GET | Method::HEAD);
                if is_models && let Some(response) = worker.preflight(&request, READS) {
                    return Ok(response.map(Either::Left));
                }
                if worker.is_instance(&request) && !(is_models && reads) {
                    return Ok(worker.refuse(&request).map(Either::Right));
                }
                let origin = worker.cors.allowed(request.headers());
                let mut response = Box::pin(worker.manage(request)).await;
                if is_models {
                    worker.cors.finish(response.headers_mut(), origin);
                }
                return Ok(response.map(Either::Right));
            };
            if let Endpoint::WrongMethod(methods) = route.endpoint
                && let Some(response) = worker.preflight(&request, methods)
            {
                return Ok(response.map(Either::Left));
            }
            // Boxed: every step below moves it, which is cheap only for something small.
            let request = Box::new(CallRequest::from(request));
            Ok(worker
                .infer(&method, route, request)
                .await
                .map(Either::Left))
        }))
    }
}

impl Worker {
    async fn infer(
        &self,
        method: &Method,
        route: InferenceRoute<'_>,
        request: Box<CallRequest>,
    ) -> Response<GatewayBody> {
        let id = request_id(&request.headers);
        let origin = self.cors.allowed(&request.headers);
        let timer = self.middleware.metrics().start(method);
        let mut response = self.relay.handle(route, request).await;
        middleware::finish(response.headers_mut(), id);
        self.cors.finish(response.headers_mut(), origin);
        match (route.endpoint, response.status()) {
            (Endpoint::Call(Operation::Chat), StatusCode::OK) => timer.finish_as(&self.chats),
            (endpoint, status) => timer.finish(Route::Named(label(endpoint)), status),
        }
        response
    }

    /// Responds to a CORS preflight.
    fn preflight(
        &self,
        request: &Request<Incoming>,
        methods: &'static str,
    ) -> Option<Response<GatewayBody>> {
        let (method, headers) = (request.method(), request.headers());
        let mut response = self.cors.preflight(method, headers, methods)?;
        let timer = self.middleware.metrics().start(method);
        middleware::finish(response.headers_mut(), request_id(headers));
        timer.finish(Route::Named("preflight"), response.status());
        Some(response)
    }

    /// Responds to an authorize subrequest from the cache: proxies send one before each of their requests, so
    /// it avoids allocations.
    fn serve_fast_path(&self, request: &mut Request<Incoming>) -> Option<Response<AiBody>> {
        if !request.uri().path().starts_with(authorize::PATH) || self.is_instance(request) {
            return None;
        }
        let response = self.middleware.serve_fast_path(request)?;
        Some(response.map(|body| Either::Right(OnRuntime::new(self.runtime.clone(), body))))
    }

    /// Whether the client is an instance, directly or through a trusted proxy.
    fn is_instance(&self, request: &Request<Incoming>) -> bool {
        let extensions = request.extensions();
        let socket = extensions.get().map(|SocketPeer(address)| *address);
        let client = extensions.get().map(|PeerAddr(address)| *address);
        [socket, client]
            .into_iter()
            .flatten()
            .any(|address| self.instances.contains(address))
    }

    fn refuse(&self, request: &Request<Incoming>) -> Response<OnRuntime<Body>> {
        let timer = self.middleware.metrics().start(request.method());
        let refusal = "instances may only call models here; use another machine to manage things";
        let mut response = KeysError::from(Error::Forbidden(refusal.into())).into_response();
        middleware::finish(response.headers_mut(), request_id(request.headers()));
        timer.finish(Route::None, response.status());
        response.map(|body| OnRuntime::new(self.runtime.clone(), body))
    }

    /// Runs a management request on the main runtime: a handler may block its thread, above all with a long read of
    /// SQLite, and must not delay the streams of models on this thread. It is dropped when the client disconnects.
    async fn manage(&self, request: Request<Incoming>) -> Response<OnRuntime<Body>> {
        let middleware = self.middleware.clone();
        let work = async move { middleware.serve_routed(request).await };
        let work = AbortOnDropHandle::new(self.runtime.spawn(work));
        let response = work.await.unwrap_or_else(|error| {
            tracing::error!(error = error_chain(&error), "a handler was lost");
            KeysError::from(ApiError::Panic).into_response()
        });
        response.map(|body| OnRuntime::new(self.runtime.clone(), body))
    }
}

/// How models are read.
const READS: &str = "GET, HEAD";

/// Models without a workspace are not among the gateway's routes.
fn is_models(path: &str) -> bool {
    path.strip_prefix("/v1/models")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What metrics call the route that most requests take.
const CHAT: &str = "/api/{workspace}/v1/chat/completions";

/// What metrics call it.
fn label(endpoint: Endpoint<'_>) -> &'static str {
    match endpoint {
        Endpoint::Call(Operation::Chat) => CHAT,
        Endpoint::Call(Operation::Embeddings) => "/api/{workspace}/v1/embeddings",
        Endpoint::Call(Operation::Images) => "/api/{workspace}/v1/images/generations",
        Endpoint::Models => "/api/{workspace}/v1/models",
        Endpoint::Model(_) => "/api/{workspace}/v1/models/{id}",
        Endpoint::WrongMethod(_) | Endpoint::Unknown => "none",
    }
}

/// Authenticates keys with the services.
struct ServiceAuthenticator {
    keys: Arc<KeyCheck>,
    runtime: Handle,
}

impl KeyAuthenticator for ServiceAuthenticator {
    fn check(
        &self,
        token: &str,
        selector: WorkspaceSelector<'_>,
    ) -> Option<Result<AuthContext, AuthError>> {
        self.keys.authorize_cached(token, selector)
    }

    fn look_up<'a>(
        &'a self,
        token: &'a str,
        selector: WorkspaceSelector<'a>,
    ) -> BoxFuture<'a, Result<AuthContext, AuthError>> {
        let looked_up = Box::pin(self.keys.authorize(token, selector));
        Box::pin(OnRuntime::new(self.runtime.clone(), looked_up))
    }
}

/// The rate limits that all nodes share.
struct ServiceRates {
    db: Db,
    nodes: Arc<Membership>,
}

impl SharedRates for ServiceRates {
    fn is_alone(&self) -> bool {
        self.nodes.is_alone()
    }

    fn nodes(&self) -> usize {
        self.nodes.alive()
    }

    fn exchange<'a>(
        &'a self,
        reports: &'a [RateReport],
    ) -> BoxFuture<'a, Result<Vec<RateReply>, SharedRatesUnavailable>> {
        Box::pin(async {
            let replies = rate_buckets::exchange(&self.db, reports).await;
            replies.map_err(|error| {
                tracing::debug!(error = error_chain(&error), "cannot share rate limits");
                SharedRatesUnavailable
            })
        })
    }
}

/// Records calls in the services' ledger.
struct ServiceLedger {
    ledger: Arc<Ledger>,
    runtime: Handle,
}

impl UsageLedger for ServiceLedger {
    fn admit(&self, auth: &AuthContext, estimate: &CallEstimate) -> Admission {
        match self.ledger.admit(auth, estimate) {
            Admission::Wait(waiting) => {
                Admission::Wait(Box::pin(OnRuntime::new(self.runtime.clone(), waiting)))
            }
            at_once => at_once,
        }
    }

    fn call_sent(&self) {
        self.ledger.notify_in_flight();
    }

    fn close(
        &self,
        reservation: BudgetReservation,
        call: Call,
    ) -> Option<BoxFuture<'static, bool>> {
        self.ledger.close(reservation, call)
    }
}
