//! How many streams of events and log lines may be open at once: on this node, and of one account.

use crate::api_error::ApiError;
use estrade_model::AccountId;
use estrade_model::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached};

/// Streams that may be open on this node at once: each reads the database from time to time.
pub const MAX_STREAMS: usize = 2048;
/// Of these, those of one account.
pub const MAX_STREAMS_PER_ACCOUNT: usize = 32;

/// The streams that are open on this node.
#[derive(Debug)]
pub struct StreamLimit(KeyedLimit<AccountId>);

impl Default for StreamLimit {
    fn default() -> Self {
        Self(KeyedLimit::new(MAX_STREAMS, MAX_STREAMS_PER_ACCOUNT))
    }
}

impl StreamLimit {
    pub(crate) fn acquire(&self, account: AccountId) -> Result<KeyedPermit<AccountId>, ApiError> {
        let permit = self.0.try_acquire(account);
        permit.map_err(|reached| match reached {
            LimitReached::OfKey => ApiError::TooManyStreams,
            LimitReached::OfAll => ApiError::StreamsFull,
        })
    }
}
