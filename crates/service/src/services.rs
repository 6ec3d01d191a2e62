//! The features that have state of their own, built once at start.
//!
//! Each owns what it keeps in memory; [`Core`] has what all of them need and knows none of them.

use crate::Core;
use crate::ai::key_check::KeyCheck;
use crate::idempotency::Idempotency;
use crate::identity::credentials::AccountTokens;
use crate::identity::login::Logins;
use crate::integrity::IntegrityCheck;
use crate::write_probe::WriteProbe;
use std::sync::Arc;

/// The features of one server.
pub struct Services {
    /// Turns bearer tokens into callers.
    pub tokens: Arc<AccountTokens>,
    /// Logs people in.
    pub logins: Arc<Logins>,
    /// Checks AI keys.
    pub keys: Arc<KeyCheck>,
    /// Carries requests with an idempotency key out once.
    pub idempotency: Arc<Idempotency>,
    /// Looks for damage of the database.
    pub integrity: Arc<IntegrityCheck>,
    /// Finds out whether writes succeed.
    pub write_probe: Arc<WriteProbe>,
}

impl Services {
    /// Builds every feature; none of them does anything yet.
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            tokens: Arc::new(AccountTokens::new(core)),
            logins: Arc::new(Logins::new(core)),
            keys: Arc::new(KeyCheck::new(core)),
            idempotency: Arc::new(Idempotency::new(core)),
            integrity: Arc::new(IntegrityCheck::new(core.db.clone())),
            write_probe: Arc::new(WriteProbe::new(core.db.clone(), core.blobs.clone())),
        }
    }
}
