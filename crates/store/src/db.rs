//! One store, two backends.
//!
//! SQL is written once, in the dialect that SQLite and PostgreSQL share: `$1` parameters,
//! `RETURNING`, `ON CONFLICT`, and the column types TEXT, BIGINT, BOOLEAN and bytes. The backend is
//! picked at start from the database URL.
//!
//! Writes go through [`Db::transact`]. On SQLite one writer thread commits the transactions that
//! wait together, with one fsync (group commit); on PostgreSQL each runs serialisably on a pooled
//! connection and is repeated when it clashed, and short ones that wait together are committed together
//! ([`Db::transact_in_group`]). Either way the job behaves as if it ran alone.

use crate::blob_storage::{self, Epoch};
use crate::changes::{Change, Changes};
use crate::postgres::{Mode, Postgres, PostgresTx};
use crate::sqlite::{Sqlite, SqliteTx};
use crate::value::{self, Record, Value};
use crate::{StoreError, migrate};
use estrade_blobs::PROBE_BYTES;
use estrade_model::sync::MutexExt;
use estrade_model::{Id, OwnerId};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The future of a transaction's body.
pub type Job<'t, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>;

/// A transaction's closure with its type erased: it keeps its result itself and only returns whether to
/// commit. So the backends are compiled once, and not once for every transaction of the product.
pub(crate) type ErasedJob =
    Box<dyn for<'t> Fn(&'t mut Tx) -> Boxed<'t, bool> + Send + Sync + 'static>;

/// A future whose code is in the crate that made it, not in every crate that awaits it.
pub(crate) type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Where the database is.
#[derive(Debug, Clone)]
pub enum Location {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL server, by its URL.
    Postgres(estrade_model::secret::Secret),
}

/// A database handle; cheap to clone.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

struct Inner {
    backend: Backend,
    changes: Arc<Changes>,
    /// Which place of contents this process uses: the one that the rows referred to when it opened the database.
    blob_epoch: OnceLock<Epoch>,
}

pub(crate) enum Backend {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Db {
    /// Opens the database and brings its schema up to date; the first call creates it.
    ///
    /// `first` runs under the migration lock each time, after the migrations: the place for what
    /// must be made once per database.
    pub async fn open<F, Fut, E>(location: &Location, first: F) -> Result<Self, E>
    where
        F: FnOnce(Db) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: From<StoreError>,
    {
        let backend = match location {
            Location::Sqlite(file) => {
                let lock = migrate::lock_file(file).await?;
                let backend = Backend::Sqlite(Sqlite::open(file)?);
                let db = Self::with_backend(backend);
                db.prepare(first).await?;
                drop(lock);
                return Ok(db);
            }
            Location::Postgres(url) => Backend::Postgres(Postgres::connect(url).await?),
        };
        let db = Self::with_backend(backend);
        let lock = match db.backend() {
            Backend::Postgres(postgres) => postgres.lock_migrations().await?,
            Backend::Sqlite(_) => return Ok(db),
        };
        db.prepare(first).await?;
        lock.release().await;
        Ok(db)
    }

    async fn prepare<F, Fut, E>(&self, first: F) -> Result<(), E>
    where
        F: FnOnce(Db) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: From<StoreError>,
    {
        migrate::run(self).await?;
        // Before anything is asked of the storage: see `blob_storage`.
        let epoch = blob_storage::read_epoch(self).await?;
        self.0.blob_epoch.get_or_init(|| epoch);
        first(self.clone()).await
    }

    fn with_backend(backend: Backend) -> Self {
        Self(Arc::new(Inner {
            backend,
            changes: Arc::default(),
            blob_epoch: OnceLock::new(),
        }))
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// What followers of changes need.
    pub fn changes(&self) -> &Changes {
        &self.0.changes
    }

    /// Whether this is SQLite, where one server owns the file.
    pub fn is_sqlite(&self) -> bool {
        matches!(self.backend(), Backend::Sqlite(_))
    }

    /// Starts a statement that only reads.
    pub fn read(&self, sql: &'static str) -> Query<'_> {
        Query {
            target: Target::Pool(self.backend()),
            sql,
            values: Vec::new(),
        }
    }

    /// Runs `job` in a write transaction: all of it or, when it returns an error, nothing.
    ///
    /// The job may run more than once, and must await nothing but the transaction it is given. Once
    /// a statement has failed it can only return an error: PostgreSQL undoes the rest anyway.
    ///
    /// The transaction is carried out even when the caller stops waiting for it.
    pub async fn transact<T, E, F>(&self, job: F) -> Result<T, E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (erased, result) = self.erase(job);
        self.run(erased).await?;
        result.take()
    }

    /// Like [`Self::transact`], for a job of a few statements that others of the owner may have to wait for: on PostgreSQL
    /// those that wait at the same time are committed together. It is for what many do at once and the owner's counters see.
    pub async fn transact_in_group<T, E, F>(&self, owner: OwnerId, job: F) -> Result<T, E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (erased, result) = self.erase(job);
        self.run_in_group(owner, Mode::InTurn, erased).await?;
        result.take()
    }

    /// Like [`Self::transact_in_group`], for a job whose statements may be sent while others of its kind are under way: what
    /// it depends on is checked by the statements that write, not by a read before them.
    pub async fn transact_interleaved<T, E, F>(&self, owner: OwnerId, job: F) -> Result<T, E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (erased, result) = self.erase(job);
        self.run_in_group(owner, Mode::Interleaved, erased).await?;
        result.take()
    }

    /// A job that keeps its result itself.
    fn erase<T, E, F>(&self, job: F) -> (ErasedJob, Slot<T, E>)
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let slot = Slot(Arc::new(Mutex::new(None)));
        let kept = Arc::clone(&slot.0);
        let blob_epoch = self.0.blob_epoch.get().copied();
        let erased: ErasedJob = Box::new(move |tx| {
            tx.blob_epoch = blob_epoch;
            let (work, slot) = (job(tx), Arc::clone(&kept));
            Box::pin(async move {
                let result = work.await;
                let keep = result.is_ok();
                *lock(&slot) = Some(result);
                keep
            })
        });
        (erased, slot)
    }

    fn run_in_group(
        &self,
        owner: OwnerId,
        mode: Mode,
        job: ErasedJob,
    ) -> Boxed<'_, Result<(), StoreError>> {
        let changes = Arc::clone(&self.0.changes);
        match self.backend() {
            Backend::Sqlite(_) => self.run(job),
            Backend::Postgres(postgres) => {
                Box::pin(postgres.transact_in_group(owner, mode, job, changes))
            }
        }
    }

    /// Runs a job in a transaction; on an error it was rolled back, whatever the job returned.
    fn run(&self, job: ErasedJob) -> Boxed<'_, Result<(), StoreError>> {
        let changes = Arc::clone(&self.0.changes);
        match self.backend() {
            Backend::Sqlite(sqlite) => Box::pin(sqlite.writer().transact(job, changes)),
            Backend::Postgres(postgres) => Box::pin(postgres.transact(job, changes)),
        }
    }

    /// Whether the database is reachable.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.read("SELECT 1")
            .fetch_optional::<Ping>()
            .await
            .map(drop)
    }

    /// Commits a change that changes nothing.
    pub async fn probe_write(&self) -> Result<(), StoreError> {
        self.transact(|tx| {
            Box::pin(async move {
                tx.query("UPDATE installation SET name = name WHERE slot = 1")
                    .execute()
                    .await
                    .map(drop)
            })
        })
        .await
    }

    /// Whether the file of a SQLite database could grow: its log may have room for small changes on a full disk.
    pub fn probe_files(&self) -> Result<(), StoreError> {
        let Some(directory) = self.file().and_then(Path::parent) else {
            return Ok(());
        };
        let write = || tempfile::tempfile_in(directory)?.write_all(&vec![0; PROBE_BYTES]);
        write().map_err(|error| StoreError::Unavailable(error.into()))
    }

    /// Tidies up; called when the server stops.
    pub fn close(&self) -> Result<(), StoreError> {
        match self.backend() {
            Backend::Sqlite(sqlite) => sqlite.close(),
            Backend::Postgres(postgres) => {
                postgres.close();
                Ok(())
            }
        }
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> Option<&Path> {
        match self.backend() {
            Backend::Sqlite(sqlite) => Some(sqlite.file()),
            Backend::Postgres(_) => None,
        }
    }
}

/// What a job returned.
struct Slot<T, E>(Arc<Mutex<Option<Result<T, E>>>>);

impl<T, E: From<StoreError>> Slot<T, E> {
    fn take(&self) -> Result<T, E> {
        let result = lock(&self.0).take();
        result.unwrap_or_else(|| Err(StoreError::bug("a transaction left no result").into()))
    }
}

fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock_ignoring_poison()
}

struct Ping;
impl Record for Ping {
    fn from_row(_: &mut crate::Row<'_>) -> Result<Self, StoreError> {
        Ok(Self)
    }
}

/// A write transaction.
pub struct Tx {
    pub(crate) inner: TxInner,
    /// What it changed, published after its commit.
    pub(crate) changes: Vec<Change>,
    /// Whether a statement failed: then nothing of it may be committed.
    pub(crate) failed: bool,
    /// Which place of contents this process uses.
    pub(crate) blob_epoch: Option<Epoch>,
}

pub(crate) enum TxInner {
    Sqlite(SqliteTx),
    Postgres(PostgresTx),
}

impl Tx {
    pub(crate) fn new(inner: TxInner) -> Self {
        Self {
            inner,
            changes: Vec::new(),
            failed: false,
            blob_epoch: None,
        }
    }

    /// Whether other transactions run beside this one.
    pub(crate) fn has_many_writers(&self) -> bool {
        matches!(self.inner, TxInner::Postgres(_))
    }

    /// Starts a statement inside the transaction.
    pub fn query(&mut self, sql: &'static str) -> Query<'_> {
        Query {
            target: Target::Tx(self),
            sql,
            values: Vec::new(),
        }
    }

    /// Runs one statement once per row of values; on PostgreSQL without waiting in between.
    pub async fn execute_many(
        &mut self,
        sql: &'static str,
        rows: Vec<Vec<Value>>,
    ) -> Result<(), StoreError> {
        self.execute_each(sql, &rows).await.map(drop)
    }

    /// Runs several statements; on PostgreSQL all of them wait for one round trip together. Returns how many rows each row of
    /// values changed, in order.
    pub async fn execute_together(
        &mut self,
        statements: &[Statement],
    ) -> Result<Vec<u64>, StoreError> {
        let result = match &mut self.inner {
            TxInner::Sqlite(tx) => {
                let counts = statements
                    .iter()
                    .map(|it| tx.execute_each(it.sql, &it.rows));
                let counts: Result<Vec<_>, _> = counts.collect();
                counts.map(|counts| counts.concat())
            }
            TxInner::Postgres(tx) => tx.execute_together(statements).await,
        };
        self.watch(result)
    }

    /// Like [`Self::execute_many`], and returns for each row of values how many rows it changed.
    pub async fn execute_each(
        &mut self,
        sql: &'static str,
        rows: &[Vec<Value>],
    ) -> Result<Vec<u64>, StoreError> {
        let result = match &mut self.inner {
            TxInner::Sqlite(tx) => tx.execute_each(sql, rows),
            TxInner::Postgres(tx) => tx.execute_each(sql, rows).await,
        };
        self.watch(result)
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let result = match &mut self.inner {
            TxInner::Sqlite(tx) => tx.execute(sql, values),
            TxInner::Postgres(tx) => tx.execute(sql, values).await,
        };
        self.watch(result)
    }

    async fn fetch<T: Record>(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<T>, StoreError> {
        let result = match &mut self.inner {
            TxInner::Sqlite(tx) => tx.fetch(sql, values),
            TxInner::Postgres(tx) => tx.fetch(sql, values).await.and_then(|rows| read_all(&rows)),
        };
        self.watch(result)
    }

    fn watch<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.failed |= result.is_err();
        result
    }

    /// The error of a job that wants to commit although one of its statements failed.
    pub(crate) fn kept_after_failure() -> StoreError {
        StoreError::bug("a transaction went on after one of its statements had failed")
    }
}

fn read_all<T: Record>(rows: &[tokio_postgres::Row]) -> Result<Vec<T>, StoreError> {
    rows.iter()
        .map(|row| T::from_row(&mut crate::Row::postgres(row)))
        .collect()
}

/// A statement that is run once for each row of values.
#[derive(Debug, Clone)]
#[must_use]
pub struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) rows: Vec<Vec<Value>>,
}

enum Target<'e> {
    Pool(&'e Backend),
    Tx(&'e mut Tx),
}

/// A statement with its bound values.
#[must_use]
pub struct Query<'e> {
    target: Target<'e>,
    sql: &'static str,
    values: Vec<Value>,
}

impl Query<'_> {
    /// Binds the next `$n` parameter.
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Binds the next three parameters, those of a page: ids below `before`, at most `count` rows, after skipping `skip`.
    pub fn bind_page<T>(self, before: Option<Id<T>>, count: u32, skip: u64) -> Self {
        self.bind(value::before(before))
            .bind(count)
            .bind(i64::try_from(skip).unwrap_or(i64::MAX))
    }

    /// Runs the statement and returns how many rows it touched.
    pub async fn execute(self) -> Result<u64, StoreError> {
        match self.target {
            Target::Pool(_) => Err(StoreError::bug(
                "a statement outside a transaction must only read",
            )),
            Target::Tx(tx) => tx.execute(self.sql, &self.values).await,
        }
    }

    /// Returns every row.
    pub async fn fetch_all<T: Record>(self) -> Result<Vec<T>, StoreError> {
        match self.target {
            Target::Pool(Backend::Sqlite(sqlite)) => sqlite.read(self.sql, &self.values).await,
            Target::Pool(Backend::Postgres(postgres)) => {
                read_all(&postgres.read(self.sql, &self.values).await?)
            }
            Target::Tx(tx) => tx.fetch(self.sql, &self.values).await,
        }
    }

    /// Returns the first row, if there is one.
    pub async fn fetch_optional<T: Record>(self) -> Result<Option<T>, StoreError> {
        Ok(self.fetch_all().await?.into_iter().next())
    }

    /// Returns the first row of a query that always has one.
    pub async fn fetch_one<T: Record>(self) -> Result<T, StoreError> {
        let sql = self.sql;
        self.fetch_optional()
            .await?
            .ok_or_else(|| StoreError::bug(format!("no row where one must be: {sql}")))
    }
}
