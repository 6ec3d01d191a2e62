//! Migrations: embedded, forward-only, run at start under a lock.

use crate::StoreError;
use crate::db::{Db, Tx, TxInner};
use std::path::Path;

/// Every schema change, oldest first. A file that has been released is never edited.
const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("../migrations/0001_init.sql")),
    (2, include_str!("../migrations/0002_edge.sql")),
    (3, include_str!("../migrations/0003_domains.sql")),
    (4, include_str!("../migrations/0004_usage.sql")),
    (5, include_str!("../migrations/0005_settled_slices.sql")),
    (6, include_str!("../migrations/0006_call_blocks.sql")),
    (7, include_str!("../migrations/0007_containers.sql")),
    (8, include_str!("../migrations/0008_former_names.sql")),
    (9, include_str!("../migrations/0009_identity.sql")),
    (13, include_str!("../migrations/0013_project_switches.sql")),
    (14, include_str!("../migrations/0014_warnings.sql")),
    (15, include_str!("../migrations/0015_unused_disks.sql")),
    (16, include_str!("../migrations/0016_sessions.sql")),
    (17, include_str!("../migrations/0017_token_scopes.sql")),
    (18, include_str!("../migrations/0018_audit.sql")),
    (19, include_str!("../migrations/0019_project_pages.sql")),
    (20, include_str!("../migrations/0020_ai_lists.sql")),
    (22, include_str!("../migrations/0022_usage_sums.sql")),
    (23, include_str!("../migrations/0023_device_codes.sql")),
    (24, include_str!("../migrations/0024_failed_calls.sql")),
    (25, include_str!("../migrations/0025_key_names.sql")),
    (26, include_str!("../migrations/0026_nodes.sql")),
    (27, include_str!("../migrations/0027_rate_buckets.sql")),
    (28, include_str!("../migrations/0028_blob_storage.sql")),
];

/// The change that made the table of servers that may spend.
const LEDGER_VERSION: i64 = 4;

/// Held while the schema of a SQLite file is brought up to date.
pub(crate) async fn lock_file(database: &Path) -> Result<std::fs::File, StoreError> {
    let path = database.with_extension("migrate.lock");
    let lock = move || {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.lock()?;
        Ok(file)
    };
    tokio::task::spawn_blocking(lock)
        .await
        .map_err(StoreError::bug)?
        .map_err(|error: std::io::Error| StoreError::Unavailable(error.into()))
}

/// Applies what is missing; refuses a database that a newer version has changed.
pub(crate) async fn run(db: &Db) -> Result<(), StoreError> {
    db.transact(|tx| Box::pin(apply_missing(tx))).await
}

async fn apply_missing(tx: &mut Tx) -> Result<(), StoreError> {
    tx.query("CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY)")
        .execute()
        .await?;
    let applied: Vec<i64> = tx
        .query("SELECT version FROM schema_versions ORDER BY version")
        .fetch_all()
        .await?;
    let newest = MIGRATIONS.last().map_or(0, |(version, _)| *version);
    if applied.last().is_some_and(|version| *version > newest) {
        return Err(StoreError::Unusable(
            "the database was last used by a newer version of Estrade; start that version instead"
                .into(),
        ));
    }
    let is_missing = |(version, _): &&(i64, &str)| !applied.contains(version);
    if applied.contains(&LEDGER_VERSION)
        && MIGRATIONS.iter().any(|migration| is_missing(&migration))
    {
        refuse_live_nodes(tx).await?;
        tracing::info!("bringing the database schema up to date, which may take a while");
    }
    for (version, sql) in MIGRATIONS.iter().filter(is_missing) {
        execute_script(tx, sql).await?;
        tx.query("INSERT INTO schema_versions (version) VALUES ($1)")
            .bind(*version)
            .execute()
            .await?;
        tracing::info!(version, "the database schema was brought up to date");
    }
    Ok(())
}

/// Refuses while a server of the version before still has a part of a budget: it knows nothing of the new tables, so
/// what it wrote during and after the migration would be missing there. Servers that have none are not seen.
async fn refuse_live_nodes(tx: &mut Tx) -> Result<(), StoreError> {
    if matches!(tx.inner, TxInner::Sqlite(_)) {
        return Ok(());
    }
    let live: u64 = tx
        .query(
            "SELECT COUNT(*) FROM ledger_nodes
             WHERE deadline > CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        )
        .fetch_one()
        .await?;
    if live == 0 {
        return Ok(());
    }
    Err(StoreError::Unusable(
        "a server of an earlier version still uses the database; stop every server before a new version starts (one \
         that was killed counts for some seconds)"
            .into(),
    ))
}

/// What the backends spell differently in a schema.
struct Dialect {
    bytes: &'static str,
    serial: &'static str,
    txid: &'static str,
    /// Before a table whose changes need not outlive a crash, if the backend knows such a thing.
    unlogged: &'static str,
    /// Behind a table that lies in the order of its primary key, if the backend knows such a thing.
    clustered: &'static str,
    /// When the month of the column `at` began.
    month_of_at: &'static str,
    /// Behind a text that is compared byte by byte, whatever the language of the database.
    bytewise: &'static str,
}

const SQLITE: Dialect = Dialect {
    bytes: "BLOB",
    serial: "INTEGER PRIMARY KEY AUTOINCREMENT",
    txid: "0",
    unlogged: "",
    clustered: "WITHOUT ROWID",
    month_of_at: "CAST(strftime('%s', at / 1000, 'unixepoch', 'start of month') AS BIGINT) * 1000",
    bytewise: "",
};
const POSTGRES: Dialect = Dialect {
    bytes: "BYTEA",
    serial: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    txid: "(pg_current_xact_id()::text::bigint)",
    unlogged: "UNLOGGED",
    clustered: "",
    month_of_at: "CAST(EXTRACT(EPOCH FROM date_trunc('month', to_timestamp(at / 1000) AT TIME ZONE 'UTC')) AS BIGINT) * 1000",
    bytewise: " COLLATE \"C\"",
};

async fn execute_script(tx: &mut Tx, sql: &str) -> Result<(), StoreError> {
    match &mut tx.inner {
        TxInner::Sqlite(tx) => tx.execute_script(&SQLITE.spell(sql)),
        TxInner::Postgres(tx) => tx.execute_script(&POSTGRES.spell(sql)).await,
    }
}

impl Dialect {
    fn spell(&self, sql: &str) -> String {
        sql.replace("{BYTES}", self.bytes)
            .replace("{SERIAL}", self.serial)
            .replace("{TXID}", self.txid)
            .replace("{UNLOGGED}", self.unlogged)
            .replace("{CLUSTERED}", self.clustered)
            .replace("{MONTH_OF_AT}", self.month_of_at)
            .replace("{BYTEWISE}", self.bytewise)
    }
}
