//! Lines become blocks, and blocks lines.
//!
//! Layout of a block: a format byte, then compressed: for each line the nanoseconds since the one before
//! (8 bytes, big-endian), its stream (1 byte), the length of its text (4 bytes) and its text.

use crate::error::{Error, Result};
use crate::line::{Cursor, StoredLine};
use estrade_model::{ProjectId, ReleaseId};
use estrade_runtime::{InstanceId, InstanceKey, LogLine};
use estrade_store::log_blocks::{LogBlock, NewLogBlock, SPAN};
use std::sync::Arc;

const FORMAT: u8 = 1;
/// What a line takes besides its text.
const LINE_OVERHEAD: usize = 13;
/// A block of so many bytes is written at once.
const FULL_BYTES: usize = 64 << 10;
/// The most that a block may unpack to: one that is full but for a byte, and a line of 16 KiB whose bytes
/// are no UTF-8, each written as three.
const MAX_UNPACKED: usize = FULL_BYTES + LINE_OVERHEAD + 3 * (16 << 10);
/// Six times smaller than it was, in half a millisecond.
const LEVEL: i32 = 3;

/// Lines on their way to a block.
#[derive(Default)]
pub struct Batch {
    raw: Vec<u8>,
    lines: u32,
    /// The moments of the last, the earliest and the latest line.
    times: Option<(i64, i64, i64)>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.raw.len() >= FULL_BYTES
    }

    /// Whether a line of this moment may be in the same block.
    pub fn spans(&self, at: i64) -> bool {
        self.times.is_none_or(|(_, first, last)| {
            last.max(at).saturating_sub(first.min(at)) <= SPAN && !self.is_full()
        })
    }

    /// Whether all of these may be in the same block.
    pub fn has_room(&self, lines: &[LogLine]) -> bool {
        let bytes: usize = lines
            .iter()
            .map(|line| LINE_OVERHEAD + line.text.len())
            .sum();
        self.raw.len() + bytes <= FULL_BYTES && lines.iter().all(|line| self.spans(line.at))
    }

    /// Adds a line, for which [`Batch::spans`] was true.
    pub fn push(&mut self, line: &LogLine) {
        let (previous, first, last) = self.times.unwrap_or((0, line.at, line.at));
        let length = u32::try_from(line.text.len()).unwrap_or(u32::MAX);
        self.raw
            .extend(line.at.wrapping_sub(previous).to_be_bytes());
        self.raw.push(u8::from(line.stderr));
        self.raw.extend(length.to_be_bytes());
        self.raw.extend(line.text.as_bytes());
        self.lines += 1;
        self.times = Some((line.at, first.min(line.at), last.max(line.at)));
    }

    /// The block of these lines; none if there are none.
    pub fn seal(self, id: &InstanceId, key: InstanceKey) -> Result<Option<NewLogBlock>> {
        self.seal_as(key.project, key.release, id.as_str())
    }

    /// The same, of an instance that may be gone.
    pub fn seal_as(
        self,
        project: ProjectId,
        release: ReleaseId,
        instance: &str,
    ) -> Result<Option<NewLogBlock>> {
        let Some((_, first_at, last_at)) = self.times else {
            return Ok(None);
        };
        Ok(Some(NewLogBlock {
            project,
            release,
            instance: instance.to_owned(),
            first_at,
            last_at,
            lines: self.lines,
            data: pack(&self.raw)?,
        }))
    }
}

fn pack(raw: &[u8]) -> Result<Vec<u8>> {
    let packed = zstd::bulk::compress(raw, LEVEL).map_err(Error::Compression)?;
    let mut data = Vec::with_capacity(packed.len() + 1);
    data.push(FORMAT);
    data.extend(packed);
    Ok(data)
}

/// Calls `line` for every line of a block; returns how many bytes were read.
pub fn unpack(block: &LogBlock, mut line: impl FnMut(&Unpacked<'_>)) -> Result<usize> {
    let Some((&FORMAT, packed)) = block.data.split_first() else {
        return Err(Error::Damaged);
    };
    let raw = zstd::bulk::decompress(packed, MAX_UNPACKED).map_err(Error::Compression)?;
    let instance: Arc<str> = Arc::from(block.instance.as_str());
    let (mut rest, mut at, mut index) = (raw.as_slice(), 0_i64, 0);
    while !rest.is_empty() {
        let (since, stderr, text) = take_line(&mut rest).ok_or(Error::Damaged)?;
        at = at.wrapping_add(since);
        line(&Unpacked {
            block,
            instance: &instance,
            index,
            at,
            stderr,
            text,
        });
        index += 1;
    }
    Ok(raw.len())
}

/// A line of a block, before it is filtered.
pub struct Unpacked<'b> {
    block: &'b LogBlock,
    instance: &'b Arc<str>,
    index: u32,
    /// When it was written, in nanoseconds since the epoch.
    pub at: i64,
    /// Whether it was written to stderr.
    pub stderr: bool,
    /// The text, without its end.
    pub text: &'b str,
}

impl Unpacked<'_> {
    /// Its place among all lines of its project.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            block: self.block.number,
            index: self.index,
        }
    }

    /// A copy that outlives the block.
    pub fn keep(&self) -> StoredLine {
        StoredLine {
            cursor: self.cursor(),
            release: self.block.release,
            instance: Arc::clone(self.instance),
            at: self.at,
            stderr: self.stderr,
            text: self.text.to_owned(),
        }
    }
}

fn take_line<'b>(rest: &mut &'b [u8]) -> Option<(i64, bool, &'b str)> {
    let since = i64::from_be_bytes(*rest.split_off(..8)?.as_array()?);
    let stderr = *rest.split_off_first()? != 0;
    let length = u32::from_be_bytes(*rest.split_off(..4)?.as_array()?);
    let text = rest.split_off(..usize::try_from(length).ok()?)?;
    Some((since, stderr, std::str::from_utf8(text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: i64, stderr: bool, text: &str) -> LogLine {
        LogLine {
            at,
            stderr,
            text: text.to_owned(),
            cut: false,
        }
    }

    fn block(batch: &Batch) -> LogBlock {
        LogBlock {
            number: 7,
            release: "0123456789abcdef01234567".parse().unwrap(),
            instance: "web".to_owned(),
            first_at: 0,
            last_at: 0,
            data: pack(&batch.raw).unwrap(),
        }
    }

    fn read(block: &LogBlock) -> Result<Vec<(i64, bool, String)>> {
        let mut lines = Vec::new();
        unpack(block, |line| {
            assert_eq!(line.cursor().index as usize, lines.len());
            lines.push((line.at, line.stderr, line.text.to_owned()));
        })?;
        Ok(lines)
    }

    #[test]
    fn a_block_reads_back_and_damage_is_noticed() {
        let lines = [
            line(1_794_704_523_004_567_891, false, "größer"),
            line(1_794_704_523_004_567_890, true, ""),
            line(1_794_704_523_004_567_890, true, "nul \0 and \u{1f980}"),
            line(-1, false, "before the epoch"),
        ];
        let mut batch = Batch::default();
        for line in &lines {
            batch.push(line);
        }
        assert_eq!(
            batch.times.map(|(_, first, last)| (first, last)),
            Some((-1, lines[0].at))
        );
        let block = block(&batch);
        let expected = lines.map(|line| (line.at, line.stderr, line.text));
        assert_eq!(read(&block).unwrap(), expected);
        let damaged = |data: Vec<u8>| {
            read(&LogBlock {
                data,
                ..block.clone()
            })
        };
        damaged(Vec::new()).unwrap_err();
        damaged(block.data[..block.data.len() - 1].to_vec()).unwrap_err();
        damaged([&[FORMAT + 1], &block.data[1..]].concat()).unwrap_err();
        for cut in 1..batch.raw.len() {
            let read = damaged(pack(&batch.raw[..cut]).unwrap());
            assert!(read.is_err() || read.unwrap().len() < 4, "{cut}");
        }
    }

    /// Blocks of earlier versions are in databases for as long as logs are kept.
    #[test]
    fn the_format_of_stored_blocks_stays() {
        let lines = [
            line(1_794_704_523_004_567_891, false, "größer"),
            line(1_794_704_523_004_567_890, true, ""),
        ];
        let mut batch = Batch::default();
        for line in &lines {
            batch.push(line);
        }
        let raw = b"\x18\xe8\x12\x41\x42\x79\x61\x53\x00\x00\x00\x00\x08gr\xc3\xb6\xc3\x9fer\
            \xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00";
        // A frame of zstd with its length and one block, which is not compressed: it is too short.
        let frame = b"\x28\xb5\x2f\xfd\x20\x22\x11\x01\x00";
        let stored = [&[1], &frame[..], &raw[..]].concat();
        assert_eq!(batch.raw, raw);
        let block = block(&batch);
        assert_eq!(block.data, stored);
        let expected = lines.map(|line| (line.at, line.stderr, line.text));
        assert_eq!(
            read(&LogBlock {
                data: stored,
                ..block
            })
            .unwrap(),
            expected
        );
    }

    #[test]
    fn the_largest_block_can_be_read() {
        let mut batch = Batch::default();
        batch.push(&line(1, false, &"x".repeat(FULL_BYTES - LINE_OVERHEAD - 1)));
        assert!(!batch.is_full() && batch.spans(1));
        batch.push(&line(1, false, &"\u{fffd}".repeat(16 << 10)));
        assert!(batch.is_full() && !batch.spans(1));
        assert_eq!(read(&block(&batch)).unwrap().len(), 2);
    }

    #[test]
    fn a_block_never_spans_much_time() {
        let mut batch = Batch::default();
        assert!(batch.spans(i64::MAX));
        batch.push(&line(SPAN, false, ""));
        assert!(batch.spans(0) && batch.spans(2 * SPAN));
        batch.push(&line(0, false, ""));
        assert!(!batch.spans(SPAN + 1) && !batch.spans(-1));
    }
}
