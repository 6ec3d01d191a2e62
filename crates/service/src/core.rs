//! What every service needs, built once at start.

use crate::ai::usage::UsageSettings;
use crate::idempotency::InFlightRequests;
use crate::identity::jwt::Keyring;
use crate::identity::login::LoginGate;
use crate::platform::containers::logs::{LogCollectorSlot, LogNotifier};
use crate::platform::containers::{ContainerSettings, Fleet};
use crate::platform::domains::DomainSettings;
use crate::platform::releases::EagerCompressor;
use crate::priority_gate::PriorityGate;
use crate::seal::MasterKey;
use crate::write_probe::WriteProbe;
use crate::{Result, random};
use arc_swap::ArcSwap;
use estrade_blobs::BlobStore;
use estrade_model::plan::Plans;
use estrade_model::{Id, ProjectId, ReleaseId, Timestamp};
use estrade_runtime::Engine;
use estrade_store::Db;
use estrade_store::routes::LiveRow;
use estrade_store::variants::VariantRow;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Handles and settings that the services share.
pub struct Core {
    /// The facts.
    pub db: Db,
    /// The contents of releases.
    pub blobs: BlobStore,
    /// Runs containers. It may not be there: whoever asks it finds out.
    pub engine: Engine,
    /// What time it is.
    pub clock: Clock,
    /// What the configuration says.
    pub settings: Settings,
    /// Seals what is encrypted at rest.
    pub(crate) master: MasterKey,
    /// Signs and checks tokens.
    pub(crate) keyring: ArcSwap<Keyring>,
    /// Requests with an idempotency key that this process is carrying out.
    pub(crate) in_flight_requests: InFlightRequests,
    /// Logins that are under way.
    pub(crate) logins: LoginGate,
    /// What somebody waits for, so that other work gives way.
    pub(crate) priority_gate: PriorityGate,
    /// What is compressed ahead of time.
    pub(crate) eager_compressor: EagerCompressor,
    /// What is known of the instances that run here.
    pub(crate) fleet: Fleet,
    /// Says whose instances have written something.
    pub(crate) log_notifier: LogNotifier,
    /// Held by who reads several blocks of logs, and alone by who puts others in their place.
    pub(crate) log_blocks: tokio::sync::RwLock<()>,
    /// Who stores what instances write.
    pub(crate) log_collector: LogCollectorSlot,
    /// What is wrong with the database's file, once that was found.
    pub(crate) damage: OnceLock<String>,
    /// Whether writes succeed.
    pub write_probe: WriteProbe,
    /// Who serves releases on this node.
    pub(crate) publisher: OnceLock<Weak<dyn Publisher>>,
}

/// Serves releases to visitors. The services only know that somebody does.
pub trait Publisher: Send + Sync {
    /// Gets ready to serve a release, so that the switch to it costs its first visitors nothing.
    /// `fresh` are variants that will be committed with the switch: the database has them not yet.
    fn prepare<'p>(
        &'p self,
        project: ProjectId,
        release: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> BoxFuture<'p, Result<()>>;

    /// From now on a release that runs can be reached at exactly these addresses. Those that it had
    /// before and has no more get no new request; the answer comes when they have ended those that
    /// they had, or after `limit`.
    fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> BoxFuture<'static, ()>;

    /// What visitors of a project were given on this node; none when nobody came.
    fn traffic(&self, _project: ProjectId) -> Option<Traffic> {
        None
    }
}

/// What visitors of a project were given since this node has served it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Responses by class of status: 1xx to 5xx.
    pub requests: [u64; 5],
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Core {
    /// Says who serves releases on this node; the first one stays.
    pub fn set_publisher(&self, publisher: Weak<dyn Publisher>) {
        drop(self.publisher.set(publisher));
    }

    pub(crate) fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        self.publisher.get()?.upgrade()
    }

    /// Whether the database was found to be damaged.
    pub fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A new identifier.
    pub(crate) fn new_id<T>(&self) -> Result<Id<T>> {
        random::id(self.now())
    }

    /// The public signing keys as a JWK set.
    pub fn jwks(&self) -> serde_json::Value {
        self.keyring.load().jwks()
    }
}

/// Time as the services see it; tests can move it forward.
#[derive(Debug, Default)]
pub struct Clock {
    ahead_ms: AtomicI64,
}

impl Clock {
    /// The present moment.
    pub fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(millis.saturating_add(self.ahead_ms.load(Ordering::Relaxed)))
    }

    /// Moves the clock forward, for tests of what expires.
    pub fn advance(&self, span: Duration) {
        self.ahead_ms.fetch_add(
            i64::try_from(span.as_millis()).unwrap_or(0),
            Ordering::Relaxed,
        );
    }
}

/// What happens to a workspace name that the owner does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownWorkspace {
    /// It is created.
    #[default]
    Create,
    /// The request is refused.
    Reject,
}

/// How much one owner may have; 0 is without limit.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// Projects.
    pub projects: u64,
    /// AI keys.
    pub keys: u64,
    /// Workspaces.
    pub workspaces: u64,
    /// Tokens that an account made and that have not ended.
    pub tokens: u64,
    /// Teams that an account owns.
    pub teams: u64,
    /// Networks, the default one included.
    pub networks: u64,
    /// Domains of all projects together.
    pub domains: u64,
}

/// What the configuration says to the services.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The plans of this installation.
    pub plans: Plans,
    /// Quotas per owner.
    pub quotas: Quotas,
    /// Most instances of one project.
    pub max_instances: u32,
    /// Most files of one release.
    pub max_files: usize,
    /// Most bytes of one release request.
    pub max_release_bytes: u64,
    /// What to do with unknown workspace names.
    pub unknown_workspace: UnknownWorkspace,
    /// Failed logins per account before the next ones have to wait; 0 is without limit.
    pub login_failures_per_account: u32,
    /// Failed logins per address before the next ones have to wait; 0 is without limit.
    pub login_failures_per_address: u32,
    /// How many releases of a project keep what they were made of.
    pub release_history: u32,
    /// How long after it stopped being live the assets of a release stay reachable.
    pub skew: Duration,
    /// How long files that nothing names stay in the blob store.
    pub min_orphan_age: Duration,
    /// Where the platform API is reached, for links.
    pub public_url: String,
    /// What stands before a project's name in its URL, such as `http://`.
    pub edge_scheme: String,
    /// What stands behind it, such as `localhost:8080`.
    pub edge_authority: String,
    /// Host names of projects.
    pub domains: DomainSettings,
    /// How calls are accounted for.
    pub usage: UsageSettings,
    /// How projects run.
    pub containers: ContainerSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plans: Plans::default(),
            quotas: Quotas {
                projects: 1000,
                keys: 100_000,
                workspaces: 10_000,
                tokens: 1000,
                teams: 1000,
                networks: 100,
                domains: 1000,
            },
            max_instances: 10,
            max_files: 10_000,
            max_release_bytes: 256 << 20,
            unknown_workspace: UnknownWorkspace::Create,
            login_failures_per_account: 10,
            login_failures_per_address: 50,
            release_history: 20,
            skew: Duration::from_hours(1),
            min_orphan_age: Duration::from_hours(24),
            public_url: "http://127.0.0.1:3000".into(),
            edge_scheme: "http".into(),
            edge_authority: "localhost:8080".into(),
            domains: DomainSettings::default(),
            usage: UsageSettings::default(),
            containers: ContainerSettings::default(),
        }
    }
}

impl Settings {
    /// Where a project is served.
    pub fn project_url(&self, name: &str) -> String {
        format!("{}://{name}.{}", self.edge_scheme, self.edge_authority)
    }

    /// Where a domain of a project is served: on the same port as the default subdomains.
    pub fn domain_url(&self, host: &str) -> String {
        let port = self.edge_authority.rsplit_once(':');
        let port = port.map_or_else(String::new, |(_, port)| format!(":{port}"));
        format!("{}://{host}{port}", self.edge_scheme)
    }
}
