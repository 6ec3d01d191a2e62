//! Whether the engine can limit the size of disks.

use crate::engine::Engine;
use crate::error::Error;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// What is known of it. The engine tells whether its file system is the right one, but not whether that is
/// mounted in the right way: that is known once it has refused.
#[derive(Debug, Default)]
pub(crate) struct Quota(AtomicU8);

impl Engine {
    /// Whether to ask for limits of disks.
    pub(crate) async fn has_quota(&self) -> Result<bool, Error> {
        match self.quota.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                let has = self.info().await?.may_limit_disk;
                self.quota
                    .0
                    .store(if has { YES } else { NO }, Ordering::Relaxed);
                Ok(has)
            }
            known => Ok(known == YES),
        }
    }

    /// The engine has refused to limit a disk.
    pub(crate) fn quota_refused(&self) {
        self.quota.0.store(NO, Ordering::Relaxed);
    }
}
