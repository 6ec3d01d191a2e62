//! Bounds of detached reads: responses that are read on after their clients have left.

use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Detached reads of a node…
const MAX_READS: usize = 1024;
/// …and of all keys of one owner.
const MAX_READS_PER_OWNER: usize = 64;

/// How many detached reads there are on this node.
#[derive(Default)]
pub(crate) struct ReadLimits(Mutex<HashMap<OwnerId, usize>>);

impl ReadLimits {
    fn by_owner(&self) -> MutexGuard<'_, HashMap<OwnerId, usize>> {
        self.0.lock_ignoring_poison()
    }
}

/// One of the detached reads that may be.
pub(crate) struct ReadPermit {
    limits: Arc<ReadLimits>,
    owner: OwnerId,
}

impl ReadPermit {
    pub(crate) fn acquire(limits: &Arc<ReadLimits>, owner: OwnerId) -> Option<Self> {
        let mut reads = limits.by_owner();
        let all: usize = reads.values().sum();
        let own = reads.get(&owner).copied().unwrap_or(0);
        if all >= MAX_READS || own >= MAX_READS_PER_OWNER {
            return None;
        }
        reads.insert(owner, own + 1);
        Some(Self {
            limits: Arc::clone(limits),
            owner,
        })
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut reads = self.limits.by_owner();
        if let Some(own) = reads.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                reads.remove(&self.owner);
            }
        }
    }
}
