//! The two files of the journal, written alternately, so that one of them is whole at any moment.
//!
//! Layout: BLAKE3 over the installation's name and the rest, a sequence number (8 bytes, big endian), a snapshot of
//! calls. A reader takes the file with a valid hash and the higher number: a write that a kill interrupts damages
//! only the older of the two. The name in the hash keeps files of another installation out of this database.
//!
//! The files are not synced: the page cache survives a killed process, and an fsync would cost more than relaying
//! the calls. After a power cut the older snapshot, or none, may be left.

use estrade_model::call::Call;
use estrade_store::calls::Snapshot;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

const FILE_NAMES: [&str; 2] = ["under-way.0", "under-way.1"];
const HASH_BYTES: usize = blake3::OUT_LEN;
const HEADER_BYTES: usize = HASH_BYTES + size_of::<u64>();

pub(crate) struct JournalFiles {
    files: [File; 2],
    /// Upper bounds of the lengths on disk.
    lengths: [usize; 2],
    /// Sequence number of the next write; its parity chooses the file.
    sequence: u64,
    buffer: Vec<u8>,
    installation: String,
}

impl JournalFiles {
    /// Opens or creates the files; also returns the calls of the newest whole one.
    pub(crate) fn open(directory: &Path, name: &str) -> io::Result<(Self, Vec<Call>)> {
        let naming = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(naming)?;
        let paths = FILE_NAMES.map(|name| directory.join(name));
        let read = |path: &Path| match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(naming),
        };
        let contents = [read(&paths[0])?, read(&paths[1])?];
        let newest = contents.iter().filter_map(|content| parse(name, content));
        let newest = newest.max_by_key(|(sequence, _)| *sequence);
        let (sequence, recovered) =
            newest.map_or((0, None), |(sequence, calls)| (sequence, Some(calls)));
        let recovered = recovered.map_or(Some(Vec::new()), Snapshot::calls);
        let recovered = recovered.unwrap_or_else(|| {
            tracing::error!("cannot read the in-flight journal of an earlier run");
            Vec::new()
        });
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            options.open(path).map_err(naming)
        };
        let files = [open(&paths[0])?, open(&paths[1])?];
        let lengths = contents.each_ref().map(Vec::len);
        let (sequence, buffer) = (sequence + 1, Vec::new());
        let this = Self {
            files,
            lengths,
            sequence,
            buffer,
            installation: name.to_owned(),
        };
        Ok((this, recovered))
    }

    /// Writes a snapshot over the older file.
    pub(crate) fn write(&mut self, calls: &Snapshot) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend([0; HASH_BYTES]);
        self.buffer.extend(self.sequence.to_be_bytes());
        self.buffer.extend(calls.bytes());
        let hash = hash(&self.installation, &self.buffer[HASH_BYTES..]);
        self.buffer[..HASH_BYTES].copy_from_slice(hash.as_bytes());
        let written = self.replace(usize::from(self.sequence % 2 == 1));
        if written.is_err() {
            // Both files are emptied: a snapshot that is no longer brought up to date names calls that the
            // database has closed long since, and retention may have removed their rows.
            self.files.iter().for_each(|file| drop(file.set_len(0)));
            self.lengths = [usize::MAX; 2];
        }
        self.sequence += 1;
        written
    }

    fn replace(&mut self, which: usize) -> io::Result<()> {
        let (file, length) = (&self.files[which], &mut self.lengths[which]);
        file.write_all_at(&self.buffer, 0)?;
        // Only when needed: truncating costs more than writing.
        if self.buffer.len() < *length {
            file.set_len(self.buffer.len() as u64)?;
        }
        *length = self.buffer.len();
        Ok(())
    }
}

fn hash(name: &str, rest: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes()).update(rest).finalize()
}

/// The sequence number and the snapshot of a file whose hash is valid.
fn parse<'c>(name: &str, content: &'c [u8]) -> Option<(u64, &'c [u8])> {
    let (head, calls) = content.split_at_checked(HEADER_BYTES)?;
    let (stored, sequence) = head.split_at(HASH_BYTES);
    let is_whole = hash(name, &content[HASH_BYTES..]).as_bytes() == stored;
    let sequence = u64::from_be_bytes(sequence.try_into().ok()?);
    is_whole.then_some((sequence, calls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::amount::Amount;
    use estrade_model::call::{Operation, Tokens};
    use estrade_model::{Id, Timestamp};

    fn call(number: u64) -> Call {
        Call {
            id: Id::generate(1_790_000_000_000, number),
            workspace: Id::from_bytes([1; 12]),
            key: Id::from_bytes([2; 12]),
            created_at: Timestamp::from_millis(3),
            operation: Operation::Chat,
            model: "model".into(),
            provider: "provider".into(),
            status: 0,
            streamed: true,
            partial: true,
            estimated: true,
            cached: false,
            tokens: Tokens::default(),
            cost: Amount::from_nanos(1),
            latency_us: 1,
            ttfb_us: 1,
            attempts: 1,
        }
    }

    fn recovered(directory: &Path) -> usize {
        JournalFiles::open(directory, "here").unwrap().1.len()
    }

    #[test]
    fn what_was_written_last_is_found_and_damage_leaves_what_was_before() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("calls");
        assert_eq!(recovered(&directory), 0);
        let calls: Vec<_> = (0..9).map(call).collect();
        // Shorter and longer than what was there before, over several lives.
        for counts in [[3, 9, 5], [1, 2, 8], [9, 3, 4]] {
            let (mut files, _) = JournalFiles::open(&directory, "here").unwrap();
            for sequence in counts {
                let some: Vec<_> = calls.iter().take(sequence).collect();
                files.write(&Snapshot::of(&some)).unwrap();
                assert_eq!(recovered(&directory), sequence);
            }
        }
        // As if killed in the middle of writing.
        let newest = FILE_NAMES.map(|name| directory.join(name)).into_iter();
        let newest = newest.max_by_key(|path| parse("here", &fs::read(path).unwrap()).unwrap().0);
        let newest = newest.unwrap();
        let content = fs::read(&newest).unwrap();
        assert_eq!(
            JournalFiles::open(&directory, "elsewhere").unwrap().1.len(),
            0
        );
        fs::write(&newest, &content[..content.len() - 1]).unwrap();
        assert_eq!(recovered(&directory), 3);
        for name in FILE_NAMES {
            fs::write(directory.join(name), "nonsense").unwrap();
        }
        assert_eq!(recovered(&directory), 0);
    }
}
