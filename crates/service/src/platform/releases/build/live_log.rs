//! The log of a running build: lines are written in small batches, soon after they were printed.

use crate::Result;
use crate::platform::releases::build_log::BuildLog;
use crate::platform::releases::claim::Claim;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a line waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(250);
/// How many lines are written at once.
const MAX_BATCH_LINES: usize = 500;
/// Most lines of one build.
const MAX_LINES: usize = 50_000;

/// Lines of a build that goes on.
pub(super) struct LiveLog<'c> {
    claim: &'c Claim,
    waiting: BuildLog,
    /// How many wait, and since when.
    count: usize,
    since: Option<Instant>,
    printed: usize,
}

impl<'c> LiveLog<'c> {
    pub(super) fn new(claim: &'c Claim) -> Self {
        Self {
            claim,
            waiting: BuildLog::default(),
            count: 0,
            since: None,
            printed: 0,
        }
    }

    /// Adds a line.
    pub(super) fn push(&mut self, line: impl AsRef<str>) {
        self.printed += 1;
        match self.printed {
            ..=MAX_LINES => self.waiting.push(line.as_ref().trim_end()),
            printed if printed == MAX_LINES + 1 => self.waiting.push("… more lines are left out"),
            _ => return,
        }
        self.count += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Awaits `next`, and writes buffered lines meanwhile. `next` must be cancel safe.
    pub(super) async fn next<T>(&mut self, next: impl Future<Output = T>) -> Result<T> {
        let mut next = std::pin::pin!(next);
        loop {
            let due = self.since.map(|since| since + BATCH_DELAY);
            if self.count >= MAX_BATCH_LINES {
                self.flush().await?;
            }
            let Some(due) = due else {
                return Ok(next.await);
            };
            tokio::select! {
                biased;
                () = sleep_until(due) => self.flush().await?,
                next = &mut next => return Ok(next),
            }
        }
    }

    /// Writes what waits.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if self.count > 0 {
            (self.count, self.since) = (0, None);
            self.claim
                .write_log(std::mem::take(&mut self.waiting))
                .await?;
        }
        Ok(())
    }
}
