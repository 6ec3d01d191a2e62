//! Refused sign-ins on their way to the audit log.
//!
//! They are written down later, in batches: a write before the response would make it slower for an address
//! that has an account than for one that has none, and so tell which is which.

use crate::identity::access::Origin;
use crate::{Core, Result, audit};
use estrade_model::Timestamp;
use estrade_model::names::Email;
use estrade_model::sync::MutexExt;
use estrade_store::accounts;
use std::sync::Mutex;

/// How many wait to be written down; more of them within one interval are dropped.
const MAX_PENDING: usize = 1000;

#[derive(Debug)]
struct Refusal {
    email: Email,
    origin: Origin,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Vec<Refusal>>);

impl Refusals {
    /// Remembers one, if what was typed can be the address of an account.
    pub(crate) fn note(&self, typed: &str, origin: Origin, at: Timestamp) {
        let Ok(email) = typed.parse() else { return };
        let mut pending = self.0.lock_ignoring_poison();
        if pending.len() < MAX_PENDING {
            pending.push(Refusal { email, origin, at });
        }
    }

    /// Writes down those of addresses that have an account.
    pub(crate) async fn flush(&self, core: &Core) -> Result<()> {
        let pending = std::mem::take(&mut *self.0.lock_ignoring_poison());
        for Refusal { email, origin, at } in pending {
            let found = accounts::account_by_email(&core.db, email.as_str()).await?;
            if let Some(account) = found {
                audit::note_refused_sign_in(core, &account, origin, at).await?;
            }
        }
        Ok(())
    }
}
