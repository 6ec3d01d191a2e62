//! A Docker Engine, as one installation of Estrade sees it.

use crate::docker::cache_guard::CacheGuard;
use crate::docker::capabilities::Capabilities;
use crate::docker::disks::Disks;
use crate::docker::host::EngineHost;
use crate::docker::networks::SubnetPool;
use crate::docker::transport::{Transport, body_of};
use crate::error::Error;
use crate::installation::Installation;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker, body_full};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a call that the engine serves from memory.
pub(crate) const QUICK_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a call may take that makes the engine work: start, remove, a look at the disk.
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_mins(1);
/// How long to wait for what another call is about to finish.
pub(crate) const SETTLE_DELAY: Duration = Duration::from_millis(50);

/// A Docker Engine, as one installation of Estrade sees it: what others made is not there.
///
/// Cheap to clone. Making one does not talk to the engine; each call connects anew, so the engine may
/// go and return between any two.
#[derive(Clone)]
pub struct Engine {
    pub(crate) docker: Docker,
    pub(crate) transport: Arc<Transport>,
    pub(crate) installation: Installation,
    pub(crate) pool: SubnetPool,
    pub(crate) capabilities: Arc<Capabilities>,
    pub(crate) disks: Option<Disks>,
    pub(crate) cache: Arc<CacheGuard>,
}

/// What an engine is and which limits it can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent capabilities of a kernel"
)]
pub struct EngineInfo {
    /// The engine's version, such as `20.10.24`.
    pub version: String,
    /// Cores of its machine.
    pub cpus: u64,
    /// Memory of its machine in bytes.
    pub memory: u64,
    /// Where it keeps images and containers, on its machine.
    pub data_root: String,
    /// Whether limits of memory hold.
    pub limits_memory: bool,
    /// Whether swap can be kept from a container; without that it may use the machine's, if it has any.
    pub limits_swap: bool,
    /// Whether limits of CPU time hold.
    pub limits_cpu: bool,
    /// Whether limits of processes hold.
    pub limits_pids: bool,
    /// Whether the size of a container's disk may be limited: XFS, if it is mounted with `pquota`.
    pub may_limit_disk: bool,
    /// Whether containers outlive a restart of the engine.
    pub live_restore: bool,
}

impl Engine {
    /// The engine at a host, for this installation. Networks get their subnets from the pool.
    pub fn new(
        host: EngineHost,
        installation: Installation,
        pool: SubnetPool,
    ) -> Result<Self, Error> {
        let transport = Arc::new(Transport::new(host));
        let carrier = Arc::clone(&transport);
        let carry = move |request: BollardRequest| {
            let carrier = Arc::clone(&carrier);
            async move { carrier.send(request).await.map_err(into_bollard) }
        };
        // The time limits are ours, one for each call; bollard's is the same for all.
        let never = u64::from(u32::MAX);
        let docker = Docker::connect_with_custom_transport(
            carry,
            Some("http://docker"),
            never,
            API_DEFAULT_VERSION,
        );
        Ok(Self {
            docker: docker.map_err(|error| Error::from_bollard("setting up the client", error))?,
            transport,
            installation,
            pool,
            capabilities: Arc::default(),
            disks: None,
            cache: Arc::default(),
        })
    }

    pub fn host(&self) -> &EngineHost {
        self.transport.host()
    }

    /// The installation whose things are seen.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Information about the engine; also the way to find out whether it is reachable.
    pub async fn info(&self) -> Result<EngineInfo, Error> {
        let info = self
            .call("asking what it is", QUICK_TIMEOUT, self.docker.info())
            .await?;
        let driver = info.driver.as_deref().unwrap_or_default();
        let backing = info.driver_status.iter().flatten().any(|pair| {
            matches!(&pair[..], [key, value] if key == "Backing Filesystem" && value == "xfs")
        });
        Ok(EngineInfo {
            version: info.server_version.unwrap_or_default(),
            cpus: info.ncpu.and_then(|n| n.try_into().ok()).unwrap_or(0),
            memory: info.mem_total.and_then(|n| n.try_into().ok()).unwrap_or(0),
            data_root: info.docker_root_dir.unwrap_or_default(),
            limits_memory: info.memory_limit.unwrap_or(false),
            limits_swap: info.swap_limit.unwrap_or(false),
            limits_cpu: info.cpu_cfs_quota.unwrap_or(false),
            limits_pids: info.pids_limit.unwrap_or(false),
            may_limit_disk: driver == "overlay2" && backing,
            live_restore: info.live_restore_enabled.unwrap_or(false),
        })
    }

    /// Waits for what this engine still does in the background; call it last.
    pub async fn shutdown(&self) {
        self.transport.tasks().close();
        self.transport.tasks().wait().await;
    }

    /// Reads what bollard does not know how to.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        what: &'static str,
        limit: Duration,
        path: &str,
    ) -> Result<T, Error> {
        let request = Request::get(path)
            .body(body_full(Bytes::new()))
            .map_err(|error| Error::broken(what, error))?;
        let reading = async {
            let body = body_of(what, self.send(what, request).await?).await?;
            serde_json::from_slice(&body).map_err(|error| Error::broken(what, error))
        };
        let response = timeout(limit, reading).await;
        response.unwrap_or(Err(Error::TimedOut(what)))
    }

    /// Sends a request that bollard does not support; a response with an error status is an error.
    pub(crate) async fn send(
        &self,
        what: &'static str,
        request: BollardRequest,
    ) -> Result<Response<Incoming>, Error> {
        #[derive(serde::Deserialize)]
        struct Refusal {
            message: String,
        }
        let response = self.transport.send(request).await?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let body = body_of(what, response).await?;
        let message = match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => refusal.message,
            Err(_) => String::from_utf8_lossy(&body).into_owned(),
        };
        Err(Error::from_status(what, status.as_u16(), message))
    }

    /// One call, with its time limit and with errors in our words.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Error> {
        match timeout(limit, call).await {
            Ok(response) => response.map_err(|error| Error::from_bollard(what, error)),
            Err(_) => Err(Error::TimedOut(what)),
        }
    }
}

/// bollard carries our errors as the errors of a socket.
fn into_bollard(error: Error) -> bollard::errors::Error {
    std::io::Error::other(error).into()
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("host", self.transport.host())
            .field("installation", &self.installation)
            .finish_non_exhaustive()
    }
}
