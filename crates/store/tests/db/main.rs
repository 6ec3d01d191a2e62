//! The database handle: one suite, two backends, so that they cannot drift apart.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod blob_storage;
#[path = "../support/database_fixture.rs"]
mod database_fixture;
mod feed;
mod groups;
mod opening;
mod rate_buckets;
mod transactions;

use estrade_store::{Db, StoreError, Tx};

/// Adds an owner with that id.
async fn add(tx: &mut Tx, id: &str) -> Result<(), StoreError> {
    tx.query("INSERT INTO owners (id) VALUES ($1)")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// The ids of all owners, in order.
async fn owners(db: &Db) -> Vec<String> {
    db.read("SELECT id FROM owners ORDER BY id")
        .fetch_all()
        .await
        .unwrap()
}
