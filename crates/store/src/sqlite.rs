//! SQLite: one writer thread with group commit, readers beside it.
//!
//! SQLite allows one writer at a time. All transactions go to one thread, which takes what waits,
//! runs each in a savepoint of its own, and commits them together: one fsync for many answers.
//! Reads run where they are asked, on a small pool of read-only connections: a point read takes a
//! few microseconds, less than handing it to another thread would.

use crate::StoreError;
use crate::changes::Change;
use crate::db::{Job, Tx, TxInner};
use crate::value::{Record, Row, Value};
use futures_util::FutureExt;
use rusqlite::{Connection, OpenFlags, Statement};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Connections for reading; more than the cores of a small machine ever use at once.
const READERS: usize = 4;
/// Jobs that may wait for the writer before callers have to wait to hand theirs over.
const QUEUE: usize = 1024;
/// Most jobs that share one commit: bounds how long the first one waits for the last.
const BATCH: usize = 256;
/// Distinct statements that each connection keeps prepared.
const PREPARED: usize = 256;

pub(crate) struct Sqlite {
    file: PathBuf,
    jobs: mpsc::Sender<WriteJob>,
    readers: Mutex<Vec<Connection>>,
    permits: Semaphore,
    watcher: Mutex<Connection>,
}

/// What a caller hands to the writer thread: runs in a savepoint, then hears how the commit went.
type WriteJob = Box<dyn FnOnce(&mut Tx) -> Settle + Send>;

enum Settle {
    /// Keep what the job did; tell the caller once it is on disk.
    Keep(Box<dyn FnOnce(Result<(), StoreError>) + Send>),
    /// Undo what the job did; tell the caller.
    Undo(Box<dyn FnOnce() + Send>),
}

impl Sqlite {
    pub(crate) fn open(file: &Path) -> Result<Self, StoreError> {
        make_private(file)?;
        let writer = connect(
            file,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        )?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        // A commit that was answered survives a power cut, not only a crash of this process.
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.pragma_update(None, "wal_autocheckpoint", 4000)?;
        let readers = (0..READERS)
            .map(|_| connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY))
            .collect::<Result<Vec<_>, _>>()?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || write_loop(writer, queue))
            .map_err(|error| StoreError::Unavailable(error.into()))?;
        Ok(Self {
            file: file.to_owned(),
            jobs,
            readers: Mutex::new(readers),
            permits: Semaphore::new(READERS),
            watcher: Mutex::new(connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?),
        })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) async fn read<T: Record>(
        &self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<T>, StoreError> {
        let _permit = self.permits.acquire().await.map_err(StoreError::bug)?;
        let connection = lock(&self.readers)
            .pop()
            .ok_or_else(|| StoreError::bug("no reader behind a permit"))?;
        let rows = fetch(&connection, sql, values);
        lock(&self.readers).push(connection);
        rows
    }

    /// The number that SQLite raises when another connection has committed.
    pub(crate) fn data_version(&self) -> Result<i64, StoreError> {
        // Always the same connection, because the number only means something within one.
        Ok(lock(&self.watcher).pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    pub(crate) async fn transact<T, E, F>(&self, job: F) -> Result<(T, Vec<Change>), E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let run: WriteJob = Box::new(move |tx| {
            // On this engine nothing in a job ever waits, so one poll is all it takes.
            let outcome = AssertUnwindSafe(job(tx)).catch_unwind().now_or_never();
            let changes = std::mem::take(&mut tx.changes);
            match outcome {
                Some(Ok(Ok(value))) => Settle::Keep(Box::new(move |committed| {
                    // A caller that went away does not need the answer.
                    drop(reply.send(committed.map(|()| (value, changes)).map_err(E::from)));
                })),
                Some(Ok(Err(error))) => {
                    Settle::Undo(Box::new(move || drop(reply.send(Err(error)))))
                }
                Some(Err(_)) => undo_bug(reply, "a transaction panicked"),
                None => undo_bug(reply, "a transaction awaited something else"),
            }
        });
        let stopped = || StoreError::Unavailable("the database writer has stopped".into());
        self.jobs.send(run).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Folds the write-ahead log back into the file, so that a copy of the file is whole.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        let connection = connect(&self.file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}

/// Makes the file, readable by its owner only. The log beside it gets the same mode from SQLite.
fn make_private(file: &Path) -> Result<(), StoreError> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let reason = format!("cannot create {}: {error}", file.display());
            Err(StoreError::Unusable(reason))
        }
        _ => Ok(()),
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

fn connect(file: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -2048)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    Ok(connection)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn fetch<T: Record>(
    connection: &Connection,
    sql: &str,
    values: &[Value],
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    let mut rows = statement.raw_query();
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(T::from_row(&mut Row::sqlite(row))?);
    }
    Ok(records)
}

/// Binds `$1` to the first value, and so on.
///
/// SQLite takes `$1` for a name and numbers parameters by their first appearance in the text, so
/// binding by position would mix them up.
fn bind(statement: &mut Statement<'_>, values: &[Value]) -> Result<(), StoreError> {
    if statement.parameter_count() != values.len() {
        return Err(StoreError::bug(
            "a statement has other parameters than values",
        ));
    }
    for index in 1..=values.len() {
        let value = statement
            .parameter_name(index)
            .and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok())
            .and_then(|number| values.get(number.checked_sub(1)?))
            .ok_or_else(|| StoreError::bug("parameters are written $1, $2 and so on"))?;
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
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

    /// Whether SQLite has ended the transaction by itself, as it does when the disk is full.
    fn is_lost(&self) -> bool {
        self.connection.is_autocommit()
    }

    fn control(&mut self, sql: &'static str) -> Result<(), StoreError> {
        self.execute(sql, &[]).map(drop)
    }
}

/// Takes what waits, runs it, commits it together, answers, until every sender is gone.
fn write_loop(connection: Connection, mut queue: mpsc::Receiver<WriteJob>) {
    let mut tx = Tx {
        inner: TxInner::Sqlite(SqliteTx { connection }),
        changes: Vec::new(),
    };
    while let Some(first) = queue.blocking_recv() {
        let mut waiting = vec![first];
        while waiting.len() < BATCH {
            let Ok(job) = queue.try_recv() else { break };
            waiting.push(job);
        }
        commit_together(&mut tx, waiting);
    }
}

fn commit_together(tx: &mut Tx, jobs: Vec<WriteJob>) {
    // The jobs of a batch that cannot begin are dropped: their callers hear "unavailable".
    if let Err(error) = control(tx, "BEGIN IMMEDIATE") {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "cannot begin a transaction"
        );
        return;
    }
    let mut kept = Vec::with_capacity(jobs.len());
    let mut refused = Vec::new();
    for job in jobs {
        match run_in_savepoint(tx, job) {
            Ok(Settle::Keep(answer)) => kept.push(answer),
            Ok(Settle::Undo(answer)) => refused.push(answer),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "a savepoint failed"
            ),
        }
        // Outside of a transaction the savepoint of the next job would commit by itself, while its
        // caller hears that the commit below failed.
        if is_lost(tx) {
            break;
        }
    }
    let committed = control(tx, "COMMIT");
    if committed.is_err() {
        drop(control(tx, "ROLLBACK"));
    }
    let reason = committed.err();
    if let Some(error) = &reason {
        tracing::error!(error = error as &dyn std::error::Error, "cannot commit");
    }
    for answer in kept {
        answer(match &reason {
            None => Ok(()),
            Some(error) => Err(StoreError::Unavailable(error.to_string().into())),
        });
    }
    // Refusals wait for the commit too: they may rest on what the batch wrote.
    for answer in refused {
        answer();
    }
}

fn run_in_savepoint(tx: &mut Tx, job: WriteJob) -> Result<Settle, StoreError> {
    control(tx, "SAVEPOINT job")?;
    let settle = job(tx);
    tx.changes.clear();
    if matches!(settle, Settle::Undo(_)) {
        control(tx, "ROLLBACK TO job")?;
    }
    control(tx, "RELEASE job")?;
    Ok(settle)
}

fn is_lost(tx: &Tx) -> bool {
    match &tx.inner {
        TxInner::Sqlite(inner) => inner.is_lost(),
        TxInner::Postgres(_) => true,
    }
}

fn control(tx: &mut Tx, sql: &'static str) -> Result<(), StoreError> {
    match &mut tx.inner {
        TxInner::Sqlite(inner) => inner.control(sql),
        TxInner::Postgres(_) => Err(StoreError::bug(
            "the SQLite writer holds another engine's transaction",
        )),
    }
}
