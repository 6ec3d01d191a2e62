//! The whole server: its listeners, and the tasks that work behind them.

use crate::ai;
use crate::ai::authorize::WarmAuthorize;
use crate::ai::inference::{self, InferenceOptions};
use crate::ai::traces::Exporter;
use crate::app::{App, AppState, ListenerAddress, MetricsAccess};
use crate::body::BodyRules;
use crate::body_reader::BodyLimits;
use crate::descriptors::share_descriptors;
use crate::docs;
use crate::edge::OpenEdge;
use crate::error::{ErrorShape, KeysError, PlatformError};
use crate::health;
use crate::idempotency;
use crate::listen_error::listen_error;
use crate::metrics::Metrics;
use crate::middleware::{FastPath, HANDLER_TIMEOUT, Middleware, finish_router};
use crate::platform;
use crate::provider_sync::ProviderSync;
use crate::rate::RateLimits;
use crate::spool::SpoolRoom;
use crate::stream_limit::StreamLimit;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Extension, Router};
use estrade_edge::metrics::EdgeMetrics;
use estrade_listener::{Listener, ListenerOptions, Port, worker_count};
use estrade_model::error::error_chain;
use estrade_model::node::NodeAddresses;
use estrade_service::platform::containers::Reconciler;
use estrade_service::platform::releases::{self, Worker};
use estrade_service::{Core, Services, gc, platform::domains, storage_probe, write_probe};
use estrade_store::changes;
use futures_util::future::BoxFuture;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa::openapi::OpenApi;

pub use crate::edge::EdgeBind;

/// Release bodies that are received at once; each may take its cap on disk.
const MAX_SPOOLED: usize = 32;

pub struct Bind {
    /// Where it listens.
    pub address: SocketAddr,
    /// How it treats its connections.
    pub options: ListenerOptions,
    /// Access to its metrics.
    pub metrics: MetricsAccess,
}

/// How the server shall serve.
pub struct ServeOptions {
    /// The platform API.
    pub platform: Bind,
    /// The AI API.
    pub ai: Bind,
    /// What was deployed.
    pub edge: EdgeBind,
    /// Requests per second and credential; 0 is without limit.
    pub requests_per_second: u32,
    /// How many of them may come at once.
    pub burst: u32,
    /// Requests per second of all credentials of an account; 0, here or above, is without limit.
    pub account_requests_per_second: u32,
    /// How many of them may come at once.
    pub account_burst: u32,
    /// Most bytes of an ordinary body.
    pub body_bytes: u64,
    pub inference: InferenceOptions,
    /// Where large bodies wait until they are read.
    pub temporary: PathBuf,
    /// Where it is kept which calls are under way.
    pub calls: PathBuf,
    /// Makes the routes of the account panel, which the platform listener serves besides.
    pub panel: Option<fn(&AppState) -> Router<AppState>>,
}

impl ServeOptions {
    fn account_rates(&self) -> RateLimits {
        match self.requests_per_second {
            0 => RateLimits::new(0, 0),
            _ => RateLimits::new(self.account_requests_per_second, self.account_burst),
        }
    }

    fn body_rules(&self) -> BodyRules {
        BodyRules {
            limits: BodyLimits {
                max_bytes: self.body_bytes,
                ..BodyLimits::default()
            },
            ..BodyRules::default()
        }
    }
}

/// A server whose listeners are bound.
pub struct Server {
    app: AppState,
    platform: SocketAddr,
    ai: SocketAddr,
    edge: SocketAddr,
    edge_tls: Option<SocketAddr>,
    /// Ends when the shutdown token is cancelled and what is in flight is done.
    listeners: JoinSet<()>,
    /// Ends after the listeners, so that what they still do is carried out.
    workers: JoinSet<()>,
    stop_workers: CancellationToken,
}

impl Server {
    /// Binds the listeners and starts to serve.
    ///
    /// Boxed, like [`Self::run`], so that the server is compiled here, once, and not again in every
    /// program that starts one.
    pub fn start(
        core: Arc<Core>,
        options: ServeOptions,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, io::Result<Self>> {
        Box::pin(Self::bind_and_serve(core, options, shutdown))
    }

    async fn bind_and_serve(
        core: Arc<Core>,
        options: ServeOptions,
        shutdown: CancellationToken,
    ) -> io::Result<Self> {
        let (account_rates, rules) = (options.account_rates(), options.body_rules());
        let ServeOptions {
            mut platform,
            mut ai,
            mut edge,
            ..
        } = options;
        let upstreams = share_descriptors(&mut platform.options, &mut ai.options, &mut edge);
        // What runs here may visit sites and call models, but not manage things.
        let instances = core.runtime.address_range();
        platform.options.refuse_peers.push(instances);
        gc::startup::sweep_temporary(&core, &options.temporary)?;
        let platform_socket = Listener::bind(platform.address, platform.options)
            .await
            .map_err(listen_error("platform", platform.address))?;
        let ai_tls = ai.options.tls.is_some();
        let ai_port = Port::bind(ai.address, ai.options, worker_count())
            .await
            .map_err(listen_error("ai", ai.address))?;
        let (platform_addr, ai_addr) = (platform_socket.local_addr(), ai_port.local_addr());
        let ai_listener = ListenerAddress::new(ai_addr, ai_tls);
        let edge = OpenEdge::open(Arc::clone(&core), edge).await?;

        let services = Services::new(&core).map_err(io::Error::other)?;
        services.publisher.set(edge.edge.publisher());
        let (gateway, exporter) = inference::open(
            &core,
            &services.keys,
            &services.ledger,
            &options.inference,
            upstreams,
            &services.nodes,
        )?;
        inference::open_journal(&services.ledger, &gateway, &options.calls).await?;
        let origins = options.inference.cors.clone();
        let InferenceOptions {
            providers, echo, ..
        } = options.inference;
        let providers = ProviderSync::new(&core, &gateway, providers, echo);
        providers
            .set()
            .await
            .map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
        // Before the first request: what is divided by the number of nodes must know of the others.
        let addresses = node_addresses([platform_addr, ai_addr, edge.address]);
        services.nodes.join(addresses).await;
        let app = Arc::new(App {
            ledger: Arc::clone(&services.ledger),
            services,
            relay: gateway.relay(),
            gateway,
            providers,
            shells: Arc::default(),
            streams: StreamLimit::default(),
            rates: RateLimits::new(options.requests_per_second, options.burst),
            account_rates,
            ai_listener,
            spool: SpoolRoom::new(options.temporary, MAX_SPOOLED),
            metrics: Arc::new(Metrics::new()),
            ai_metrics: Arc::new(Metrics::of_requests()),
            tasks: TaskTracker::new(),
            shutdown: shutdown.clone(),
            ready: AtomicBool::new(false),
            core,
        });
        let mut api = Api::platform(&app, platform.metrics);
        api.pages = options.panel.map(|routes| routes(&app));
        let platform_middleware = build_middleware::<PlatformError>(&app, api, rules, None);
        let api = Api::ai(&app, ai.metrics);
        let warm: Box<dyn FastPath> = Box::new(WarmAuthorize(Arc::clone(&app)));
        let ai_middleware = build_middleware::<KeysError>(&app, api, rules, Some(warm));

        let mut listeners = JoinSet::new();
        listeners
            .spawn(platform_socket.serve(platform_middleware.into_service(), shutdown.clone()));
        listeners.spawn(inference::serve(
            ai_port,
            ai_middleware,
            Arc::clone(&app.gateway),
            instances,
            origins,
            shutdown.clone(),
        ));
        listeners.spawn(ai::person::maintain(app.relay.clone(), shutdown.clone()));
        let stop_workers = CancellationToken::new();
        let mut workers = start_workers(&app, exporter, &stop_workers);
        register_metrics(&app, EdgeMetrics::new(&edge.edge));
        let (edge_addr, edge_tls_addr) = (edge.address, edge.tls_address);
        edge.start(&mut listeners, &shutdown, &mut workers, &stop_workers);
        app.set_ready();
        Ok(Self {
            app,
            platform: platform_addr,
            ai: ai_addr,
            edge: edge_addr,
            edge_tls: edge_tls_addr,
            listeners,
            workers,
            stop_workers,
        })
    }

    /// Where the platform API listens.
    pub fn platform_addr(&self) -> SocketAddr {
        self.platform
    }

    /// Where the AI API listens.
    pub fn ai_addr(&self) -> SocketAddr {
        self.ai
    }

    /// Where the edge listens.
    pub fn edge_addr(&self) -> SocketAddr {
        self.edge
    }

    /// Where the edge listens with TLS, besides.
    pub fn edge_tls_addr(&self) -> Option<SocketAddr> {
        self.edge_tls
    }

    /// The state of both APIs.
    pub fn app(&self) -> &AppState {
        &self.app
    }

    /// Serves until the shutdown token is cancelled and everything has ended.
    pub fn run(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while self.listeners.join_next().await.is_some() {}
            self.app.tasks.close();
            self.app.tasks.wait().await;
            self.stop_workers.cancel();
            while self.workers.join_next().await.is_some() {}
            // Hangs up what shells have left.
            self.app.core.runtime.shutdown().await;
            if let Err(error) = self.app.core.db.close() {
                tracing::warn!(
                    error = error_chain(&error),
                    "the database did not close cleanly"
                );
            }
        })
    }
}

/// Adds what is counted elsewhere to what Prometheus reads.
fn register_metrics(app: &AppState, edge: EdgeMetrics) {
    let gateway = ai::GatewayMetrics(Arc::clone(&app.gateway));
    let ledger = ai::LedgerMetrics(Arc::clone(&app.ledger));
    let database = health::DatabaseMetrics(Arc::clone(&app.services.integrity));
    let cache = health::BlobCacheMetrics(app.core.blobs.clone());
    let nodes = health::NodeMetrics(Arc::clone(&app.services.nodes));
    app.metrics.register(|registry| {
        registry.register_collector(Box::new(database));
        registry.register_collector(Box::new(cache));
        registry.register_collector(Box::new(nodes));
        registry.register_collector(Box::new(edge));
    });
    app.ai_metrics.register(|registry| {
        registry.register_collector(Box::new(gateway));
        registry.register_collector(Box::new(ledger));
    });
}

fn node_addresses([platform, ai, edge]: [SocketAddr; 3]) -> NodeAddresses {
    NodeAddresses {
        platform: platform.to_string(),
        ai: ai.to_string(),
        edge: edge.to_string(),
    }
}

fn start_workers(
    app: &AppState,
    exporter: Option<Exporter>,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let services = &app.services;
    let mut workers = JoinSet::new();
    if let Some(exporter) = exporter {
        workers.spawn(exporter.run(stop.clone()));
    }
    workers.spawn(Arc::clone(&app.providers).follow(stop.clone()));
    let gateway = Arc::clone(&app.gateway);
    workers.spawn(inference::share_rates(gateway, stop.clone()));
    workers.spawn(changes::follow(app.core.db.clone(), stop.clone()));
    let eager_compressor = &services.eager_compressor;
    workers.spawn(Worker::run(
        Arc::clone(&services.fleet),
        eager_compressor.clone(),
        Arc::clone(&services.nodes),
        stop.clone(),
    ));
    workers.spawn(Reconciler::run(Arc::clone(&services.fleet), stop.clone()));
    workers.spawn(gc::blobs::run(Arc::clone(&app.core), stop.clone()));
    workers.spawn(releases::run_brotli(
        Arc::clone(&app.core),
        eager_compressor.clone(),
        stop.clone(),
    ));
    workers.spawn(Arc::clone(&services.nodes).run(stop.clone()));
    workers.spawn(Arc::clone(&services.integrity).run(stop.clone()));
    let probe = Arc::clone(&services.write_probe);
    workers.spawn(write_probe::run(probe, stop.clone()));
    let probe = Arc::clone(&services.storage_probe);
    workers.spawn(storage_probe::run(probe, stop.clone()));
    workers.spawn(domains::run(Arc::clone(&app.core), stop.clone()));
    workers.spawn(Arc::clone(&app.ledger).run(stop.clone()));
    workers.spawn(Arc::clone(&services.log_collector).run(stop.clone()));
    workers.spawn(Arc::clone(&services.meter).run(stop.clone()));
    workers.spawn(Arc::clone(&services.traffic).run(stop.clone()));
    workers.spawn(gc::rows::run(
        Arc::clone(&app.core),
        Arc::clone(&services.tokens),
        Arc::clone(&services.sessions),
        Arc::clone(&services.keys),
        Arc::clone(&services.logins),
        Arc::clone(&services.idempotency),
        stop.clone(),
    ));
    workers
}

/// One API on its way to a listener.
struct Api {
    name: &'static str,
    routes: Router<AppState>,
    document: fn() -> OpenApi,
    metrics: MetricsAccess,
    /// What its `/metrics` shows.
    numbers: Arc<Metrics>,
    /// Pages for people, which repeat nothing by an idempotency key.
    pages: Option<Router<AppState>>,
}

impl Api {
    fn platform(app: &AppState, metrics: MetricsAccess) -> Self {
        Self {
            name: "platform",
            routes: platform::routes(),
            document: platform::document,
            metrics,
            numbers: Arc::clone(&app.metrics),
            pages: None,
        }
    }

    fn ai(app: &AppState, metrics: MetricsAccess) -> Self {
        Self {
            name: "ai",
            routes: ai::routes(),
            document: ai::document,
            metrics,
            numbers: Arc::clone(&app.ai_metrics),
            pages: None,
        }
    }
}

/// Completes the routes of an API: documents, metrics, idempotency, limits, and the middleware.
fn build_middleware<E: ErrorShape>(
    app: &AppState,
    api: Api,
    rules: BodyRules,
    fast: Option<Box<dyn FastPath>>,
) -> Middleware<E> {
    let listener = api.numbers.listener(api.name);
    let read_metrics = {
        let (app, numbers) = (Arc::clone(app), api.numbers);
        move |request: Request| {
            health::metrics::<E>(Arc::clone(&app), Arc::clone(&numbers), api.metrics, request)
        }
    };
    let replay = from_fn_with_state(Arc::clone(app), idempotency::replay::<E>);
    let routes = api
        .routes
        .route_layer(replay)
        .route("/metrics", get(read_metrics))
        .layer(Extension(rules))
        .merge(docs::docs_router::<E, AppState>(api.document))
        .merge(api.pages.unwrap_or_default())
        .with_state(Arc::clone(app));
    Middleware::with(
        finish_router::<E, ()>(routes),
        listener,
        HANDLER_TIMEOUT,
        fast,
    )
}
