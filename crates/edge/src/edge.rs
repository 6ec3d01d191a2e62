//! The edge as a whole: from a request to its response.

use crate::access_log::AccessLog;
use crate::proxy::{ProxyOptions, ProxyTarget};
use crate::routing::route::{Live, Route, State};
use crate::routing::route_table::Routes;
use crate::static_files::content_cache::{Content, ContentCache, ContentCacheLimits};
use crate::static_files::content_error::ContentError;
use crate::static_files::error_pages::Page;
use crate::static_files::handler::{FullFile, ServeError, StaticHandler};
use crate::static_files::live_site::LiveSite;
use crate::static_files::media_type::media_type;
use crate::static_files::request::{Method, StaticRequest};
use crate::static_files::response::{Body, Cacheable, StaticResponse};
use crate::static_files::response_cache::{CacheKey, CachedFile, ResponseCache};
use crate::static_files::site_cache::{self, SiteCache};
use crate::tls::host_certificates::HostCertificates;
use crate::tls::{acme_challenge, https_redirect};
use arc_swap::Guard;
use estrade_blobs::BlobError;
use estrade_listener::UpstreamBudget;
use estrade_model::error::error_chain;
use estrade_model::keyed_limit::KeyedLimit;
use estrade_model::{ProjectId, Timestamp};
use estrade_service::{Core, Error, Publisher, Result};
use futures_util::future::BoxFuture;
use http::StatusCode;
use httpdate::HttpDate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// In one of so many milliseconds, requests ask the caches of sites and files.
const CACHE_SAMPLE_MILLIS: i64 = 64;
const INDEX_PAGE: &str = "index.html";
/// How often files are closed that were removed.
const CLOSE_REMOVED_INTERVAL: Duration = Duration::from_secs(30);
/// Times that a request looks again where it belongs, when that changes under its eyes.
const MAX_LOOKUPS: usize = 4;

/// How the edge serves. Which hosts are projects, and for how long earlier releases matter, is in the
/// settings of the services: the clean-up and custom domains go by the same.
#[derive(Debug, Clone)]
pub struct EdgeOptions {
    /// Bytes of sites' tables that are kept in memory.
    pub site_cache_bytes: u64,
    /// What is kept of contents.
    pub content_cache: ContentCacheLimits,
    /// Files that were given lately and are given again without looking them up: 64 bytes each, once used.
    pub response_cache_entries: usize,
    /// The certificates whose HTTP-01 challenges are served on plain HTTP.
    pub certificates: Option<Arc<HostCertificates>>,
    /// The port that plain HTTP is redirected to where there is a certificate; none: it is served.
    pub redirect_to: Option<u16>,
    /// How requests are passed on to what runs.
    pub proxy: ProxyOptions,
}

impl Default for EdgeOptions {
    fn default() -> Self {
        Self {
            site_cache_bytes: site_cache::DEFAULT_BYTES,
            content_cache: ContentCacheLimits {
                bytes: 32 << 20,
                files: 65_536,
            },
            response_cache_entries: 1 << 18,
            certificates: None,
            redirect_to: None,
            proxy: ProxyOptions::default(),
        }
    }
}

/// What a request gets.
pub(crate) enum Reply {
    /// A response of ours.
    Local(StaticResponse),
    /// The response of an instance.
    Forward(ProxyTarget),
}

/// The project that a request belongs to.
pub(crate) enum MatchedProject<'r> {
    None,
    Route(Arc<Route>),
    /// This one, whose name is in the host.
    Named(Guard<Option<Arc<Route>>>, &'r str),
}

impl MatchedProject<'_> {
    /// The project and its name. The latter is not looked up where it is known: that would be one more look at
    /// cold memory.
    pub(crate) fn project(&self) -> Option<(&Route, &str)> {
        match self {
            Self::None => None,
            Self::Route(route) => Some((route, &route.name)),
            Self::Named(route, name) => Some((route.as_deref()?, name)),
        }
    }
}

pub struct Edge {
    core: Arc<Core>,
    routes: Arc<Routes>,
    contents: ContentCache,
    response_cache: ResponseCache,
    certificates: Option<Arc<HostCertificates>>,
    /// The port with TLS; none: no redirects.
    redirect_to: Option<u16>,
    ready: AtomicBool,
    /// How requests are passed on to instances.
    pub(crate) proxy: ProxyOptions,
    /// Room for upgraded connections.
    pub(crate) tunnels: KeyedLimit<ProjectId>,
    /// The access log: which client requested what.
    pub(crate) log: Arc<AccessLog>,
}

impl Edge {
    /// How the services tell this edge what to serve.
    pub fn publisher(&self) -> Weak<dyn Publisher> {
        let routes: Weak<Routes> = Arc::downgrade(&self.routes);
        routes
    }

    /// Reads what there is to serve.
    pub fn open(
        core: Arc<Core>,
        options: EdgeOptions,
        log: Arc<AccessLog>,
    ) -> BoxFuture<'static, Result<Arc<Self>>> {
        Box::pin(async move {
            let sites = SiteCache::new(
                Arc::clone(&core),
                Handle::current(),
                options.site_cache_bytes,
            );
            let routes = Routes::open(Arc::clone(&core), Arc::new(sites)).await?;
            Ok(Arc::new(Self {
                routes,
                contents: ContentCache::new(core.blobs.clone(), options.content_cache),
                response_cache: ResponseCache::new(options.response_cache_entries),
                certificates: options.certificates,
                redirect_to: options.redirect_to,
                ready: AtomicBool::new(false),
                tunnels: KeyedLimit::new_soft(
                    options.proxy.max_tunnels,
                    options.proxy.max_project_tunnels,
                ),
                proxy: options.proxy,
                log,
                core,
            }))
        })
    }

    /// The routes, for who follows or counts them.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// How many connections to instances are open, and may be.
    pub fn upstreams(&self) -> &UpstreamBudget {
        &self.proxy.upstreams
    }

    /// From now on `/readyz` says so.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Keeps what it serves from up to date until `stop`.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let tidy = async {
                loop {
                    tokio::time::sleep(CLOSE_REMOVED_INTERVAL).await;
                    let edge = Arc::clone(&self);
                    // It looks at every open file. If it breaks off, the next one goes on.
                    drop(tokio::task::spawn_blocking(move || edge.contents.close_removed()).await);
                }
            };
            let routes = Arc::clone(&self.routes);
            tokio::join!(routes.follow(stop.clone()), stop.run_until_cancelled(tidy));
        })
    }

    /// The domains that projects share.
    pub(crate) fn shared_domains(&self) -> &[String] {
        &self.core.settings.domains.edge
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// Answers a request, or says who does; also which project it was for.
    pub(crate) async fn respond<'r>(
        &self,
        request: &StaticRequest<'r>,
        now: Timestamp,
    ) -> (Reply, MatchedProject<'r>) {
        if let Some(response) = self.before_routing(request).await {
            return (Reply::Local(response), MatchedProject::None);
        }
        let key = self.response_cache.key(request);
        if let Some(key) = &key
            && !is_cache_sample(now)
            && let Some((response, matched)) = self.serve_cached(request, key).await
        {
            return (Reply::Local(response), matched);
        }
        let (reply, route) = self.look_up(request, now, key).await;
        (
            reply,
            route.map_or(MatchedProject::None, MatchedProject::Route),
        )
    }

    /// What a plain request gets because of certificates, before any project is looked up.
    async fn before_routing(&self, request: &StaticRequest<'_>) -> Option<StaticResponse> {
        let certificates = self.certificates.as_ref().filter(|_| !request.secure)?;
        match acme_challenge::token(request) {
            Some(token) => acme_challenge::respond(certificates, token).await,
            None => https_redirect::respond(certificates, request, self.redirect_to?),
        }
    }

    /// A file that was given lately, if it is still what one gets.
    async fn serve_cached<'r>(
        &self,
        request: &StaticRequest<'r>,
        key: &CacheKey,
    ) -> Option<(StaticResponse, MatchedProject<'r>)> {
        let cached = self.response_cache.get(key)?;
        let route = self.routes.by_id(cached.route)?;
        let since = route.as_ref()?.live_since(cached.generation)?;
        let name = self.routes.project_name(request.host)?;
        let content = self
            .contents
            .open_by_id(cached.file, cached.offset, cached.size.into())
            .await?;
        let path = if cached.flags.is_page {
            INDEX_PAGE
        } else {
            request.path
        };
        let file = FullFile {
            media_type: &media_type(path),
            digest: &cached.digest,
            coding: cached.coding,
            varies: cached.flags.varies,
            is_hashed: cached.flags.is_hashed,
        };
        let matched = match &content {
            Content::Bytes(_) => MatchedProject::Named(route, name),
            // It may be sent for a while, and a thread has few guards.
            Content::File(_) => MatchedProject::Route(Guard::into_inner(route)?),
        };
        Some((file.response(HttpDate::from(since), content), matched))
    }

    /// Notes what was given, to give it again without looking it up.
    fn cache_response(
        &self,
        request: &StaticRequest<'_>,
        key: &CacheKey,
        route: &Arc<Route>,
        live: &Live,
        it: Cacheable,
    ) {
        // Others are known by the name of their host, and need to be looked up to be logged.
        if self.routes.project_name(request.host) != Some(&*route.name) {
            return;
        }
        // What is out of date already would take the place of what is not.
        let size =
            CachedFile::size_of(&it.stored).filter(|_| route.live_since(live.generation).is_some());
        let Some(size) = size else { return };
        let file = self.contents.file_id(it.stored.place);
        let (Some(file), Some(number)) = (file, self.routes.id_of(route)) else {
            return;
        };
        let cached = CachedFile {
            route: number,
            generation: live.generation,
            digest: it.digest,
            file,
            offset: it.stored.offset,
            size,
            coding: it.coding,
            flags: it.flags,
        };
        self.response_cache.put(key, &cached);
    }

    async fn look_up(
        &self,
        request: &StaticRequest<'_>,
        now: Timestamp,
        key: Option<CacheKey>,
    ) -> (Reply, Option<Arc<Route>>) {
        let mut last = Page::UnknownHost;
        for _ in 0..MAX_LOOKUPS {
            let Some(route) = self.routes.find(request.host).await else {
                return (Reply::Local(self.without_project(request)), None);
            };
            let live = match self.routes.live(&route).await {
                Ok(live) => live,
                Err(error) => {
                    tracing::warn!(project = %route.name, error = error_chain(&error), "cannot read what is served");
                    return (Reply::Local(Page::Unavailable.response()), Some(route));
                }
            };
            if !live.default_subdomain && self.routes.is_default_subdomain(request.host) {
                return (Reply::Local(self.without_project(request)), None);
            }
            let reply = match &live.state {
                State::Files(site) => {
                    let response = self.serve_files(&route, site, request, now).await;
                    if let (Some(key), Some(cacheable)) = (&key, response.cacheable) {
                        self.cache_response(request, key, &route, &live, cacheable);
                    }
                    Reply::Local(response)
                }
                State::Off => Reply::Local(Page::SwitchedOff.response()),
                State::Empty => Reply::Local(Page::NothingDeployed.response()),
                State::Running(endpoints) => match endpoints.acquire(&[]) {
                    Some(in_flight) => Reply::Forward(ProxyTarget {
                        route: Arc::clone(&route),
                        endpoints: Arc::clone(endpoints),
                        in_flight,
                    }),
                    // They may have left because another release is live by now.
                    None if !route.is_current(&live) => {
                        last = Page::NotRunning;
                        continue;
                    }
                    None => Reply::Local(Page::NotRunning.response()),
                },
                // Its name may be another project's by now.
                State::Gone => continue,
            };
            return (reply, Some(route));
        }
        (Reply::Local(last.response()), None)
    }

    async fn serve_files(
        &self,
        route: &Route,
        live: &LiveSite,
        request: &StaticRequest<'_>,
        now: Timestamp,
    ) -> StaticResponse {
        let outcome = match self.try_serve_files(live, request, now).await {
            // A clean-up may have moved the contents; the database knows where they are now.
            Err(ServeError::Content(ContentError::Missing)) => {
                live.forget_site();
                self.routes.sites().forget(live.row.release);
                live.earlier
                    .iter()
                    .for_each(|it| self.routes.sites().forget(it.release));
                self.try_serve_files(live, request, now).await
            }
            other => other,
        };
        outcome.unwrap_or_else(|error| {
            log_failure(route, live, &error);
            Page::Unavailable.response()
        })
    }

    async fn try_serve_files(
        &self,
        live: &LiveSite,
        request: &StaticRequest<'_>,
        now: Timestamp,
    ) -> std::result::Result<StaticResponse, ServeError> {
        // Most requests go past the cache, which costs several looks at cold memory.
        let near = live.site().filter(|_| !is_cache_sample(now));
        let site = if let Some(site) = near {
            site
        } else {
            let site = self.routes.sites().get(&live.row).await;
            let Some(site) = site.map_err(ServeError::Service)? else {
                return Err(ServeError::Content(ContentError::Missing));
            };
            live.set_site(&site);
            site
        };
        let handler = StaticHandler {
            live,
            site: &site,
            sites: self.routes.sites(),
            contents: &self.contents,
            now,
            skew: self.core.settings.skew,
        };
        handler.respond(request).await
    }

    /// A host without a project. Health probes are served here, where their paths cannot hide those of a site.
    fn without_project(&self, request: &StaticRequest<'_>) -> StaticResponse {
        let ready = self.ready.load(Ordering::Acquire);
        match request.path {
            "/healthz" if request.method != Method::Other => probe(StatusCode::OK, "ok"),
            "/readyz" if request.method != Method::Other && ready => probe(StatusCode::OK, "ready"),
            "/readyz" if request.method != Method::Other => {
                probe(StatusCode::SERVICE_UNAVAILABLE, "starting")
            }
            _ => Page::UnknownHost.response(),
        }
    }
}

/// Logs why a file was not served. What an outage of the storage does to each request is not worth a line: the store
/// and the fetches log it once.
fn log_failure(route: &Route, live: &LiveSite, error: &ServeError) {
    let (error, is_outage) = match error {
        ServeError::Content(ContentError::Missing) => (BlobError::Missing.to_string(), false),
        ServeError::Content(ContentError::Busy) => ("too many wait for the storage".into(), true),
        ServeError::Content(ContentError::Failed(error)) => (
            error_chain(&**error),
            matches!(**error, BlobError::Unavailable { .. }),
        ),
        ServeError::Service(error) => (
            error_chain(error),
            matches!(error, Error::StorageUnavailable(_)),
        ),
    };
    let (project, release) = (&*route.name, live.row.release);
    if is_outage {
        tracing::debug!(project, %release, error, "cannot serve a file");
    } else {
        tracing::error!(project, %release, error, "cannot serve a file");
    }
}

/// Whether requests of this moment ask the caches of sites and files: the others go past them, and these keep them
/// aware of what is in use.
fn is_cache_sample(now: Timestamp) -> bool {
    now.millis() % CACHE_SAMPLE_MILLIS == 0
}

fn probe(status: StatusCode, state: &str) -> StaticResponse {
    let text = format!("{{\"status\":\"{state}\"}}");
    let mut response = StaticResponse::new(status);
    response.header("content-type", "application/json");
    response.number("content-length", text.len() as u64);
    response.header("cache-control", "no-store");
    response.body = Body::from_bytes(text);
    response
}
