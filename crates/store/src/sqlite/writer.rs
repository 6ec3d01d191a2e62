//! The one writer of a SQLite database.
//!
//! SQLite allows one writer at a time. All transactions go to one thread, which takes those that wait,
//! runs each in a savepoint of its own, and commits them together (group commit): one fsync for all.

use super::{bind, bind_in, fetch, order};
use crate::StoreError;
use crate::changes::{Change, Changes};
use crate::db::{ErasedJob, Tx, TxInner};
use crate::value::{Record, Value};
use estrade_model::error::error_chain;
use futures_util::FutureExt;
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use std::ffi::c_int;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer before callers have to wait to hand theirs over.
const MAX_QUEUED_JOBS: usize = 1024;
/// Most jobs that share one commit: bounds how long the first one waits for the last.
const MAX_BATCH_JOBS: usize = 256;
/// From so many pages on, the write-ahead log is folded back into the file.
const CHECKPOINT_PAGES: usize = 4000;

/// Sends transactions to the writer thread.
pub(crate) struct Writer {
    jobs: mpsc::Sender<WriteJob>,
}

/// A transaction that is queued for the writer thread.
struct WriteJob {
    job: ErasedJob,
    feed: Arc<Changes>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

/// What became of a job inside its savepoint.
enum Outcome {
    /// It stays, once it is on disk; these are the changes to publish then.
    Keep(Vec<Change>),
    /// It was rolled back: by the job, or because of this error.
    Undo(Result<(), StoreError>),
}

impl Writer {
    /// Starts the thread; it ends with the last handle.
    pub(super) fn start(mut connection: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(MAX_QUEUED_JOBS);
        let log = LogLength::watch(&mut connection)?;
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || write_loop(connection, &log, queue))
            .map_err(|error| StoreError::Unavailable(error.into()))?;
        Ok(Self { jobs })
    }

    /// Runs a job in a transaction; on an error it was rolled back, whatever the job returned.
    pub(crate) async fn transact(
        &self,
        job: ErasedJob,
        feed: Arc<Changes>,
    ) -> Result<(), StoreError> {
        let (reply, result) = oneshot::channel();
        let unavailable = |why: &'static str| StoreError::Unavailable(why.into());
        let sent = self.jobs.send(WriteJob { job, feed, reply }).await;
        sent.map_err(|_| unavailable("the database writer has stopped"))?;
        // The sender is dropped when the whole batch was rolled back; the log has the reason.
        result
            .await
            .map_err(|_| unavailable("the transaction was undone"))?
    }
}

impl WriteJob {
    fn run(&self, tx: &mut Tx) -> Outcome {
        // On this backend nothing in a job ever waits, so one poll is all it takes.
        let body = async { (self.job)(tx).await };
        let keep = AssertUnwindSafe(body).catch_unwind().now_or_never();
        let changes = std::mem::take(&mut tx.changes);
        let failed = std::mem::take(&mut tx.failed);
        let bug = |what: &'static str| Outcome::Undo(Err(StoreError::bug(what)));
        match keep {
            Some(Ok(true)) if failed => Outcome::Undo(Err(Tx::kept_after_failure())),
            Some(Ok(true)) => Outcome::Keep(changes),
            Some(Ok(false)) => Outcome::Undo(Ok(())),
            Some(Err(_)) => bug("a transaction panicked"),
            None => bug("a transaction awaited something else"),
        }
    }

    fn complete(self, outcome: Outcome) {
        let result = match outcome {
            // Published here and not by the caller, which may have been dropped, and before the reply: a
            // request that follows it must see the change. A hook that panics must not end the writer.
            Outcome::Keep(changes) => {
                let publish = AssertUnwindSafe(|| self.feed.publish(&changes));
                drop(std::panic::catch_unwind(publish));
                Ok(())
            }
            Outcome::Undo(result) => result,
        };
        // A caller that was dropped does not need the result.
        drop(self.reply.send(result));
    }
}

/// The writer's side of a transaction: its own savepoint on the one writing connection.
pub(crate) struct SqliteTx {
    connection: Connection,
}

impl SqliteTx {
    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    /// Once per row of values; looked up and understood only once.
    pub(crate) fn execute_each(
        &mut self,
        sql: &str,
        rows: &[Vec<Value>],
    ) -> Result<Vec<u64>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let order = order(&statement)?;
        rows.iter()
            .map(|values| {
                bind_in(&order, &mut statement, values)?;
                Ok(statement.raw_execute()? as u64)
            })
            .collect()
    }

    pub(crate) fn fetch<T: Record>(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<T>, StoreError> {
        fetch(&self.connection, sql, values)
    }

    /// Runs several statements at once; for migrations only.
    pub(crate) fn execute_script(&mut self, sql: &str) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn control(&mut self, sql: &'static str) -> Result<(), StoreError> {
        self.execute(sql, &[]).map(drop)
    }
}

/// Takes the jobs that wait, runs them, commits them together and replies, until every sender is dropped.
fn write_loop(connection: Connection, log: &LogLength, mut queue: mpsc::Receiver<WriteJob>) {
    let mut tx = Tx::new(TxInner::Sqlite(SqliteTx { connection }));
    let mut failing = false;
    while let Some(first) = queue.blocking_recv() {
        let mut waiting = vec![first];
        while waiting.len() < MAX_BATCH_JOBS {
            let Ok(job) = queue.try_recv() else { break };
            waiting.push(job);
        }
        commit_together(&mut tx, waiting);
        // SQLite's automatic checkpoint would run inside the commit, and its caller would wait for it.
        if log.is_long() {
            failing = fold_log(&tx, failing).is_err();
        }
    }
}

/// How many pages the write-ahead log has.
struct LogLength(Arc<AtomicUsize>);

impl LogLength {
    /// Watches the log of a connection; from then on SQLite leaves it alone.
    fn watch(connection: &mut Connection) -> Result<Self, StoreError> {
        let pages = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut Wal, pages: c_int| {
            seen.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self(pages))
    }

    fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }
}

/// Checkpoints the write-ahead log, as far as no reader needs it. If it fails, the next commit tries
/// again; the failure is logged once.
fn fold_log(tx: &Tx, failing: bool) -> Result<(), StoreError> {
    let TxInner::Sqlite(SqliteTx { connection }) = &tx.inner else {
        return Ok(());
    };
    let folded = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = &folded
        && !failing
    {
        tracing::warn!(
            error = error_chain(error),
            "cannot fold the write-ahead log"
        );
    }
    Ok(folded?)
}

fn commit_together(tx: &mut Tx, jobs: Vec<WriteJob>) {
    match run_batch(tx, &jobs) {
        // Refusals wait for the commit too: they may rest on what the batch wrote.
        Ok(outcomes) => {
            for (job, outcome) in jobs.into_iter().zip(outcomes) {
                job.complete(outcome);
            }
        }
        // When the disk is full, SQLite rolls back everything, not only the last job. So all replies
        // are dropped, and all callers get the error that the database is not available.
        Err(error) => {
            drop(control(tx, "ROLLBACK"));
            tracing::error!(error = error_chain(&error), "undid a batch of transactions");
        }
    }
}

/// Runs each job in a savepoint of its own and commits; fails when nothing of it is there.
fn run_batch(tx: &mut Tx, jobs: &[WriteJob]) -> Result<Vec<Outcome>, StoreError> {
    control(tx, "BEGIN IMMEDIATE")?;
    let mut outcomes = Vec::with_capacity(jobs.len());
    for job in jobs {
        control(tx, "SAVEPOINT job")?;
        let outcome = job.run(tx);
        if matches!(outcome, Outcome::Undo(_)) {
            control(tx, "ROLLBACK TO job")?;
        }
        control(tx, "RELEASE job")?;
        outcomes.push(outcome);
    }
    control(tx, "COMMIT")?;
    Ok(outcomes)
}

fn control(tx: &mut Tx, sql: &'static str) -> Result<(), StoreError> {
    match &mut tx.inner {
        TxInner::Sqlite(inner) => inner.control(sql),
        TxInner::Postgres(_) => Err(StoreError::bug(
            "the SQLite writer holds another backend's transaction",
        )),
    }
}
