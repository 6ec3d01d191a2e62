//! What every service needs, built once at start.

use crate::keyring::Keyring;
use crate::platform::containers::Fleet;
use crate::platform::containers::logs::{LogCollectorSlot, LogNotifier};
use crate::platform::releases::EagerCompressor;
use crate::priority_gate::PriorityGate;
use crate::publisher::Publisher;
use crate::seal::MasterKey;
use crate::settings::Settings;
use crate::{Result, random};
use arc_swap::ArcSwap;
use estrade_blobs::BlobStore;
use estrade_model::{Id, Timestamp};
use estrade_runtime::{ImageBuilder, Runtime};
use estrade_store::Db;
use estrade_store::clock::Clock;
use std::sync::{Arc, OnceLock, Weak};

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
    /// Who serves releases on this node.
    pub(crate) publisher: OnceLock<Weak<dyn Publisher>>,
}

impl Core {
    /// Says who serves releases on this node; the first one stays.
    pub fn set_publisher(&self, publisher: Weak<dyn Publisher>) {
        drop(self.publisher.set(publisher));
    }

    pub(crate) fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        self.publisher.get()?.upgrade()
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
