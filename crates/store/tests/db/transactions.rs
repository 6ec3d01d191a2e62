//! Transactions: all or nothing, as if each ran alone, whatever its neighbours do.

use crate::database_fixture::DatabaseFixture;
use crate::{add, owners};
use estrade_fixtures::{Fixture, on_both_backends};
use estrade_store::{Db, Location, Record, Row, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

on_both_backends! {
    broken_rules_of_the_schema_have_names
    an_error_undoes_everything
    who_goes_on_after_a_failure_is_undone_too
    a_panic_undoes_its_own_job_only
    many_at_once_are_all_kept
    increments_at_once_lose_nothing
    increments_of_two_processes_lose_nothing
    parameters_go_by_their_number
    a_row_that_panics_costs_no_connection
    a_statement_outside_a_transaction_only_reads
    a_caller_that_goes_away_does_not_stop_its_transaction
}

/// A transaction that adds one owner.
pub(crate) async fn add_owner(db: &Db, id: &str) -> Result<(), StoreError> {
    let id = id.to_owned();
    db.transact(move |tx| {
        let id = id.clone();
        Box::pin(async move { add(tx, &id).await })
    })
    .await
}

async fn broken_rules_of_the_schema_have_names(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    add_owner(&db, "a").await.unwrap();
    let again = add_owner(&db, "a").await;
    assert!(matches!(again, Err(StoreError::Duplicate)), "{again:?}");
    let orphan: Result<_, StoreError> = db
        .transact(|tx| {
            let sql = "INSERT INTO teams (id, name, created_at) VALUES ('t', 't', 0)";
            Box::pin(tx.query(sql).execute())
        })
        .await;
    assert!(matches!(orphan, Err(StoreError::Reference)), "{orphan:?}");
}

async fn an_error_undoes_everything(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let refused: Result<(), StoreError> = db
        .transact(|tx| {
            Box::pin(async move {
                add(tx, "a").await?;
                add(tx, "b").await?;
                Err(StoreError::Unusable("changed my mind".into()))
            })
        })
        .await;
    assert!(
        matches!(refused, Err(StoreError::Unusable(_))),
        "{refused:?}"
    );
    assert!(owners(&db).await.is_empty());
}

/// PostgreSQL would undo it and say nothing; SQLite would keep half of it.
async fn who_goes_on_after_a_failure_is_undone_too(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    add_owner(&db, "taken").await.unwrap();
    let kept: Result<(), StoreError> = db
        .transact(|tx| {
            Box::pin(async move {
                add(tx, "a").await?;
                drop(add(tx, "taken").await);
                Ok(())
            })
        })
        .await;
    assert!(matches!(kept, Err(StoreError::Statement(_))), "{kept:?}");
    assert_eq!(owners(&db).await, ["taken"]);
    add_owner(&db, "b").await.unwrap();
}

async fn a_panic_undoes_its_own_job_only(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let mut jobs = JoinSet::new();
    for number in 0..60 {
        let db = db.clone();
        jobs.spawn(async move {
            db.transact(move |tx| {
                assert!(number % 20 != 7, "a panic before the first statement");
                Box::pin(async move {
                    add(tx, &format!("{number:02}")).await?;
                    assert!(number % 20 != 13, "a panic after a statement");
                    Ok::<_, StoreError>(number)
                })
            })
            .await
        });
    }
    let results = jobs.join_all().await;
    let kept: Vec<_> = results.iter().flatten().collect();
    assert_eq!(kept.len(), 54);
    let refused = results.iter().filter(|result| result.is_err());
    assert!(
        refused
            .clone()
            .all(|result| matches!(result, Err(StoreError::Statement(_))))
    );
    assert_eq!(refused.count(), 6);
    let stored = owners(&db).await;
    assert_eq!(stored.len(), 54);
    assert!(
        kept.iter()
            .all(|number| stored.contains(&format!("{number:02}")))
    );
}

async fn many_at_once_are_all_kept(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let mut jobs = JoinSet::new();
    for number in 0..1000 {
        let db = db.clone();
        jobs.spawn(async move { add_owner(&db, &format!("{number:04}")).await });
    }
    assert!(jobs.join_all().await.iter().all(Result::is_ok));
    // Read by another process: it is in the database, not in a cache of ours.
    assert_eq!(owners(&fixture.open().await).await.len(), 1000);
}

async fn increments_at_once_lose_nothing(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    increment_at_once(&[db]).await;
}

async fn increments_of_two_processes_lose_nothing(fixture: &DatabaseFixture) {
    let (one, two) = (fixture.open().await, fixture.open().await);
    increment_at_once(&[one, two]).await;
}

/// 16 workers, shared out to the handles, add 50 each.
async fn increment_at_once(handles: &[Db]) {
    let db = &handles[0];
    add_owner(db, "a").await.unwrap();
    let mut workers = JoinSet::new();
    for db in handles.iter().cycle().take(16) {
        let db = db.clone();
        workers.spawn(async move {
            for _ in 0..50 {
                increment(&db).await.unwrap();
            }
        });
    }
    workers.join_all().await;
    let total: i64 = db
        .read("SELECT projects FROM owners")
        .fetch_one()
        .await
        .unwrap();
    assert_eq!(total, 16 * 50);
}

/// Reads, then writes: the pattern that loses updates when transactions do not run as if alone.
async fn increment(db: &Db) -> Result<(), StoreError> {
    db.transact(|tx| {
        Box::pin(async move {
            let before: i64 = tx.query("SELECT projects FROM owners").fetch_one().await?;
            let update = tx.query("UPDATE owners SET projects = $1").bind(before + 1);
            update.execute().await.map(drop)
        })
    })
    .await
}

async fn parameters_go_by_their_number(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    add_owner(&db, "a").await.unwrap();
    db.transact(|tx| {
        let update = tx.query("UPDATE owners SET keys = $3, projects = $2 WHERE id = $1");
        Box::pin(update.bind("a").bind(2_i64).bind(3_i64).execute())
    })
    .await
    .map_err(|error: StoreError| error)
    .unwrap();
    let sql = "SELECT projects * 10 + keys FROM owners WHERE projects = $2 AND id = $1";
    let read: Option<i64> = db
        .read(sql)
        .bind("a")
        .bind(2_i64)
        .fetch_optional()
        .await
        .unwrap();
    assert_eq!(read, Some(23));
    let one_short = db.read(sql).bind("a").fetch_optional::<i64>().await;
    assert!(one_short.is_err());
}

struct Panics;
impl Record for Panics {
    fn from_row(_: &mut Row<'_>) -> Result<Self, StoreError> {
        panic!("a row that cannot be read")
    }
}

async fn a_row_that_panics_costs_no_connection(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    for _ in 0..40 {
        let db = db.clone();
        let mut reads = JoinSet::new();
        reads.spawn(async move { db.read("SELECT 1").fetch_all::<Panics>().await.map(drop) });
        assert!(reads.join_next().await.unwrap().unwrap_err().is_panic());
    }
    db.ping().await.unwrap();
}

async fn a_statement_outside_a_transaction_only_reads(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let written = db
        .read("INSERT INTO owners (id) VALUES ('a')")
        .execute()
        .await;
    assert!(written.is_err());
    assert!(owners(&db).await.is_empty());
}

async fn a_caller_that_goes_away_does_not_stop_its_transaction(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    for number in 0..20 {
        let id = format!("{number:02}");
        let adding = add_owner(&db, &id);
        // Polled once: handed over, but not waited for.
        drop(tokio::time::timeout(Duration::ZERO, adding).await);
    }
    let all_there = async {
        while owners(&db).await.len() < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, all_there).await.unwrap();
}

#[tokio::test]
async fn a_job_that_awaits_something_else_is_refused_on_sqlite() {
    let fixture = DatabaseFixture::on_sqlite();
    let db = fixture.open().await;
    let waited: Result<(), StoreError> = db
        .transact(|tx| {
            Box::pin(async move {
                add(tx, "a").await?;
                tokio::task::yield_now().await;
                Ok(())
            })
        })
        .await;
    assert!(
        matches!(waited, Err(StoreError::Statement(_))),
        "{waited:?}"
    );
    add_owner(&db, "b").await.unwrap();
    assert_eq!(owners(&db).await, ["b"]);
}

/// Sets how many pages the file may have.
async fn allow_pages(db: &Db, sql: &'static str) {
    let set: Result<Option<i64>, StoreError> = db
        .transact(move |tx| Box::pin(tx.query(sql).fetch_optional()))
        .await;
    set.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_that_was_acknowledged_on_sqlite() {
    let fixture = DatabaseFixture::on_sqlite();
    let db = fixture.open().await;
    allow_pages(&db, "PRAGMA max_page_count = 300").await;
    let mut jobs = JoinSet::new();
    for number in 0..200 {
        let db = db.clone();
        // Large and small ones, so that some fit where others did not.
        let length = if number % 3 == 0 { 40_000 } else { 10 };
        let id = format!("{number:03}{}", "x".repeat(length));
        jobs.spawn(async move { add_owner(&db, &id).await.map(|()| id) });
    }
    let results = jobs.join_all().await;
    let mut kept: Vec<_> = results.into_iter().flatten().collect();
    kept.sort();
    assert!(kept.len() < 200);
    assert!(owners(&db).await == kept, "stored is what was answered");
    allow_pages(&db, "PRAGMA max_page_count = 100000").await;
    add_owner(&db, "there is room again").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_leaves_no_open_transaction_on_postgres() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    for number in 0..20 {
        let id = format!("{number:02}");
        let slow = db.transact(move |tx| {
            let id = id.clone();
            Box::pin(async move {
                add(tx, &id).await?;
                let sleep = "SELECT 1::bigint FROM (SELECT pg_sleep(0.05)) AS slept";
                tx.query(sleep).fetch_one::<i64>().await.map(drop)
            })
        });
        let moment = Duration::from_millis(number * 4);
        drop(tokio::time::timeout(moment, slow).await);
    }
    let database = fixture.postgres.as_ref().unwrap();
    let open = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
                AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";
    let all_over = async {
        while !database.query(open).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Duration::from_secs(5);
    tokio::time::timeout(patience, all_over).await.unwrap();
    assert!(!owners(&db).await.is_empty());
    fixture.finish().await;
}

/// Its connections look whole, and would refuse every write for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_server_that_takes_no_writes_are_not_kept() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let database = fixture.postgres.as_ref().unwrap();
    database.set_read_only(true).await;
    for number in 0..3 {
        let refused = add_owner(&db, &format!("{number}")).await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
    }
    database.set_read_only(false).await;
    add_owner(&db, "a").await.unwrap();
    fixture.finish().await;
}

/// Only the writer of SQLite checkpoints its log.
#[tokio::test]
async fn the_write_ahead_log_stays_short() {
    let fixture = DatabaseFixture::on_sqlite();
    let db = fixture.open().await;
    for number in 0..100 {
        // About 250 pages.
        add_owner(&db, &format!("{number}{}", "x".repeat(1_000_000)))
            .await
            .unwrap();
    }
    let Location::Sqlite(file) = &fixture.location else {
        panic!("not on SQLite");
    };
    let log = std::fs::metadata(file.with_extension("db-wal")).unwrap();
    assert!(log.len() < 24 << 20, "{} bytes", log.len());
}

/// As of a node that is stopped in the middle of a transaction: what it had locked is free for the others soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_within_a_transaction_does_not_hold_up_the_others() {
    let fixture = DatabaseFixture::on_postgres().await;
    let (stopped, other) = (fixture.open().await, fixture.open().await);
    add_owner(&stopped, "a").await.unwrap();
    let touch = "UPDATE owners SET projects = projects + 1 WHERE id = 'a'";
    let mut tasks = JoinSet::new();
    let inside = Arc::new(Notify::new());
    let entered = Arc::clone(&inside);
    tasks.spawn(async move {
        let held: Result<(), StoreError> = stopped
            .transact(move |tx| {
                let entered = Arc::clone(&entered);
                Box::pin(async move {
                    tx.query(touch).execute().await?;
                    entered.notify_one();
                    tokio::time::sleep(Duration::from_secs(6)).await;
                    tx.query(touch).execute().await.map(drop)
                })
            })
            .await;
        held
    });
    inside.notified().await;
    let began = Instant::now();
    let done: Result<_, StoreError> = other
        .transact(move |tx| Box::pin(tx.query(touch).execute()))
        .await;
    assert_eq!(done.unwrap(), 1);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let held = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(held, Err(StoreError::Unavailable(_))), "{held:?}");
    let projects: Vec<i64> = other
        .read("SELECT projects FROM owners")
        .fetch_all()
        .await
        .unwrap();
    assert_eq!(projects, [1]);
    fixture.finish().await;
}
