//! What every service needs, built once at start.

use crate::jobs::Jobs;
use crate::keyring::Keyring;
use crate::seal::MasterKey;
use crate::settings::Settings;
use crate::{Result, random};
use arc_swap::ArcSwap;
use estrade_blobs::BlobStore;
use estrade_model::{Id, Timestamp};
use estrade_runtime::{ImageBuilder, Runtime};
use estrade_store::Db;
use estrade_store::clock::Clock;
use std::sync::Arc;

/// Handles and settings that the services share.
pub struct Core {
    pub db: Db,
    /// The contents of releases.
    pub blobs: BlobStore,
    /// Runs containers. It may be unreachable: then its calls fail.
    pub runtime: Arc<dyn Runtime>,
    /// Makes and keeps images; with Docker, the same engine.
    pub image_builder: Arc<dyn ImageBuilder>,
    pub clock: Clock,
    /// The services' part of the configuration.
    pub settings: Settings,
    /// Seals what is encrypted at rest.
    pub(crate) master: MasterKey,
    /// Signs and checks tokens.
    pub(crate) keyring: ArcSwap<Keyring>,
    /// What background jobs report.
    pub jobs: Jobs,
}

impl Core {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn new_id<T>(&self) -> Result<Id<T>> {
        random::id(self.now())
    }

    /// The public signing keys as a JWK set.
    pub fn jwks(&self) -> serde_json::Value {
        self.keyring.load().jwks()
    }
}
