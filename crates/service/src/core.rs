//! What every service needs, built once at start.

use crate::keyring::Keyring;
use crate::priority_gate::PriorityGate;
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
    /// The facts.
    pub db: Db,
    /// The contents of releases.
    pub blobs: BlobStore,
    /// Runs containers. It may not be there: whoever asks it finds out.
    pub runtime: Arc<dyn Runtime>,
    /// Makes and keeps images; with Docker, the same engine.
    pub image_builder: Arc<dyn ImageBuilder>,
    /// What time it is.
    pub clock: Clock,
    /// What the configuration says.
    pub settings: Settings,
    /// Seals what is encrypted at rest.
    pub(crate) master: MasterKey,
    /// Signs and checks tokens.
    pub(crate) keyring: ArcSwap<Keyring>,
    /// What somebody waits for, so that other work gives way.
    pub(crate) priority_gate: PriorityGate,
}

impl Core {
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
