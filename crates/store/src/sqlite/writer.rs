//! The one writer of a SQLite database.
//!
//! SQLite allows one writer at a time. All transactions go to one thread, which takes what waits,
//! runs each in a savepoint of its own, and commits them together: one fsync for many answers.

use super::{bind, fetch};
use crate::StoreError;
use crate::changes::Changes;
use crate::db::{Job, Tx, TxInner};
use crate::value::{Record, Value};
use estrade_model::error::causes;
use futures_util::FutureExt;
use rusqlite::Connection;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer before callers have to wait to hand theirs over.
const QUEUE: usize = 1024;
/// Most jobs that share one commit: bounds how long the first one waits for the last.
const BATCH: usize = 256;
/// Hands transactions to the writer thread.
pub(crate) struct Writer {
    jobs: mpsc::Sender<WriteJob>,
}

/// What a caller hands to the writer thread: runs in a savepoint, then hears how the commit went.
type WriteJob = Box<dyn FnOnce(&mut Tx) -> Settle + Send>;

/// Tells a caller how the commit went.
type AnswerCommit = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Tells a caller why its job was undone.
type AnswerRefusal = Box<dyn FnOnce() + Send>;

enum Settle {
    /// Keep what the job did; tell the caller once it is on disk.
    Keep(AnswerCommit),
    /// Undo what the job did; tell the caller.
    Undo(AnswerRefusal),
}

impl Writer {
    /// Starts the thread; it ends with the last handle.
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || write_loop(connection, queue))
            .map_err(|error| StoreError::Unavailable(error.into()))?;
        Ok(Self { jobs })
    }

    pub(crate) async fn transact<T, E, F>(&self, job: F, feed: Arc<Changes>) -> Result<T, E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let run: WriteJob = Box::new(move |tx| {
            // On this engine nothing in a job ever waits, so one poll is all it takes.
            let body = async { job(tx).await };
            let outcome = AssertUnwindSafe(body).catch_unwind().now_or_never();
            let changes = std::mem::take(&mut tx.changes);
            let failed = std::mem::take(&mut tx.failed);
            match outcome {
                Some(Ok(Ok(_))) if failed => {
                    let bug = Tx::kept_after_failure();
                    Settle::Undo(Box::new(move || drop(reply.send(Err(bug.into())))))
                }
                Some(Ok(Ok(value))) => Settle::Keep(Box::new(move |committed| {
                    // Here and not in the caller: it may have gone away. Before the answer:
                    // whoever asks after the answer must see the change.
                    if committed.is_ok() {
                        feed.publish(&changes);
                    }
                    drop(reply.send(committed.map(|()| value).map_err(E::from)));
                })),
                Some(Ok(Err(error))) => {
                    Settle::Undo(Box::new(move || drop(reply.send(Err(error)))))
                }
                Some(Err(_)) => undo_bug(reply, "a transaction panicked"),
                None => undo_bug(reply, "a transaction awaited something else"),
            }
        });
        let unavailable = |why: &'static str| StoreError::Unavailable(why.into());
        let sent = self.jobs.send(run).await;
        sent.map_err(|_| unavailable("the database writer has stopped"))?;
        // Nobody answers when the whole batch was undone; the log says why.
        answer
            .await
            .map_err(|_| unavailable("the transaction was undone"))?
    }
}

fn undo_bug<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    reply: oneshot::Sender<Result<T, E>>,
    what: &'static str,
) -> Settle {
    Settle::Undo(Box::new(move || {
        drop(reply.send(Err(StoreError::bug(what).into())));
    }))
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

/// Takes what waits, runs it, commits it together, answers, until every sender is gone.
fn write_loop(connection: Connection, mut queue: mpsc::Receiver<WriteJob>) {
    let mut tx = Tx::new(TxInner::Sqlite(SqliteTx { connection }));
    while let Some(first) = queue.blocking_recv() {
        let mut waiting = vec![first];
        while waiting.len() < BATCH {
            let Ok(job) = queue.try_recv() else { break };
            waiting.push(job);
        }
        commit_together(&mut tx, waiting);
    }
}

/// Who hears what when the batch is over.
#[derive(Default)]
struct Batch {
    kept: Vec<AnswerCommit>,
    refused: Vec<AnswerRefusal>,
}

fn commit_together(tx: &mut Tx, jobs: Vec<WriteJob>) {
    let mut batch = Batch::default();
    if let Err(error) = run_batch(tx, jobs, &mut batch) {
        // After a full disk SQLite has undone everything, not only the last job. So do we: all
        // answers are dropped, and all callers hear that the database is not available.
        drop(control(tx, "ROLLBACK"));
        let error = causes(&error);
        tracing::error!(error, "undid a batch of transactions");
        return;
    }
    let committed = control(tx, "COMMIT");
    if let Err(error) = &committed {
        drop(control(tx, "ROLLBACK"));
        tracing::error!(error = causes(error), "cannot commit");
    }
    for answer in batch.kept {
        let result = match &committed {
            Ok(()) => Ok(()),
            Err(error) => Err(StoreError::Unavailable(causes(error).into())),
        };
        // A hook on the change feed that panics must not take the writer with it.
        drop(std::panic::catch_unwind(AssertUnwindSafe(|| {
            answer(result);
        })));
    }
    // Refusals wait for the commit too: they may rest on what the batch wrote. When that is not
    // there after all, they are dropped, and the callers hear that the database is not available.
    if committed.is_ok() {
        for answer in batch.refused {
            answer();
        }
    }
}

/// Runs each job in a savepoint of its own; fails when the transaction as a whole cannot go on.
fn run_batch(tx: &mut Tx, jobs: Vec<WriteJob>, batch: &mut Batch) -> Result<(), StoreError> {
    control(tx, "BEGIN IMMEDIATE")?;
    for job in jobs {
        control(tx, "SAVEPOINT job")?;
        match job(tx) {
            Settle::Keep(answer) => batch.kept.push(answer),
            Settle::Undo(answer) => {
                control(tx, "ROLLBACK TO job")?;
                batch.refused.push(answer);
            }
        }
        control(tx, "RELEASE job")?;
    }
    Ok(())
}

fn control(tx: &mut Tx, sql: &'static str) -> Result<(), StoreError> {
    match &mut tx.inner {
        TxInner::Sqlite(inner) => inner.control(sql),
        TxInner::Postgres(_) => Err(StoreError::bug(
            "the SQLite writer holds another engine's transaction",
        )),
    }
}
