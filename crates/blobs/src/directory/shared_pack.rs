//! The pack that small stagings of a directory share: each adds what it has to the end. If each had its own, ten
//! thousand small sites would be ten thousand open files, which cost twice as much to read from as few, and each
//! release two fsyncs instead of one.
//!
//! It only grows. A range that was handed out is never written again, not even after its staging has given
//! it up: the edge may have been told of it before the commit that then did not happen, and must find there
//! what it was told, or nothing. So what is given up stays as garbage, like what a crash leaves behind the
//! last row, until garbage collection moves the rest out. A process never adds to what another one has begun.
//!
//! The file is synced by group commit: one `fdatasync` serves all who have written by then.

use estrade_model::sync::MutexExt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::paths::{Paths, naming};
use crate::storage::PackPart;
use crate::{ObjectId, UniqueId};

/// From this length on, the next staging begins another one.
const MAX_PACK_BYTES: u64 = 64 << 20;

/// The pack that is being added to, if there is one.
#[derive(Debug, Default)]
pub(super) struct SharedPack(Mutex<Option<OpenPack>>);

#[derive(Debug)]
struct OpenPack {
    id: UniqueId,
    file: Arc<SharedFile>,
    /// How many parts were begun and not given up. While the pack is open, it changes under the lock.
    parts: Arc<AtomicU64>,
    /// Where the next staging begins. It never goes back.
    length: u64,
}

/// A file that several write to and make durable together.
#[derive(Debug)]
struct SharedFile {
    file: File,
    /// How many writes are done.
    writes: AtomicU64,
    durable: Mutex<Durable>,
}

#[derive(Debug, Default)]
struct Durable {
    /// How many of the writes.
    writes: u64,
    /// The kernel tells of a failure once, to whoever asks first: then nobody knows what is on the disk.
    failed: Option<io::ErrorKind>,
}

impl SharedPack {
    /// Ends a pack, so that nobody adds to it any more; whether it was this one.
    pub(super) fn close(&self, id: ObjectId) -> bool {
        self.0
            .lock_ignoring_poison()
            .take_if(|open| open.object() == id)
            .is_some()
    }

    /// Whether it is this pack that parts are added to. One that is being created holds the lock until it is.
    pub(super) fn is_open(&self, id: ObjectId) -> bool {
        self.0
            .lock_ignoring_poison()
            .as_ref()
            .is_some_and(|open| open.object() == id)
    }
}

impl OpenPack {
    fn new(id: UniqueId, file: File) -> Self {
        Self {
            id,
            file: Arc::new(SharedFile::new(file)),
            parts: Arc::default(),
            length: 0,
        }
    }

    const fn object(&self) -> ObjectId {
        ObjectId::Pack(self.id)
    }
}

impl SharedFile {
    fn new(file: File) -> Self {
        Self {
            file,
            writes: AtomicU64::new(0),
            durable: Mutex::default(),
        }
    }

    /// Writes and makes it durable, together with what others have written meanwhile.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        let own = self.writes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut durable = self.durable.lock_ignoring_poison();
        if let Some(kind) = durable.failed {
            let message = "an earlier write could not be made durable";
            return Err(io::Error::new(kind, message));
        }
        if durable.writes >= own {
            return Ok(());
        }
        let done = self.writes.load(Ordering::Acquire);
        let synced = self.file.sync_data();
        match &synced {
            Ok(()) => durable.writes = done,
            Err(error) => durable.failed = Some(error.kind()),
        }
        drop(durable);
        synced
    }

    /// Whether it still has a name.
    fn check_name(&self) -> io::Result<()> {
        match self.file.metadata()?.nlink() {
            0 => Err(io::Error::other("somebody has removed it")),
            _ => Ok(()),
        }
    }
}

impl SharedPack {
    /// Makes these bytes durable at the end of the pack.
    pub(super) fn append(
        &self,
        paths: &Paths,
        bytes: &[u8],
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<PackPart> {
        let (part, file) = self.reserve(paths, bytes.len() as u64, reserved)?;
        let written = file.write(bytes, part.offset);
        let Err(error) = written.and_then(|()| file.check_name()) else {
            return Ok(part);
        };
        // It is unknown what the disk has of it, or it is full.
        let object = part.object();
        self.close(object);
        if let Err(error) = self.give_up(paths, &part) {
            tracing::warn!(%object, %error, "left an orphaned object to garbage collection");
        }
        Err(naming(&paths.path(object))(error))
    }

    /// Gives up a part. The pack goes when all of its parts were given up: then whoever was told of one finds
    /// nothing. Else the bytes stay as they are.
    pub(super) fn give_up(&self, paths: &Paths, part: &PackPart) -> io::Result<()> {
        let mut shared = self.0.lock_ignoring_poison();
        if part.siblings.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(());
        }
        // Still under the lock, so that nobody begins another part in it.
        shared.take_if(|open| open.id == part.pack);
        drop(shared);
        paths.delete(part.object())
    }

    /// Takes room for a part at the end. `reserved` is called under the lock, while the pack is open: a search for
    /// orphans that finds it closed finds the claim, too.
    fn reserve(
        &self,
        paths: &Paths,
        length: u64,
        reserved: &mut dyn FnMut(ObjectId),
    ) -> io::Result<(PackPart, Arc<SharedFile>)> {
        let mut shared = self.0.lock_ignoring_poison();
        shared.take_if(|open| open.length.saturating_add(length) > MAX_PACK_BYTES);
        let open = match &mut *shared {
            Some(open) => open,
            none => none.insert(begin(paths)?),
        };
        // What is empty lies anywhere, but not behind the end.
        let offset = if length == 0 { 0 } else { open.length };
        open.length += length;
        open.parts.fetch_add(1, Ordering::Relaxed);
        reserved(open.object());
        let part = PackPart {
            pack: open.id,
            offset,
            siblings: Arc::clone(&open.parts),
        };
        Ok((part, Arc::clone(&open.file)))
    }
}

/// An empty pack, whose name lasts: else nothing in it would.
fn begin(paths: &Paths) -> io::Result<OpenPack> {
    let id = UniqueId::new().map_err(io::Error::other)?;
    let object = ObjectId::Pack(id);
    let path = paths.path(object);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(naming(&path))?;
    paths
        .sync(&[object])
        .inspect_err(|_| drop(paths.delete(object)))?;
    Ok(OpenPack::new(id, file))
}

#[cfg(test)]
mod tests {
    use super::super::LocalDirectory;
    use super::*;
    use crate::storage::ObjectStorage;
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::thread;

    /// A directory whose open pack has a name, but writes to a device that fails in its own way.
    fn with_device(
        root: &Path,
        device: &str,
    ) -> io::Result<(LocalDirectory, ObjectId, Arc<SharedFile>)> {
        let directory = LocalDirectory::open(root)?;
        let mut open = begin(&directory.paths)?;
        let (object, device) = (open.object(), OpenOptions::new().write(true).open(device)?);
        let file = Arc::new(SharedFile::new(device));
        open.file = Arc::clone(&file);
        *directory.shared.0.lock_ignoring_poison() = Some(open);
        Ok((directory, object, file))
    }

    fn append(directory: &LocalDirectory, bytes: &[u8]) -> io::Result<PackPart> {
        directory.append_part(bytes, &mut |_| {})
    }

    fn packs(root: &Path) -> io::Result<usize> {
        Ok(fs::read_dir(root.join("packs"))?.count())
    }

    #[test]
    fn a_full_disk_leaves_no_empty_pack() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (directory, object, _) = with_device(root.path(), "/dev/full")?;
        assert_eq!(packs(root.path())?, 1);
        let refused = append(&directory, b"x").err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::StorageFull));
        assert_eq!(packs(root.path())?, 0);
        assert!(!directory.shared.is_open(object) && !directory.shared.close(object));
        // There is room again.
        append(&directory, b"x")?;
        assert_eq!(packs(root.path())?, 1);
        Ok(())
    }

    #[test]
    fn a_full_disk_takes_nothing_from_who_was_before() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (directory, object, _) = with_device(root.path(), "/dev/full")?;
        let (before, _) = directory.shared.reserve(&directory.paths, 1, &mut |_| {})?;
        assert!(append(&directory, b"x").is_err());
        assert!(directory.paths.path(object).exists());
        assert!(!directory.shared.close(object), "nobody adds to it");
        assert_ne!(append(&directory, b"y")?.object(), object);
        directory.discard_part(before)?;
        assert!(!directory.paths.path(object).exists());
        Ok(())
    }

    /// Writes to `/dev/null` succeed, and making them durable does not.
    #[test]
    fn after_a_failed_flush_nobody_trusts_the_pack() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (directory, object, file) = with_device(root.path(), "/dev/null")?;
        let (waiting, _) = directory.shared.reserve(&directory.paths, 1, &mut |_| {})?;
        let failed = append(&directory, b"x").err().map(|error| error.kind());
        assert!(failed.is_some());
        assert_eq!(file.durable.lock_ignoring_poison().failed, failed);
        // The kernel would say that all is well from now on; who was there already hears of it all the same.
        let late = file.write(b"y", waiting.offset);
        let late = late.err().map(|error| error.to_string());
        assert!(late.is_some_and(|it| it.contains("an earlier write")));
        assert_ne!(append(&directory, b"z")?.object(), object);
        Ok(())
    }

    #[test]
    fn all_who_wait_for_a_failed_flush_hear_of_it() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (directory, object, file) = with_device(root.path(), "/dev/null")?;
        let held = file.durable.lock_ignoring_poison();
        thread::scope(|scope| {
            let append = || append(&directory, b"x");
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(append)).collect();
            // All have written, and one of them will flush for all.
            while file.writes.load(Ordering::Acquire) < 4 {
                thread::yield_now();
            }
            drop(held);
            for caller in waiting {
                assert!(caller.join().is_ok_and(|appended| appended.is_err()));
            }
        });
        assert!(!directory.shared.is_open(object));
        assert_eq!(packs(root.path())?, 0, "none of them has anything in it");
        Ok(())
    }

    #[test]
    fn one_flush_is_enough_for_all_that_was_written() -> io::Result<()> {
        let file = SharedFile::new(tempfile::tempfile()?);
        file.write(b"a", 0)?;
        // Written and counted by somebody who did not come to flush it yet.
        file.file.write_all_at(b"b", 1)?;
        file.writes.fetch_add(1, Ordering::AcqRel);
        file.write(b"c", 2)?;
        assert_eq!(file.durable.lock_ignoring_poison().writes, 3);
        Ok(())
    }
}
