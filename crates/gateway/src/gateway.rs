//! What all serving threads share.

use crate::accounting::Accounting;
use crate::accounting::in_flight::InFlightRegistry;
use crate::accounting::usage_ledger::UsageLedger;
use crate::auth::{AuthorizedKey, KeyAuthenticator};
use crate::cache::ResponseCache;
use crate::limits::detached_reads::ReadLimits;
use crate::limits::rate_limiter::RateLimiter;
use crate::limits::sharing::Sharing;
use crate::metrics::{Registry, Snapshot};
use crate::models::{self, ListedModel};
use crate::options::Options;
use crate::request::body_reader::BodyLimits;
use crate::upstream::catalogue::Catalogue;
use crate::upstream::probe::probe;
use crate::upstream::{Trust, Upstream};
use arc_swap::ArcSwap;
use bytes::Bytes;
use estrade_listener::UpstreamBudget;
use estrade_model::call::Call;
use estrade_model::provider::Provider;
use estrade_model::{Invalid, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// The gateway: who may call, what there is, what was used. One per process.
pub struct Gateway {
    pub(crate) authenticator: Arc<dyn KeyAuthenticator>,
    pub(crate) accounting: Arc<Accounting>,
    pub(crate) options: Options,
    pub(crate) catalogue: ArcSwap<Catalogue>,
    pub(crate) response_cache: Arc<ResponseCache>,
    pub(crate) metrics: Registry,
    pub(crate) bodies: BodyLimits,
    pub(crate) in_flight: InFlightRegistry,
    /// Responses that are read on after their clients have left.
    pub(crate) detached: Arc<ReadLimits>,
    started: i64,
}

impl Gateway {
    /// A gateway without providers.
    pub fn new(
        authenticator: Arc<dyn KeyAuthenticator>,
        ledger: Arc<dyn UsageLedger>,
        options: Options,
    ) -> Arc<Self> {
        let metrics = Registry::default();
        Arc::new(Self {
            authenticator,
            accounting: Arc::new(Accounting {
                ledger,
                limiter: RateLimiter::new(Sharing::new(options.shared_rates.clone())),
                clock: Arc::clone(&options.clock),
                tracing: options.tracing.clone(),
                unknown: metrics.series("", ""),
                empty: Arc::from(""),
            }),
            catalogue: ArcSwap::default(),
            response_cache: Arc::new(ResponseCache::new(options.cache_bytes, options.cache_ttl)),
            bodies: BodyLimits::new(&options),
            metrics,
            in_flight: InFlightRegistry::default(),
            detached: Arc::default(),
            started: (options.clock)().seconds(),
            options,
        })
    }

    /// Says who serves calls from now on. On an error everything stays as it was. Reads certificate files.
    pub fn set_providers(&self, providers: &[Provider], echo: bool) -> Result<(), Invalid> {
        let previous = self.catalogue.load_full();
        let new = Catalogue::build(providers, echo, &previous, &self.metrics)?;
        self.catalogue.store(Arc::new(new));
        Ok(())
    }

    /// Whether a provider can be asked at all. Its models can always be taken over.
    pub fn check_provider(provider: &Provider) -> Result<(), Invalid> {
        Upstream::build(provider, &[], &mut Trust::default()).map(drop)
    }

    /// Asks a provider for its models: the status of its response, or why there is none, in words for a person.
    pub async fn probe_provider(provider: &Provider) -> Result<u16, String> {
        probe(provider).await
    }

    pub fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    /// For how long a response is awaited for its usage after its client has left, or may have.
    pub fn detached_timeout(&self) -> Duration {
        self.options.detached_timeout
    }

    /// How many connections to providers are open, and may be.
    pub fn upstreams(&self) -> &UpstreamBudget {
        &self.options.upstreams
    }

    /// Bytes of request bodies that are held now.
    pub fn body_bytes(&self) -> u64 {
        self.bodies.bytes()
    }

    /// What calls took so far that have gone out without being on record, and whether there are others that
    /// have only just begun.
    pub fn in_flight(&self) -> (Vec<Call>, bool) {
        self.in_flight.snapshot()
    }

    /// `GET models`, as a JSON body, of what this key may use.
    pub fn models_for(&self, key: &AuthorizedKey) -> Bytes {
        models::list(&self.catalogue.load(), Some(key), self.started)
    }

    /// What people may choose from: everything, or what a key's list of models allows.
    pub fn listed_models(&self, allowed: Option<&[String]>) -> Vec<ListedModel> {
        models::listed(&self.catalogue.load(), allowed)
    }

    /// `GET models`, as a JSON body, of everything there is.
    pub fn all_models(&self) -> Bytes {
        models::list(&self.catalogue.load(), None, self.started)
    }

    /// `GET models/{id}`, as a JSON body; none: there is no such model, or not for this key.
    pub fn model_for(&self, id: &str, key: Option<&AuthorizedKey>) -> Option<Bytes> {
        models::one(&self.catalogue.load(), id, key, self.started)
    }

    /// Shares rate limits with other nodes, until it is dropped.
    pub async fn share_rates(&self) {
        self.accounting.limiter.share().await;
    }

    /// Reports the last use of rate limits; afterwards no call waits for other nodes.
    pub async fn stop_sharing_rates(&self) {
        self.accounting.limiter.stop_sharing().await;
    }

    /// What was counted since the start.
    pub fn snapshot(&self) -> Vec<Snapshot> {
        self.metrics.snapshot()
    }
}
