//! Reads what one instance wrote, and stores what is not stored yet.
//!
//! An engine that follows a log across the files that it keeps of it may repeat a whole file or leave one
//! out (Docker 20.10 does). So a followed log only says that something was written. What
//! that was is then read in sweeps of the end of the log, which the engine gives whole and in order.

use super::shared::ContainerLogs;
use super::stored::{load_window, load_window_around};
use crate::{Core, Error};
use estrade_logs::{Batch, LineFingerprint, TailWindow, Window};
use estrade_runtime::{Error as EngineError, InstanceId, InstanceKey, LogLine, LogsFrom};
use estrade_store::{StoreError, log_blocks};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long after the first new line the first sweep begins, and how long after one the next: lines shall come together.
const FIRST_SWEEP_DELAY: Duration = Duration::from_millis(200);
const SWEEP_DELAY: Duration = Duration::from_millis(700);
/// After a sweep of so many bytes the next one begins at once: the instance writes much.
const BUSY_BYTES: usize = 64 << 10;
/// Lines from the end that a sweep requests at first, and by how much more when they do not reach back to
/// what is stored. The engine finds few lines from the end quickly, however long its log is.
const FIRST_TAIL: u32 = 64;
const TAIL_GROWTH: u32 = 16;
const MAX_TAIL: u32 = 1 << 16;
/// How long an engine may take for the next line of a log that it only has to read.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Stands for lines that the engine threw away before they were read.
const MISSING: &str =
    "estrade: lines are missing here, more was written than could be kept until it was read";

/// Reads the log of one instance.
pub(super) struct Reader {
    pub(super) core: Arc<Core>,
    pub(super) logs: Arc<ContainerLogs>,
    pub(super) id: InstanceId,
    pub(super) key: InstanceKey,
    /// How many may sweep at once.
    pub(super) sweeps: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

/// Why an instance is not read any further.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The reader was cancelled.
    Stopped,
    /// The instance or its project was deleted: the rest is not needed.
    Gone,
    /// The engine or the database is away. What is stored has to be looked up again.
    Failed(Error),
}

impl From<EngineError> for ReadError {
    fn from(error: EngineError) -> Self {
        if error.is_not_found() {
            Self::Gone
        } else {
            Self::Failed(Error::internal(error))
        }
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Lines = BoxStream<'static, Result<LogLine, EngineError>>;

enum Swept {
    /// Everything is stored; so many bytes were new.
    All(usize),
    /// The lines that were requested do not reach back to what is stored.
    Short,
    /// The last line is from long before what is stored: the clock was put back.
    Earlier(i64),
}

impl Reader {
    /// Stores what the instance writes, until it ends and everything is stored.
    pub(super) async fn follow(&self) -> Result<(), ReadError> {
        let mut window = load_window(&self.core, self.id.as_str()).await?;
        let mut ask = FIRST_TAIL;
        loop {
            let runs = self.wait_for_output(&window).await?;
            if runs {
                self.pause(FIRST_SWEEP_DELAY).await?;
            }
            loop {
                let bytes = self.catch_up(&mut window, &mut ask).await?;
                if bytes == 0 {
                    break;
                }
                if bytes < BUSY_BYTES {
                    self.pause(SWEEP_DELAY).await?;
                }
            }
            if !runs {
                return Ok(());
            }
        }
    }

    /// Stores what the instance has written so far.
    pub(super) async fn drain(&self) -> Result<(), ReadError> {
        let mut window = load_window(&self.core, self.id.as_str()).await?;
        self.catch_up(&mut window, &mut FIRST_TAIL.clone())
            .await
            .map(drop)
    }

    /// Waits until there is a line that is not stored: true; or until the instance does not run: false.
    async fn wait_for_output(&self, window: &Window) -> Result<bool, ReadError> {
        let mut lines = self.lines(Some(1), true);
        loop {
            let next = self.stop.run_until_cancelled(lines.next()).await;
            let Some(line) = next.ok_or(ReadError::Stopped)?.transpose()? else {
                return Ok(false);
            };
            // The first one is the last that there was when the engine began to listen.
            let stored = if window.is_past(line.at) {
                !window.has_begun()
            } else {
                window.knows(LineFingerprint::of(&line))
            };
            if !stored {
                return Ok(true);
            }
        }
    }

    /// Stores what is not stored yet; how many bytes that was. After an error the window is of no use.
    async fn catch_up(&self, window: &mut Window, ask: &mut u32) -> Result<usize, ReadError> {
        let turn = self.stop.run_until_cancelled(self.sweeps.acquire()).await;
        let _turn = turn.ok_or(ReadError::Stopped)?.map_err(Error::internal)?;
        loop {
            let last = (window.has_begun() && *ask <= MAX_TAIL).then_some(*ask);
            match self.sweep(window, last).await? {
                Swept::All(bytes) => {
                    if bytes == 0 {
                        *ask = FIRST_TAIL;
                    }
                    return Ok(bytes);
                }
                Swept::Short => *ask = ask.saturating_mul(TAIL_GROWTH),
                Swept::Earlier(at) => {
                    *window = load_window_around(&self.core, self.id.as_str(), at).await?;
                }
            }
        }
    }

    async fn sweep(&self, window: &mut Window, last: Option<u32>) -> Result<Swept, ReadError> {
        let mut lines = self.lines(last, false);
        let (mut batch, mut tail) = (Batch::default(), TailWindow::default());
        let (mut bytes, mut end) = (0, None);
        while let Some(line) = self.next(&mut lines).await? {
            if end.replace(line.at).is_none() && window.has_begun() && !window.is_past(line.at) {
                if last.is_some() {
                    return Ok(Swept::Short);
                }
                if !window.knows(LineFingerprint::of(&line)) {
                    batch.push(&missing(line.at));
                }
            }
            if window.is_past(line.at) {
                continue;
            }
            let fingerprint = LineFingerprint::of(&line);
            tail.add(fingerprint);
            if window.take(fingerprint) {
                continue;
            }
            if !batch.spans(line.at) {
                self.store(take(&mut batch)).await?;
            }
            bytes += line.text.len() + 1;
            batch.push(&line);
        }
        self.store(batch).await?;
        match end {
            Some(at) if window.is_past(at) && window.has_begun() => Ok(Swept::Earlier(at)),
            _ => {
                *window = tail.into_window(take(window));
                Ok(Swept::All(bytes))
            }
        }
    }

    fn lines(&self, last: Option<u32>, follow: bool) -> Lines {
        let from = LogsFrom {
            after: 0,
            last,
            follow,
        };
        self.core.runtime.logs(&self.id, from)
    }

    async fn next(&self, lines: &mut Lines) -> Result<Option<LogLine>, ReadError> {
        let next = timeout(SILENCE_TIMEOUT, lines.next());
        let next = self.stop.run_until_cancelled(next).await;
        let next = next.ok_or(ReadError::Stopped)?;
        let silent = |_| EngineError::TimedOut("reading an instance's log");
        Ok(next.map_err(silent)?.transpose()?)
    }

    async fn pause(&self, length: Duration) -> Result<(), ReadError> {
        let paused = self.stop.run_until_cancelled(sleep(length)).await;
        paused.ok_or(ReadError::Stopped)
    }

    /// Not cancelled by `stop`: the next reader of the instance must find either the whole batch or nothing.
    async fn store(&self, batch: Batch) -> Result<(), ReadError> {
        let sealed = batch.seal(&self.id, self.key).map_err(Error::from)?;
        let Some(block) = sealed else {
            return Ok(());
        };
        let (block, now) = (Arc::new(block), self.core.now());
        let stored = self.core.db.transact(move |tx| {
            let block = Arc::clone(&block);
            Box::pin(async move { log_blocks::insert_block(tx, &block, now).await })
        });
        match stored.await {
            Ok(true) => {
                self.logs.notifier.notify(self.key.project);
                Ok(())
            }
            Ok(false) | Err(StoreError::Reference) => Err(ReadError::Gone),
            Err(error) => Err(ReadError::Failed(error.into())),
        }
    }
}

fn missing(at: i64) -> LogLine {
    LogLine {
        at,
        stderr: true,
        text: MISSING.to_owned(),
        cut: false,
    }
}
