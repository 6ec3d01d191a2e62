//! The contents that a staging counts on.

use std::sync::Arc;

use super::shared::Shared;
use super::{Digest, DigestSet};

/// The contents that one staging wants, whether they are stored or not; claimed while it lives.
#[derive(Debug)]
pub(super) struct StagingClaims {
    store: Arc<Shared>,
    digests: DigestSet,
}

impl StagingClaims {
    pub(super) fn new(store: Arc<Shared>) -> Self {
        Self {
            store,
            digests: DigestSet::default(),
        }
    }

    /// Claims a content.
    pub(super) fn insert(&mut self, digest: Digest) {
        if self.digests.insert(digest) {
            self.store.wanted.add(digest);
        }
    }
}

impl Drop for StagingClaims {
    fn drop(&mut self) {
        for &digest in &self.digests {
            self.store.wanted.release(digest);
        }
    }
}
