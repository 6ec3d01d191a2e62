//! Capabilities of the engine that affect containers and volumes. Queried once.

use crate::docker::engine::Engine;
use crate::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of an engine.
#[derive(Debug, Default)]
pub(crate) struct Capabilities {
    /// Cores of its machine; 0: not queried yet.
    cpus: AtomicU64,
    /// Whether to request disk quotas. The engine reports whether its file system supports them, but not whether
    /// that is mounted with them: that is known once it has refused one.
    quota: AtomicBool,
}

impl Engine {
    /// Whether to request disk quotas.
    pub(crate) async fn has_quota(&self) -> Result<bool, Error> {
        self.fetch_cpus().await?;
        Ok(self.capabilities.quota.load(Ordering::Relaxed))
    }

    /// The engine has refused to limit a disk.
    pub(crate) fn quota_refused(&self) {
        self.capabilities.quota.store(false, Ordering::Relaxed);
    }

    /// The most CPU time that the engine takes as a limit: it refuses more than there is.
    pub(crate) async fn most_nano_cpus(&self) -> Result<u64, Error> {
        let cpus = self.fetch_cpus().await?;
        Ok(cpus.saturating_mul(1_000_000_000))
    }

    async fn fetch_cpus(&self) -> Result<u64, Error> {
        let known = self.capabilities.cpus.load(Ordering::Relaxed);
        if known > 0 {
            return Ok(known);
        }
        let info = self.info().await?;
        let cpus = info.cpus.max(1);
        self.capabilities
            .quota
            .store(info.may_limit_disk, Ordering::Relaxed);
        self.capabilities.cpus.store(cpus, Ordering::Relaxed);
        Ok(cpus)
    }
}
