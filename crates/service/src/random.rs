//! Randomness, with failures as errors of the services.

use crate::Error;
use estrade_model::{Id, Timestamp};
use estrade_store::random;
use std::hash::{BuildHasher, RandomState};

/// Fresh random bytes, good enough for secrets.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    random::bytes().map_err(Error::internal)
}

pub(crate) fn id<T>(now: Timestamp) -> Result<Id<T>, Error> {
    random::id(now).map_err(Error::internal)
}

/// A random key for an in-memory hash, against chosen collisions.
pub(crate) fn hash_key() -> (u64, u64) {
    let state = RandomState::new();
    (state.hash_one(0), state.hash_one(1))
}
