//! The features that have state of their own, built once at start.
//!
//! Each owns what it keeps in memory; [`Core`] has what all of them need and knows none of them.

use crate::ai::key_check::KeyCheck;
use crate::ai::usage::{self, Ledger};
use crate::change_subscription::ChangeSubscription;
use crate::idempotency::Idempotency;
use crate::identity::credentials::AccountTokens;
use crate::identity::login::Logins;
use crate::identity::sessions::Sessions;
use crate::integrity::IntegrityCheck;
use crate::nodes::Membership;
use crate::platform::containers::Fleet;
use crate::platform::containers::logs::{ContainerLogs, LogCollector};
use crate::platform::containers::usage::UsageMeter;
use crate::platform::disks::ResizeSlot;
use crate::platform::releases::EagerCompressor;
use crate::platform::traffic::TrafficRecorder;
use crate::publisher::PublisherSlot;
use crate::storage_probe::StorageProbe;
use crate::write_probe::WriteProbe;
use crate::{Caller, Core, Credential, Error, Result};
use estrade_store::{ChangeKind, Db};
use std::sync::Arc;
use std::time::Duration;

/// What ends a credential, besides time.
pub const CREDENTIAL_CHANGES: &[ChangeKind] =
    &[ChangeKind::Token, ChangeKind::Session, ChangeKind::Account];
/// How often a credential is looked at that may end by itself.
const CREDENTIAL_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The features of one server.
pub struct Services {
    /// Turns bearer tokens into callers.
    pub tokens: Arc<AccountTokens>,
    /// Logs people in.
    pub logins: Arc<Logins>,
    /// Signs people in to the account panel.
    pub sessions: Arc<Sessions>,
    /// Checks AI keys.
    pub keys: Arc<KeyCheck>,
    /// Accounts for calls.
    pub ledger: Arc<Ledger>,
    /// Carries requests with an idempotency key out once.
    pub idempotency: Arc<Idempotency>,
    /// The nodes that share the database.
    pub nodes: Arc<Membership>,
    /// Looks for damage of the database.
    pub integrity: Arc<IntegrityCheck>,
    /// Finds out whether writes succeed.
    pub write_probe: Arc<WriteProbe>,
    /// Finds out whether the bucket answers.
    pub storage_probe: Arc<StorageProbe>,
    /// The publisher of this node.
    pub publisher: Arc<PublisherSlot>,
    /// Compresses what is uploaded ahead of its release.
    pub eager_compressor: EagerCompressor,
    /// Lets one disk be resized at a time.
    pub resize_slot: ResizeSlot,
    /// What readers and writers of container logs share.
    pub logs: Arc<ContainerLogs>,
    /// Stores what instances write.
    pub log_collector: Arc<LogCollector>,
    /// What is known of the instances that run here.
    pub fleet: Arc<Fleet>,
    /// Measures what instances use.
    pub meter: Arc<UsageMeter>,
    /// Records the traffic of projects.
    pub traffic: Arc<TrafficRecorder>,
}

impl Services {
    /// Builds every feature; none of them does anything yet.
    pub fn new(core: &Arc<Core>) -> Result<Self> {
        let (publisher, logs) = (Arc::default(), Arc::default());
        let log_collector = LogCollector::new(core, &logs);
        let logins = Arc::new(Logins::new(core));
        let fleet = Fleet::new(core, &publisher, &log_collector);
        let meter = UsageMeter::new(&fleet);
        let traffic = Arc::new(TrafficRecorder::new(core, &publisher, &meter));
        Ok(Self {
            tokens: Arc::new(AccountTokens::new(core)),
            sessions: Arc::new(Sessions::new(core, &logins)),
            logins,
            keys: Arc::new(KeyCheck::new(core)),
            ledger: usage::new_ledger(core)?,
            idempotency: Arc::new(Idempotency::new(core)),
            nodes: Arc::new(Membership::new(core)?),
            integrity: Arc::new(IntegrityCheck::new(core.db.clone())),
            write_probe: Arc::new(WriteProbe::new(core.db.clone(), core.blobs.clone())),
            storage_probe: Arc::new(StorageProbe::new(core.blobs.clone())),
            publisher,
            eager_compressor: EagerCompressor::default(),
            resize_slot: ResizeSlot::default(),
            logs,
            log_collector,
            meter,
            traffic,
            fleet,
        })
    }

    /// Returns when the caller's credential has ended; for streams, in which nothing may happen for long.
    pub async fn credential_ended(&self, db: &Db, caller: &Caller) {
        // Before the first look: a change in between is not missed.
        let mut watch = ChangeSubscription::start(db);
        // A database that is away for a moment is no reason to hang up.
        while !matches!(self.check_again(caller).await, Err(Error::Unauthenticated)) {
            let changed = watch.any_changed(CREDENTIAL_CHANGES);
            drop(tokio::time::timeout(CREDENTIAL_POLL_INTERVAL, changed).await);
        }
    }

    /// Refuses a caller whose credential has ended since; for what outlives its request.
    pub async fn check_again(&self, caller: &Caller) -> Result<()> {
        match caller.credential {
            Credential::Token(id) => self.tokens.check_again(id).await,
            Credential::Session(id) => self.sessions.check_again(id).await,
        }
    }
}
