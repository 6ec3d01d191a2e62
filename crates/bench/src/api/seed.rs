//! A database with very many keys, written past the server while it is stopped.

use crate::installation::Site;
use crate::random::Random;
use anyhow::Context;
use estrade_model::KeyId;
use rusqlite::params;

/// Adds keys in the shape in which the store writes them, to the owner and workspace that exist.
pub(super) fn add_keys(site: &Site, count: u64) -> anyhow::Result<()> {
    let account = site.account()?;
    let mut database = site.open()?;
    // One transaction that fits into memory; its safety is not what is measured.
    database.pragma_update(None, "cache_size", -1_000_000)?;
    database.pragma_update(None, "synchronous", "OFF")?;
    database.pragma_update(None, "foreign_keys", false)?;
    let workspace: String = database
        .query_row(
            "SELECT id FROM workspaces WHERE owner_id = ?1",
            [&account],
            |row| row.get(0),
        )
        .context("there is no workspace yet")?;
    let first: i64 = database.query_row(
        "SELECT created_at FROM accounts WHERE id = ?1",
        [&account],
        |row| row.get(0),
    )?;
    let mut random = Random::new(1);
    let transaction = database.transaction()?;
    {
        let mut key = transaction.prepare(
            "INSERT INTO keys (id, owner_id, name, enabled, secret_hash, created_by, created_at, version)
             VALUES (?1, ?2, ?3, TRUE, ?4, ?2, ?5, 1)",
        )?;
        let mut in_workspace = transaction.prepare(
            "INSERT INTO key_workspaces (key_id, position, workspace_id) VALUES (?1, 0, ?2)",
        )?;
        for _ in 0..count {
            let id = KeyId::generate(first, random.next()).to_string();
            // 13 characters of one alphabet: that two are the same is out of the question.
            let name = format!("s{:012x}", random.next() >> 16);
            key.execute(params![id, account, name, random.hash(), first])?;
            in_workspace.execute(params![id, workspace])?;
        }
    }
    transaction.execute(
        "UPDATE owners SET keys = keys + ?1 WHERE id = ?2",
        params![i64::try_from(count)?, account],
    )?;
    transaction.commit()?;
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
