//! What lies on disk, and which of it nobody knows: for the garbage collector.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use super::{BlobError, BlobStore, LookupError, PlaceId};

/// One pack or file as it lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceEntry {
    /// Which one.
    pub id: PlaceId,
    /// Its length in bytes.
    pub size: u64,
    /// When it was published, or added to for the last time. This is the inode's change time, which a rename
    /// and a write move and the modification time of a slow upload is not.
    pub published: SystemTime,
}

/// What [`BlobStore::remove_orphans`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedOrphans {
    /// How many packs and files.
    pub places: u64,
    /// How many bytes they had together.
    pub bytes: u64,
}

impl BlobStore {
    /// Goes through every pack and file, in no order. One that disappears meanwhile is left out.
    pub fn places(
        &self,
    ) -> Result<impl Iterator<Item = Result<PlaceEntry, BlobError>> + '_, BlobError> {
        let entries = self.disk.list()?;
        Ok(entries.filter_map(|id| {
            id.and_then(|id| self.look_at(id))
                .map_err(BlobError::from)
                .transpose()
        }))
    }

    /// Removes packs and files that no row names: what a crash between publishing and the commit
    /// left, and copies of contents that another release committed first.
    ///
    /// Leaves alone what was published at or after `before`, for the sake of other processes
    /// whose commit may be under way, whatever a [`Published`](super::Published) of this process
    /// holds, and the pack that its small stagings add to.
    pub fn remove_orphans(
        &self,
        mut is_known: impl FnMut(PlaceId) -> Result<bool, LookupError>,
        before: SystemTime,
    ) -> Result<RemovedOrphans, BlobError> {
        let mut removed = RemovedOrphans::default();
        for entry in self.places()? {
            let PlaceEntry {
                id,
                size,
                published,
            } = entry?;
            // The claim is asked first: whoever gave it up has ended the transaction, so that
            // the database, asked after that, gives the final answer.
            if published >= before || self.disk.claims.contains(&id) {
                continue;
            }
            if is_known(id).map_err(BlobError::Lookup)? {
                continue;
            }
            self.disk.remove(id)?;
            removed.places += 1;
            removed.bytes += size;
        }
        Ok(removed)
    }

    fn look_at(&self, id: PlaceId) -> io::Result<Option<PlaceEntry>> {
        match fs::metadata(self.disk.path(id)) {
            Ok(metadata) => Ok(Some(PlaceEntry {
                id,
                size: metadata.len(),
                published: change_time(&metadata),
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A clock before 1970 counts as 1970.
fn change_time(metadata: &fs::Metadata) -> SystemTime {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanos = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}
