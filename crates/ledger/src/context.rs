//! What the ledger needs of the server around it.

use crate::settings::UsageSettings;
use estrade_model::{Id, Timestamp};
use estrade_store::Db;
use estrade_store::clock::Clock;
use estrade_store::random::{self, RandomnessError};

/// Handles and settings of the ledger.
#[derive(Clone)]
pub struct LedgerContext {
    pub db: Db,
    pub clock: Clock,
    pub settings: UsageSettings,
}

impl LedgerContext {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn new_id<T>(&self) -> Result<Id<T>, RandomnessError> {
        random::id(self.now())
    }
}
