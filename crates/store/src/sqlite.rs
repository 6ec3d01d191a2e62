//! SQLite: one writer thread with group commit, readers beside it.
//!
//! Reads run on the caller's thread, on a small pool of read-only connections: a point read takes a
//! few microseconds, less than handing it to another thread would.

mod writer;

use crate::StoreError;
use crate::value::{Record, Row, Value};
use estrade_model::sync::MutexExt;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Statement};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
pub(crate) use writer::{SqliteTx, Writer};

/// Connections for reading; more than the cores of a small machine ever use at once.
const READER_CONNECTIONS: usize = 4;
/// Distinct statements that each connection keeps prepared.
const MAX_PREPARED_STATEMENTS: usize = 256;
/// What each connection may hold in memory, as SQLite wants it: negative, in KiB. The system holds the
/// file too, so that what is not here is one call away.
const CACHE_KIB: i64 = -1024;

pub(crate) struct Sqlite {
    file: PathBuf,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    permits: Semaphore,
    watcher: Mutex<Connection>,
}

impl Sqlite {
    pub(crate) fn open(file: &Path) -> Result<Self, StoreError> {
        make_private(file)?;
        let writer = connect(
            file,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        )?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        // An acknowledged commit survives a power cut, not only a crash of this process.
        writer.pragma_update(None, "synchronous", "FULL")?;
        let readers = (0..READER_CONNECTIONS)
            .map(|_| connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            file: file.to_owned(),
            writer: Writer::start(writer)?,
            readers: Mutex::new(readers),
            permits: Semaphore::new(READER_CONNECTIONS),
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
        let permit = self.permits.acquire().await.map_err(StoreError::bug)?;
        let connection = lock(&self.readers).pop();
        let reader = Reader {
            connection,
            home: &self.readers,
            _permit: permit,
        };
        match &reader.connection {
            Some(connection) => fetch(connection, sql, values),
            None => Err(StoreError::bug("no reader behind a permit")),
        }
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The number that SQLite raises when another connection has committed.
    pub(crate) fn data_version(&self) -> Result<i64, StoreError> {
        // Always the same connection, because the number only means something within one.
        Ok(lock(&self.watcher).pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    /// Folds the write-ahead log back into the file, so that a copy of the file is whole.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        let connection = connect(&self.file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}

/// A connection for reading that goes back even when a row could not be read (a panic).
struct Reader<'s> {
    connection: Option<Connection>,
    home: &'s Mutex<Vec<Connection>>,
    _permit: SemaphorePermit<'s>,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        lock(self.home).extend(self.connection.take());
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

fn connect(file: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    // Otherwise SQLite plans some statements anew each time, in case the bound values suggest a
    // better way: a third of the cost of a list.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED_STATEMENTS);
    Ok(connection)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock_ignoring_poison()
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
    let order = order(statement)?;
    bind_in(&order, statement, values)
}

/// For each parameter, in SQLite's order, which value it takes.
fn order(statement: &Statement<'_>) -> Result<Vec<usize>, StoreError> {
    let number = |index| {
        statement
            .parameter_name(index)
            .and_then(|name| {
                name.strip_prefix('$')?
                    .parse::<usize>()
                    .ok()?
                    .checked_sub(1)
            })
            .ok_or_else(|| StoreError::bug("parameters are written $1, $2 and so on"))
    };
    (1..=statement.parameter_count()).map(number).collect()
}

fn bind_in(
    order: &[usize],
    statement: &mut Statement<'_>,
    values: &[Value],
) -> Result<(), StoreError> {
    let differ = || StoreError::bug("a statement has other parameters than values");
    if order.len() != values.len() {
        return Err(differ());
    }
    for (index, number) in order.iter().enumerate() {
        let value = values.get(*number).ok_or_else(differ)?;
        statement.raw_bind_parameter(index + 1, value)?;
    }
    Ok(())
}
