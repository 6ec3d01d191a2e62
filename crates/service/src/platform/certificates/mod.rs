//! Certificates for the hosts of the installation, from an ACME server.
//!
//! [`Acme`] gives the edge the certificate of a host, and the responses to ACME challenges. For a host
//! of the installation without a certificate, the [`worker`] of one node orders one; the other nodes
//! are notified by the change feed. The protocol itself is the crate `acme`.

mod order_store;
mod worker;

use crate::{Core, Result};
use estrade_acme::{AcmeClient, AcmeServer, Material, challenge_certificate};
use estrade_model::Timestamp;
use estrade_model::domain::HostName;
use estrade_model::error::error_chain;
use estrade_model::sync::{MutexExt, RwLockExt};
use estrade_store::{Change, ChangeKind, StoreError, acme, certificates, domains, projects};
use futures_util::future::BoxFuture;
use quick_cache::sync::Cache;
use rustls::sign::CertifiedKey;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};

pub use estrade_acme::Challenge;

/// Certificates that are kept ready to be shown.
const MAX_READY: usize = 4096;
/// Negative cache: hosts that belong to no project, and for how long they are cached.
const MAX_UNKNOWN_HOSTS: usize = 16_384;
const UNKNOWN_HOST_TTL: Duration = Duration::from_secs(10);
/// Hosts that wait for their order; further ones are dropped, and their clients have to retry.
const MAX_WANTED: usize = 1000;
/// How long a TLS handshake waits for the first certificate of a host.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(8);
/// Hosts that are read at once.
const PAGE: u32 = 1000;

/// Configuration of ACME.
#[derive(Debug, Clone)]
pub struct AcmeSettings {
    /// The address of the server's directory.
    pub directory: String,
    /// The contact address for the ACME server.
    pub email: Option<String>,
    /// The root certificate of a private server; none: those of the system.
    pub ca_file: Option<PathBuf>,
    /// How hosts are proved, in the order in which it is tried.
    pub challenges: Vec<Challenge>,
    /// Most orders within an hour.
    pub orders_per_hour: u32,
}

/// Certificates from an ACME server.
pub struct Acme {
    core: Arc<Core>,
    client: AcmeClient,
    /// Most orders within an hour.
    orders_per_hour: u32,
    /// The runtime for database queries: the edge's threads have runtimes of their own.
    runtime: Handle,
    /// Every host that has a certificate.
    certified: RwLock<HashSet<HostName>>,
    /// Set when `certified` is to be read again.
    outdated: AtomicBool,
    ready: Cache<HostName, Arc<Material>>,
    unknown_hosts: Cache<HostName, Instant>,
    wanted: Mutex<HashSet<HostName>>,
    /// Wakes the worker.
    work: Notify,
    /// Wakes the handshakes that wait for a certificate.
    issued: Notify,
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme")
            .field("directory", &self.client.directory())
            .finish_non_exhaustive()
    }
}

impl Acme {
    /// Reads which certificates there are, and follows what changes. Call it on the runtime that the
    /// database was opened on, and let [`Acme::run`] run there too.
    pub fn open(core: Arc<Core>, settings: AcmeSettings) -> BoxFuture<'static, Result<Arc<Self>>> {
        Box::pin(async move {
            let server = AcmeServer {
                directory: settings.directory,
                email: settings.email,
                ca_file: settings.ca_file,
                challenges: settings.challenges,
            };
            let acme = Arc::new(Self {
                client: AcmeClient::new(server),
                orders_per_hour: settings.orders_per_hour,
                runtime: Handle::current(),
                certified: RwLock::default(),
                outdated: AtomicBool::new(false),
                ready: Cache::new(MAX_READY),
                unknown_hosts: Cache::new(MAX_UNKNOWN_HOSTS),
                wanted: Mutex::default(),
                work: Notify::new(),
                issued: Notify::new(),
                core,
            });
            // Listening begins before the first look, so that nothing falls in between.
            let weak = Arc::downgrade(&acme);
            acme.core
                .db
                .changes()
                .on_change(move |change| on_change(&weak, change));
            acme.read_certified().await?;
            Ok(acme)
        })
    }

    async fn read_certified(&self) -> Result<()> {
        let mut all = HashSet::new();
        let mut after: Option<HostName> = None;
        loop {
            let page = certificates::list_certified(&self.core.db, after.as_ref(), PAGE).await?;
            let whole = page.len() == PAGE as usize;
            after = page.last().cloned();
            all.extend(page);
            if !whole {
                break;
            }
        }
        *self.certified.write_ignoring_poison() = all;
        Ok(())
    }

    /// Whether this host, in lower case, has a certificate. In memory, and quick.
    pub fn has_certificate(&self, host: &str) -> bool {
        let certified = self.certified.read_ignoring_poison();
        certified.contains(host)
    }

    /// The certificate of a host. When there is none and the host is ours, one is ordered and, for a
    /// while, waited for.
    pub async fn find(self: &Arc<Self>, host: &str) -> Option<Arc<CertifiedKey>> {
        let host: HostName = host.parse().ok()?;
        let now = self.core.now();
        if let Some(material) = self.ready.get(&host).filter(|it| it.not_after > now) {
            return Some(Arc::clone(&material.certified));
        }
        let is_recent = |since: &Instant| since.elapsed() < UNKNOWN_HOST_TTL;
        if self
            .unknown_hosts
            .get(&host)
            .as_ref()
            .is_some_and(is_recent)
        {
            return None;
        }
        let acme = Arc::clone(self);
        let found = self
            .runtime
            .spawn(async move { acme.find_or_order(&host).await });
        match found.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot look for a certificate");
                None
            }
            // The server is stopping.
            Err(_) => None,
        }
    }

    async fn find_or_order(&self, host: &HostName) -> Result<Option<Arc<CertifiedKey>>> {
        let deadline = Instant::now() + CERTIFICATE_TIMEOUT;
        if let Some(found) = self.load(host).await? {
            return Ok(Some(found));
        }
        if !self.is_ours(host).await? {
            self.unknown_hosts.insert(host.clone(), Instant::now());
            return Ok(None);
        }
        loop {
            let issued = self.issued.notified();
            tokio::pin!(issued);
            // Registered before the look-up, so that no notification is missed.
            issued.as_mut().enable();
            if let Some(found) = self.load(host).await? {
                return Ok(Some(found));
            }
            if !self.may_come(host).await? {
                return Ok(None);
            }
            self.want(host);
            if timeout_at(deadline, issued).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// The response to the HTTP-01 challenge with this token.
    pub async fn http_challenge(&self, token: &str) -> Option<String> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if token.is_empty() || token.len() > 128 || !token.bytes().all(letter) {
            return None;
        }
        let (db, now, token) = (self.core.db.clone(), self.core.now(), token.to_owned());
        let query = async move { acme::response_to_token(&db, &token, now).await };
        read_response(self.runtime.spawn(query).await)
    }

    /// The certificate for the TLS-ALPN-01 challenge of this host.
    pub async fn tls_challenge(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        let host: HostName = host.parse().ok()?;
        let (db, now, name) = (self.core.db.clone(), self.core.now(), host.clone());
        let query = async move { acme::response_for_host(&db, &name, now).await };
        let response = read_response(self.runtime.spawn(query).await)?;
        match challenge_certificate(&host, &response) {
            Ok(certified) => Some(Arc::new(certified)),
            Err(error) => {
                tracing::error!(error, "cannot make a certificate for a challenge");
                None
            }
        }
    }

    /// Whether we serve this host: a project, or a custom domain that is active.
    async fn is_ours(&self, host: &HostName) -> Result<bool> {
        if let Some(project) = self.core.settings.domains.project_of(host) {
            return Ok(projects::has_default_subdomain(&self.core.db, project).await?);
        }
        Ok(domains::project_of(&self.core.db, host).await?.is_some())
    }

    /// Whether an order for this host is on its way or may begin now.
    async fn may_come(&self, host: &HostName) -> Result<bool> {
        let now = self.core.now();
        let order = certificates::read_order(&self.core.db, host).await?;
        Ok(order.is_none_or(|order| order.order_at <= now || order.lease_until > now))
    }

    /// Reads a host's certificate, if it has one that is still good.
    async fn load(&self, host: &HostName) -> Result<Option<Arc<CertifiedKey>>> {
        let Some(row) = certificates::read_certificate(&self.core.db, host).await? else {
            return Ok(None);
        };
        let material = Arc::new(self.open_material(&row)?);
        if material.not_after <= self.core.now() {
            return Ok(None);
        }
        self.ready.insert(host.clone(), Arc::clone(&material));
        Ok(Some(Arc::clone(&material.certified)))
    }

    fn want(&self, host: &HostName) {
        let mut wanted = self.wanted();
        if wanted.len() < MAX_WANTED && wanted.insert(host.clone()) {
            self.work.notify_one();
        }
    }

    fn wanted(&self) -> MutexGuard<'_, HashSet<HostName>> {
        self.wanted.lock_ignoring_poison()
    }
}

/// The response that was read; a failure is logged here and counts as none.
fn read_response(
    read: std::result::Result<std::result::Result<Option<String>, StoreError>, JoinError>,
) -> Option<String> {
    match read {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let error = error_chain(&error);
            tracing::warn!(error, "cannot look for a challenge");
            None
        }
        // The server is stopping.
        Err(_) => None,
    }
}

/// Change hook: updates the caches when this node or another one has stored a certificate.
fn on_change(acme: &Weak<Acme>, change: &Change) {
    let Some(acme) = acme.upgrade() else { return };
    match change.kind {
        ChangeKind::Certificate => {
            if let Ok(host) = change.id.parse::<HostName>() {
                acme.ready.remove(&host);
                let mut certified = acme.certified.write_ignoring_poison();
                certified.insert(host);
            }
            acme.issued.notify_waiters();
        }
        ChangeKind::Everything => {
            acme.ready.clear();
            acme.outdated.store(true, Ordering::Release);
            acme.work.notify_one();
            acme.issued.notify_waiters();
        }
        _ => {}
    }
}

/// When to order the next certificate: after two thirds of this one's life.
fn renewal(not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    let life = not_after
        .millis()
        .saturating_sub(not_before.millis())
        .max(0);
    Timestamp::from_millis(not_before.millis().saturating_add(life / 3 * 2))
}
