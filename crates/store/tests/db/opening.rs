//! Opening a database: its schema is made once, and one from the future is left alone.

use crate::database_fixture::DatabaseFixture;
use crate::owners;
use crate::transactions::add_owner;
use estrade_fixtures::on_both_backends;
use estrade_store::{Db, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

on_both_backends! {
    migrations_run_once_under_parallel_opens
    what_is_made_first_is_made_under_the_lock
    a_failed_opening_lets_the_next_one_in
    a_newer_schema_is_refused
    a_schema_is_not_changed_under_a_live_server
    what_was_written_is_there_after_closing
}

/// How many schema changes there are: every file is one.
fn migrations() -> u64 {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    std::fs::read_dir(folder).unwrap().count() as u64
}

async fn versions(db: &Db) -> u64 {
    let sql = "SELECT COUNT(*) FROM schema_versions";
    db.read(sql).fetch_one().await.unwrap()
}

async fn migrations_run_once_under_parallel_opens(fixture: &DatabaseFixture) {
    let (one, two, three) = tokio::join!(fixture.open(), fixture.open(), fixture.open());
    for db in [one, two, three] {
        assert_eq!(versions(&db).await, migrations());
    }
}

async fn what_is_made_first_is_made_under_the_lock(fixture: &DatabaseFixture) {
    let inside = Arc::new(AtomicU32::new(0));
    let open = async || {
        Db::open(&fixture.location, async |db: Db| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            if owners(&db).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                add_owner(&db, "first").await?;
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, StoreError>(())
        })
        .await
        .unwrap()
    };
    let (one, _, _) = tokio::join!(open(), open(), open());
    assert_eq!(owners(&one).await, ["first"]);
}

async fn a_failed_opening_lets_the_next_one_in(fixture: &DatabaseFixture) {
    let failed = Db::open(&fixture.location, async |_| {
        Err(StoreError::Unusable("no".into()))
    })
    .await;
    assert!(matches!(failed.err(), Some(StoreError::Unusable(_))));
    let patience = Duration::from_secs(5);
    tokio::time::timeout(patience, fixture.open())
        .await
        .unwrap();
}

/// On SQLite there is no other server: what is registered is from before a crash.
async fn a_schema_is_not_changed_under_a_live_server(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let execute = async |sql: &'static str| {
        let executed = db.transact(move |tx| Box::pin(tx.query(sql).execute()));
        let executed: Result<u64, StoreError> = executed.await;
        assert_eq!(executed.unwrap(), 1, "{sql}");
    };
    let is_refused = async || match fixture.try_open().await.err() {
        Some(StoreError::Unusable(reason)) => {
            assert!(reason.contains("stop every server"), "{reason}");
            true
        }
        // The change is made again, which its tables are in the way of.
        Some(_) => false,
        None => panic!("the tables are there"),
    };
    execute("INSERT INTO ledger_nodes (id, deadline) VALUES ('node', 9999999999999)").await;
    drop(fixture.open().await);
    execute(
        "DELETE FROM schema_versions WHERE version = (SELECT MAX(version) FROM schema_versions)",
    )
    .await;
    assert_eq!(is_refused().await, !db.is_sqlite());
    execute("UPDATE ledger_nodes SET deadline = 1").await;
    assert!(!is_refused().await);
}

async fn a_newer_schema_is_refused(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    db.transact(|tx| {
        let sql = "INSERT INTO schema_versions (version) VALUES (999)";
        Box::pin(tx.query(sql).execute())
    })
    .await
    .map_err(|error: StoreError| error)
    .unwrap();
    match fixture.try_open().await.err() {
        Some(StoreError::Unusable(reason)) => assert!(reason.contains("newer version"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

async fn what_was_written_is_there_after_closing(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    add_owner(&db, "a").await.unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(owners(&fixture.open().await).await, ["a"]);
}
