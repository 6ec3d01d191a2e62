//! Small blocks become large ones.

use crate::block::{Batch, unpack};
use crate::error::Result;
use estrade_runtime::LogLine;
use estrade_store::log_blocks::{BlockSize, LogBlock, SPAN};

/// A block of so many bytes is no small one.
const MIN_LARGE_BYTES: i64 = 8 << 10;

/// Runs of small blocks of one instance that fit into one.
pub fn small_runs(sizes: &[BlockSize]) -> Vec<&[BlockSize]> {
    let (mut groups, mut begin) = (Vec::new(), 0);
    for end in 1..=sizes.len() {
        let fits = sizes.get(end).is_some_and(|next| {
            let run = &sizes[begin..=end];
            let of = |pick: fn(&BlockSize) -> i64| run.iter().map(pick);
            let span =
                of(|it| it.last_at).max().unwrap_or(0) - of(|it| it.first_at).min().unwrap_or(0);
            let bytes = of(|it| it.size).sum::<i64>();
            let one = (&run[0].instance, run[0].release) == (&next.instance, next.release);
            one && span <= SPAN
                && bytes <= 2 * MIN_LARGE_BYTES
                && run.iter().all(|it| it.size < MIN_LARGE_BYTES)
        });
        if !fits {
            groups.push(&sizes[begin..end]);
            begin = end;
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// The lines of these blocks in as few as can be, each with the number of the last one that is in it.
pub fn join(blocks: &[LogBlock]) -> Result<Vec<(Batch, i64)>> {
    let mut joined: Vec<(Batch, i64)> = Vec::new();
    for block in blocks {
        let mut lines = Vec::new();
        unpack(block, |line| {
            lines.push(LogLine {
                at: line.at,
                stderr: line.stderr,
                text: line.text.to_owned(),
                cut: false,
            });
        })?;
        if !joined
            .last()
            .is_some_and(|(batch, _)| batch.has_room(&lines))
        {
            joined.push((Batch::default(), block.number));
        }
        if let Some((batch, number)) = joined.last_mut() {
            for line in &lines {
                batch.push(line);
            }
            *number = block.number;
        }
    }
    Ok(joined)
}
