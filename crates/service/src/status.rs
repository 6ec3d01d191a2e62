//! The state of the installation, for administrators.

use crate::storage_probe::BucketStatus;
use crate::{Caller, Core, Result, Services};
use estrade_model::Timestamp;
use estrade_model::error::error_chain;
use estrade_model::node::Node;
use estrade_store::{accounts, status};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// What does not answer within this time is reported as not answering.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// What an administrator should know of the installation.
#[derive(Debug, Clone)]
pub struct InstallationStatus {
    pub version: &'static str,
    /// `SQLite` or `PostgreSQL`.
    pub database: &'static str,
    pub database_state: DatabaseState,
    /// Bytes of the database's file, where it is one.
    pub database_bytes: Option<u64>,
    /// The nodes that share the database; empty with SQLite, where there is one.
    pub nodes: Vec<Node>,
    /// Free and all bytes of the disk with the data directory.
    pub data_disk: Option<(u64, u64)>,
    /// The bucket that files of releases lie in; none when they lie on the data disk.
    pub bucket: Option<BucketStatus>,
    /// Why the Docker Engine cannot be used; none when it answers.
    pub engine_problem: Option<String>,
    /// Bytes that are free where images are kept.
    pub engine_free: Option<u64>,
    /// Instances that run here.
    pub instances: Option<u64>,
    pub accounts: u64,
    pub disabled_accounts: u64,
    pub projects: u64,
    pub certificates: CertificateStatus,
    /// Releases that wait, and those that a worker has.
    pub waiting_releases: u64,
    pub running_releases: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseState {
    Up,
    /// It does not answer.
    Down,
    /// It answers, but takes no writes.
    ReadOnly,
    /// Its file did not pass a check.
    Damaged,
}

/// Certificates that were ordered for custom domains.
#[derive(Debug, Clone, Copy, Default)]
pub struct CertificateStatus {
    pub issued: u64,
    /// Those whose last order failed.
    pub failing: u64,
    /// The first end among those that were issued.
    pub first_end: Option<Timestamp>,
}

/// Looks at the installation. `data_dir` is where it keeps its files.
pub async fn read_status(
    core: &Core,
    services: &Services,
    caller: &Caller,
    data_dir: Option<&Path>,
) -> Result<InstallationStatus> {
    caller.require_admin_to_read()?;
    let (pinged, writable, bucket, engine, engine_free, instances) = tokio::join!(
        timeout(RESPONSE_TIMEOUT, core.db.ping()),
        services.write_probe.is_writable(),
        services.storage_probe.status(),
        timeout(RESPONSE_TIMEOUT, core.image_builder.ping()),
        timeout(RESPONSE_TIMEOUT, core.image_builder.free_disk()),
        timeout(RESPONSE_TIMEOUT, core.runtime.instances()),
    );
    let database_state = match (matches!(pinged, Ok(Ok(()))), writable) {
        (false, _) => DatabaseState::Down,
        (true, false) => DatabaseState::ReadOnly,
        (true, true) if services.integrity.is_damaged() => DatabaseState::Damaged,
        (true, true) => DatabaseState::Up,
    };
    let engine_problem = match engine {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error_chain(&error)),
        Err(_) => Some("it does not answer".to_owned()),
    };
    let (accounts, disabled_accounts) = accounts::count_accounts(&core.db).await?;
    let certificates = status::read_certificates(&core.db).await?;
    let (waiting_releases, running_releases) = status::count_unfinished(&core.db).await?;
    Ok(InstallationStatus {
        version: env!("CARGO_PKG_VERSION"),
        database: if core.db.is_sqlite() {
            "SQLite"
        } else {
            "PostgreSQL"
        },
        database_state,
        database_bytes: core.db.file().and_then(file_bytes),
        nodes: if core.db.is_sqlite() {
            Vec::new()
        } else {
            services.nodes.list()
        },
        data_disk: data_dir.and_then(disk_space),
        bucket,
        engine_problem,
        engine_free: engine_free.ok().flatten(),
        instances: match instances {
            Ok(Ok(all)) => Some(all.len() as u64),
            _ => None,
        },
        accounts,
        disabled_accounts,
        projects: status::count_projects(&core.db).await?,
        certificates: CertificateStatus {
            issued: certificates.issued,
            failing: certificates.failing,
            first_end: certificates.first_end,
        },
        waiting_releases,
        running_releases,
    })
}

/// A database of SQLite with its log, which has most of a new one.
fn file_bytes(path: &Path) -> Option<u64> {
    let bytes = |path: &Path| std::fs::metadata(path).ok().map(|file| file.len());
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    Some(bytes(path)? + bytes(Path::new(&log)).unwrap_or(0))
}

/// Free and all bytes of the disk that a directory is on.
fn disk_space(directory: &Path) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some((bytes(disk.f_bavail), bytes(disk.f_blocks)))
}
