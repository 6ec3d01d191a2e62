//! What the clones of a store, its stagings and what they published share.

use std::sync::{Arc, Mutex};

use super::claims::Claims;
use super::orphans::Orphans;
use super::storage::ObjectStorage;
use super::{Digest, ObjectId};

/// The state of a store, behind all handles to it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) storage: Arc<dyn ObjectStorage>,
    pub(super) installation: String,
    /// Objects that are published while their rows are on the way.
    pub(super) claims: Claims<ObjectId>,
    /// Contents that a release on its way may have found to be stored.
    pub(super) wanted: Claims<Digest>,
    /// What was found to be without rows.
    pub(super) orphans: Mutex<Orphans>,
}
