//! Randomness from the operating system: for secrets through the one crypto provider.

use crate::Error;
use estrade_model::{Id, Timestamp};
use std::hash::{BuildHasher, RandomState};

/// Fresh random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Error::internal("the system gave no randomness"))?;
    Ok(bytes)
}

/// A new identifier.
pub(crate) fn id<T>(now: Timestamp) -> Result<Id<T>, Error> {
    Ok(Id::generate(now.millis(), u64::from_le_bytes(bytes()?)))
}

/// A key for a hash in memory, that nobody outside can foresee.
pub(crate) fn hash_key() -> (u64, u64) {
    let state = RandomState::new();
    (state.hash_one(0), state.hash_one(1))
}
