//! Whether a SQLite file is damaged.

use crate::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// How many steps of SQLite's machine pass between two questions whether to stop.
const STEPS: i32 = 10_000;
/// Three problems are enough to tell.
const QUICK_CHECK: &str = "PRAGMA quick_check(3)";

/// What a check of a database found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// Nothing is wrong with it.
    Sound,
    /// It was stopped before it had seen everything, and had found nothing by then.
    Unfinished,
    /// It is damaged; what was found, in SQLite's words.
    Damaged(String),
}

/// Checks a whole file (`PRAGMA quick_check`) until `stop` interrupts it. It blocks, and changes nothing: not even the
/// write-ahead log is checkpointed, because its content may be all that is left.
pub fn check_file(
    file: &Path,
    stop: impl FnMut() -> bool + Send + 'static,
) -> Result<Integrity, StoreError> {
    match quick_check(file, stop) {
        Ok(found) if found == "ok" => Ok(Integrity::Sound),
        Ok(found) => Ok(Integrity::Damaged(found)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(Integrity::Unfinished)
        }
        Err(error) => match StoreError::from(error) {
            error if error.is_damage() => Ok(Integrity::Damaged(
                estrade_model::error::error_chain(&error),
            )),
            error => Err(error),
        },
    }
}

fn quick_check(
    file: &Path,
    stop: impl FnMut() -> bool + Send + 'static,
) -> rusqlite::Result<String> {
    // Also to read a log that a crash left it must be open for writing.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(Duration::from_millis(500))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.progress_handler(STEPS, Some(stop))?;
    let mut statement = connection.prepare(QUICK_CHECK)?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?;
    Ok(found.collect::<Result<Vec<_>, _>>()?.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    fn database(directory: &Path) -> std::path::PathBuf {
        let file = directory.join("test.db");
        let connection = Connection::open(&file).unwrap();
        let sql = "PRAGMA journal_mode = WAL;
            CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO t SELECT i, hex(randomblob(20)) FROM n;";
        connection.execute_batch(sql).unwrap();
        file
    }

    #[test]
    fn damage_is_found_and_a_good_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = database(directory.path());
        let before = std::fs::read(&file).unwrap();
        assert_eq!(check_file(&file, || false).unwrap(), Integrity::Sound);
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert_eq!(check_file(&file, || true).unwrap(), Integrity::Unfinished);
        let open = || OpenOptions::new().write(true).open(&file).unwrap();
        // A page in the middle.
        open().write_all_at(&[0xff; 4096], 40 * 4096).unwrap();
        let found = check_file(&file, || false).unwrap();
        assert!(matches!(found, Integrity::Damaged(_)), "{found:?}");
        std::fs::write(&file, &before).unwrap();
        // The end is gone.
        open().set_len(before.len() as u64 / 2).unwrap();
        let found = check_file(&file, || false).unwrap();
        assert!(matches!(found, Integrity::Damaged(_)), "{found:?}");
        // It is no database at all.
        std::fs::write(&file, vec![b'x'; 8192]).unwrap();
        let found = check_file(&file, || false).unwrap();
        assert!(matches!(found, Integrity::Damaged(_)), "{found:?}");
    }
}
