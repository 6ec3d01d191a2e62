//! Where what is under way survives a kill: two files that are written in turn, so that one of them is whole.
//!
//! They are not synced: what a process has written is there when it is killed, and a sync would cost more than
//! relaying the calls. After a power cut the older of them may be what is left, or neither.
//!
//! Layout: a hash of the rest, a number that rises, and the calls.

use estrade_model::call::Call;
use estrade_store::calls::Snapshot;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

const NAMES: [&str; 2] = ["under-way.0", "under-way.1"];
const HASH: usize = blake3::OUT_LEN;
const HEAD: usize = HASH + size_of::<u64>();

/// The two files.
pub(super) struct Files {
    both: [File; 2],
    /// How often something was written; tells which file is the next.
    count: u64,
    buffer: Vec<u8>,
}

impl Files {
    /// Opens them; also returns the calls that an earlier run has left.
    pub(super) fn open(directory: &Path) -> io::Result<(Self, Vec<Call>)> {
        let naming = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(naming)?;
        let paths = NAMES.map(|name| directory.join(name));
        let contents = paths
            .each_ref()
            .map(|path| fs::read(path).unwrap_or_default());
        let newest = contents.iter().filter_map(|content| parse(content));
        let newest = newest.max_by_key(|(count, _)| *count);
        let (count, left) = newest.map_or((0, None), |(count, calls)| (count, Some(calls)));
        let left = left.map_or(Some(Vec::new()), Snapshot::calls);
        let left = left.unwrap_or_else(|| {
            tracing::error!("calls that an earlier run had under way cannot be read");
            Vec::new()
        });
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            options.open(path).map_err(naming)
        };
        let both = [open(&paths[0])?, open(&paths[1])?];
        let (count, buffer) = (count + 1, Vec::new());
        let this = Self {
            both,
            count,
            buffer,
        };
        Ok((this, left))
    }

    /// Keeps these calls in the place of those before.
    pub(super) fn write(&mut self, calls: &Snapshot) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend([0; HASH]);
        self.buffer.extend(self.count.to_be_bytes());
        self.buffer.extend(calls.bytes());
        let hash = blake3::hash(&self.buffer[HASH..]);
        self.buffer[..HASH].copy_from_slice(hash.as_bytes());
        let file = &self.both[usize::from(self.count % 2 == 1)];
        file.write_all_at(&self.buffer, 0)?;
        file.set_len(self.buffer.len() as u64)?;
        self.count += 1;
        Ok(())
    }
}

/// The number and the calls of a file that is whole.
fn parse(content: &[u8]) -> Option<(u64, &[u8])> {
    let (head, calls) = content.split_at_checked(HEAD)?;
    let (hash, count) = head.split_at(HASH);
    let is_whole = blake3::hash(&content[HASH..]).as_bytes() == hash;
    let count = u64::from_be_bytes(count.try_into().ok()?);
    is_whole.then_some((count, calls))
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

    fn left(directory: &Path) -> usize {
        Files::open(directory).unwrap().1.len()
    }

    #[test]
    fn what_was_written_last_is_found_and_damage_leaves_what_was_before() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("calls");
        assert_eq!(left(&directory), 0);
        let calls: Vec<_> = (0..9).map(call).collect();
        // Shorter and longer than what was there before, over several lives.
        for counts in [[3, 9, 5], [1, 2, 8], [9, 0, 4]] {
            let (mut files, _) = Files::open(&directory).unwrap();
            for count in counts {
                files.write(&Snapshot::of(&calls[..count])).unwrap();
                assert_eq!(left(&directory), count);
            }
        }
        // As if killed in the middle of writing.
        let newest = NAMES.map(|name| directory.join(name)).into_iter();
        let newest = newest.max_by_key(|path| parse(&fs::read(path).unwrap()).unwrap().0);
        let newest = newest.unwrap();
        let content = fs::read(&newest).unwrap();
        fs::write(&newest, &content[..content.len() - 1]).unwrap();
        assert_eq!(left(&directory), 0);
        for name in NAMES {
            fs::write(directory.join(name), "nonsense").unwrap();
        }
        assert_eq!(left(&directory), 0);
    }
}
