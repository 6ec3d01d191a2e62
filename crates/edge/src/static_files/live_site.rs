//! The static release of a project that is live, with the earlier ones whose assets are still served.

use crate::static_files::site::Site;
use arc_swap::ArcSwapWeak;
use estrade_model::OwnerId;
use estrade_store::routes::LiveRow;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

/// The release that is live, and those that were.
pub struct LiveSite {
    /// Whose share of this node's fetches it uses.
    pub owner: OwnerId,
    pub row: LiveRow,
    /// When it went live, to the second…
    pub(crate) second: u32,
    /// …as a time…
    pub modified: SystemTime,
    /// …and as `Last-Modified`.
    pub last_modified: String,
    /// Whether no other release went live in the same second: else the date tells nothing.
    pub dated: bool,
    /// Releases whose assets pages in open browsers may still ask for, the last one first.
    pub earlier: Vec<LiveRow>,
    /// Its files, for as long as they are in memory: who has this need not look for them there.
    pub(crate) site: ArcSwapWeak<Site>,
}

impl LiveSite {
    /// Its files, if they are in memory.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.site.load().upgrade()
    }

    /// Remembers where its files are in memory.
    pub(crate) fn set_site(&self, site: &Arc<Site>) {
        self.site.store(Arc::downgrade(site));
    }

    /// Its files may lie elsewhere now.
    pub(crate) fn forget_site(&self) {
        self.site.store(Weak::new());
    }
}
