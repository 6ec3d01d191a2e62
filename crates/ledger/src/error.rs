//! Failures of the ledger.

use estrade_store::StoreError;
use estrade_store::random::RandomnessError;

/// Why the ledger cannot do its work now.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}
