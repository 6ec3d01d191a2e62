//! Which packs were read from lately without being fetched: a second read is worth more than its range.

use std::collections::VecDeque;
use std::sync::Mutex;

use estrade_model::sync::MutexExt;

use crate::ObjectId;

const MAX_REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct RecentlyRead(Mutex<VecDeque<ObjectId>>);

impl RecentlyRead {
    /// Whether an object was read from before; it is from now on.
    pub(super) fn is_repeated(&self, id: ObjectId) -> bool {
        let mut recent = self.0.lock_ignoring_poison();
        if recent.contains(&id) {
            return true;
        }
        if recent.len() == MAX_REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(id);
        false
    }
}
