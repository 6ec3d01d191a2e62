//! What is stored, and which of it nobody knows: for the garbage collector.

use estrade_model::sync::MutexExt;
use std::collections::HashSet;
use std::sync::MutexGuard;
use std::time::{Duration, SystemTime};

use super::orphans::Orphans;
use super::{BlobError, BlobStore, LookupError, ObjectEntry, ObjectId, owner};

/// What [`BlobStore::remove_orphans`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedOrphans {
    /// How many packs and files.
    pub objects: u64,
    /// How many bytes they had together.
    pub bytes: u64,
}

impl BlobStore {
    /// Goes through every pack and file, in no order. One that disappears meanwhile is left out.
    pub fn objects(
        &self,
    ) -> Result<impl Iterator<Item = Result<ObjectEntry, BlobError>> + '_, BlobError> {
        Ok(self.inner.storage.list()?.map(|it| it.map_err(Into::into)))
    }

    /// Removes packs and files that no row names: what a crash between publishing and the commit
    /// left, and copies of contents that another release committed first.
    ///
    /// Each is kept for `min_age` after it was found to be without a row for the first time, so that a database
    /// that is restored from a backup finds what it names, and after the last write to it, for the sake of other
    /// processes whose commit may be under way. Left alone are whatever a [`PublishedBlobs`](super::PublishedBlobs)
    /// of this process holds, packs that are added to, and everything if the storage belongs to another installation
    /// by now.
    pub fn remove_orphans(
        &self,
        is_known: impl FnMut(ObjectId) -> Result<bool, LookupError>,
        now: SystemTime,
        min_age: Duration,
    ) -> Result<RemovedOrphans, BlobError> {
        // Also when the directory was exchanged under a running server, as by a mount.
        if !owner::check(&*self.inner.storage, &self.inner.installation)? {
            let owner = "nobody".into();
            return Err(BlobError::OtherInstallation { owner });
        }
        let mut orphans = std::mem::take(&mut *self.lock_orphans());
        let removed = self.remove_old(is_known, now, min_age, &mut orphans);
        orphans.save(&*self.inner.storage);
        *self.lock_orphans() = orphans;
        removed
    }

    fn remove_old(
        &self,
        mut is_known: impl FnMut(ObjectId) -> Result<bool, LookupError>,
        now: SystemTime,
        min_age: Duration,
        orphans: &mut Orphans,
    ) -> Result<RemovedOrphans, BlobError> {
        orphans.load(&*self.inner.storage)?;
        let mut removed = RemovedOrphans::default();
        let mut met = HashSet::new();
        for entry in self.objects()? {
            let ObjectEntry { id, size, written } = entry?;
            // In this order: once a pack is closed, all of its parts have been claimed; and whoever gave a claim
            // up has ended the transaction, so that the database, asked after that, gives the final answer.
            if self.inner.storage.is_open_pack(id) || self.inner.claims.contains(&id) {
                continue;
            }
            if is_known(id).map_err(BlobError::Lookup)? {
                continue;
            }
            met.insert(id);
            let since = orphans.note(id, now).max(written);
            if now.duration_since(since).unwrap_or_default() < min_age {
                continue;
            }
            self.inner.storage.delete(id)?;
            removed.objects += 1;
            removed.bytes += size;
            met.remove(&id);
        }
        orphans.retain(&met);
        Ok(removed)
    }

    fn lock_orphans(&self) -> MutexGuard<'_, Orphans> {
        self.inner.orphans.lock_ignoring_poison()
    }
}
