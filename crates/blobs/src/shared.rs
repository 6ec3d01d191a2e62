//! The pack that small stagings share: each adds what it has to the end. If each had its own, ten thousand
//! small sites would be ten thousand open files, which cost twice as much to read from as few, and each
//! release two fsyncs instead of one.
//!
//! It only grows. A range that was handed out is never written again, not even after its staging has given
//! it up: the edge may have been told of it before the commit that then did not happen, and must find there
//! what it was told, or nothing. So what is given up stays as garbage, like what a crash leaves behind the
//! last row, until the clean-up moves the rest out. A process never adds to what another one has begun.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, naming};
use super::{ObjectId, UniqueId};

/// From this length on, the next staging begins another one.
const MAX_PACK_BYTES: u64 = 64 << 20;

/// The pack that is being added to, if there is one.
#[derive(Debug, Default)]
pub(super) struct SharedPack(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    id: UniqueId,
    file: Arc<SharedFile>,
    /// Where the next staging begins. It never goes back.
    length: u64,
}

/// A file that several write to and make durable together.
#[derive(Debug)]
struct SharedFile {
    file: File,
    /// How many parts were begun and not given up. While the pack is open, it changes under its lock.
    parts: AtomicU64,
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

/// A part of a shared pack that belongs to one staging, and a claim on the pack.
#[derive(Debug)]
pub(super) struct SharedPart {
    pub(super) id: UniqueId,
    pub(super) offset: u64,
    file: Arc<SharedFile>,
}

impl SharedFile {
    fn new(file: File) -> Self {
        Self {
            file,
            parts: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            durable: Mutex::default(),
        }
    }

    /// Writes and makes it durable, together with what others have written meanwhile.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        let own = self.writes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut durable = lock(&self.durable);
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

impl SharedPart {
    pub(super) const fn object(&self) -> ObjectId {
        ObjectId::Pack(self.id)
    }
}

impl Disk {
    /// Makes these bytes durable at the end of the shared pack, and claims it.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<SharedPart> {
        let part = self.reserve(bytes.len() as u64)?;
        let written = part.file.write(bytes, part.offset);
        let Err(error) = written.and_then(|()| part.file.check_name()) else {
            return Ok(part);
        };
        // Nobody knows what the disk has of it, or it is full.
        let object = part.object();
        self.close_shared(object);
        self.give_up(part);
        Err(naming(&self.path(object))(error))
    }

    /// Gives up a part, and the claim that came with it. The pack goes when all of its parts were given up:
    /// then whoever was told of one finds nothing. Else the bytes stay as they are.
    pub(super) fn give_up(&self, part: SharedPart) {
        let SharedPart { id, file, .. } = part;
        let object = ObjectId::Pack(id);
        let mut shared = lock(&self.shared.0);
        if file.parts.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Still under the lock, so that nobody begins another part in it.
            let closed = shared.take_if(|open| open.id == id);
            drop(shared);
            if closed.is_some() {
                self.claims.release(object);
            }
            if let Err(error) = self.remove(object) {
                tracing::warn!(%object, %error, "left an orphaned blob for the next clean-up");
            }
        }
        self.claims.release(object);
    }

    /// Ends a shared pack, so that nobody adds to it any more; whether it was one.
    pub(super) fn close_shared(&self, id: ObjectId) -> bool {
        let closed = lock(&self.shared.0).take_if(|open| ObjectId::Pack(open.id) == id);
        if closed.is_some() {
            self.claims.release(id);
        }
        closed.is_some()
    }

    fn reserve(&self, length: u64) -> io::Result<SharedPart> {
        let mut shared = lock(&self.shared.0);
        if let Some(full) =
            shared.take_if(|open| open.length.saturating_add(length) > MAX_PACK_BYTES)
        {
            self.claims.release(ObjectId::Pack(full.id));
        }
        let open = match &mut *shared {
            Some(open) => open,
            none => none.insert(self.begin_shared()?),
        };
        // What is empty lies anywhere, but not behind the end.
        let offset = if length == 0 { 0 } else { open.length };
        open.length += length;
        open.file.parts.fetch_add(1, Ordering::Relaxed);
        self.claims.add(ObjectId::Pack(open.id));
        Ok(SharedPart {
            id: open.id,
            offset,
            file: Arc::clone(&open.file),
        })
    }

    /// A new one, claimed for as long as it is open.
    fn begin_shared(&self) -> io::Result<Open> {
        let id = UniqueId::new().map_err(io::Error::other)?;
        let object = ObjectId::Pack(id);
        self.claims.add(object);
        let file = self.create_pack(object);
        let file = file.inspect_err(|_| self.claims.release(object))?;
        Ok(Open {
            id,
            file: Arc::new(SharedFile::new(file)),
            length: 0,
        })
    }

    /// An empty pack, whose name lasts: else nothing in it would.
    fn create_pack(&self, object: ObjectId) -> io::Result<File> {
        let path = self.path(object);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(naming(&path))?;
        self.sync(&[object])
            .inspect_err(|_| drop(self.remove(object)))?;
        Ok(file)
    }
}

/// Nothing can be left half-done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::thread;

    /// A disk whose open pack has a name, but writes to a device that fails in its own way.
    fn with_device(root: &Path, device: &str) -> io::Result<(Disk, ObjectId, Arc<SharedFile>)> {
        let disk = Disk::open(root, "test")?;
        let mut open = disk.begin_shared()?;
        let (object, device) = (
            ObjectId::Pack(open.id),
            OpenOptions::new().write(true).open(device)?,
        );
        let file = Arc::new(SharedFile::new(device));
        open.file = Arc::clone(&file);
        *lock(&disk.shared.0) = Some(open);
        Ok((disk, object, file))
    }

    fn packs(root: &Path) -> io::Result<usize> {
        Ok(fs::read_dir(root.join("packs"))?.count())
    }

    #[test]
    fn a_full_disk_leaves_no_empty_pack() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (disk, object, _) = with_device(root.path(), "/dev/full")?;
        assert_eq!(packs(root.path())?, 1);
        let refused = disk.append(b"x").err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::StorageFull));
        assert_eq!(packs(root.path())?, 0);
        assert!(!disk.claims.contains(&object) && !disk.close_shared(object));
        // There is room again.
        disk.append(b"x")?;
        assert_eq!(packs(root.path())?, 1);
        Ok(())
    }

    #[test]
    fn a_full_disk_takes_nothing_from_who_was_before() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (disk, object, _) = with_device(root.path(), "/dev/full")?;
        let before = disk.reserve(1)?;
        assert!(disk.append(b"x").is_err());
        assert!(disk.path(object).exists() && disk.claims.contains(&object));
        assert!(!disk.close_shared(object), "nobody adds to it");
        assert_ne!(disk.append(b"y")?.object(), object);
        disk.give_up(before);
        assert!(!disk.path(object).exists() && !disk.claims.contains(&object));
        Ok(())
    }

    /// Writes to `/dev/null` succeed, and making them durable does not.
    #[test]
    fn after_a_failed_flush_nobody_trusts_the_pack() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (disk, object, file) = with_device(root.path(), "/dev/null")?;
        let waiting = disk.reserve(1)?;
        let failed = disk.append(b"x").err().map(|error| error.kind());
        assert!(failed.is_some());
        assert_eq!(lock(&file.durable).failed, failed);
        // The kernel would say that all is well from now on; who was there already hears of it all the same.
        let late = file.write(b"y", waiting.offset);
        let late = late.err().map(|error| error.to_string());
        assert!(late.is_some_and(|it| it.contains("an earlier write")));
        assert_ne!(disk.append(b"z")?.object(), object);
        Ok(())
    }

    #[test]
    fn all_who_wait_for_a_failed_flush_hear_of_it() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let (disk, object, file) = with_device(root.path(), "/dev/null")?;
        let held = lock(&file.durable);
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| disk.append(b"x"))).collect();
            // All have written, and one of them will flush for all.
            while file.writes.load(Ordering::Acquire) < 4 {
                thread::yield_now();
            }
            drop(held);
            for caller in waiting {
                assert!(caller.join().is_ok_and(|appended| appended.is_err()));
            }
        });
        assert!(!disk.claims.contains(&object));
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
        assert_eq!(lock(&file.durable).writes, 3);
        Ok(())
    }
}
