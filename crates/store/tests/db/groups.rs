//! Short jobs that wait at the same time: committed together, and each still as if it ran alone.

use crate::database_fixture::DatabaseFixture;
use crate::transactions::add_owner;
use crate::{add, owners};
use estrade_fixtures::{Fixture, on_both_backends};
use estrade_model::{OwnerId, Timestamp};
use estrade_store::{ChangeKind, Db, Job, StoreError, Tx};
use std::collections::HashSet;
use std::time::Duration;
use tokio::task::JoinSet;

on_both_backends! {
    each_job_is_kept_or_undone_alone
    interleaved_jobs_are_kept_or_undone_alone
    interleaved_jobs_keep_to_a_limit
    only_what_was_kept_is_announced
    increments_in_groups_and_beside_them_lose_nothing
    a_caller_that_goes_away_takes_nobody_along
}

/// Whose jobs they are.
fn owner() -> OwnerId {
    "01a1f66e9a7b530ff5fbc40c".parse().unwrap()
}

/// Every tenth job returns an error, breaks a rule of the schema, goes on after that, or panics.
async fn each_job_is_kept_or_undone_alone(fixture: &DatabaseFixture) {
    keep_or_undo_alone(fixture, false).await;
}

async fn interleaved_jobs_are_kept_or_undone_alone(fixture: &DatabaseFixture) {
    keep_or_undo_alone(fixture, true).await;
}

async fn keep_or_undo_alone(fixture: &DatabaseFixture, interleaved: bool) {
    let db = fixture.open().await;
    add_owner(&db, "taken").await.unwrap();
    let mut jobs = JoinSet::new();
    for number in 0..200 {
        let db = db.clone();
        jobs.spawn(async move {
            let result = if interleaved {
                db.transact_interleaved(owner(), move |tx| keep_or_fail(tx, number))
                    .await
            } else {
                db.transact_in_group(owner(), move |tx| keep_or_fail(tx, number))
                    .await
            };
            (number, result)
        });
    }
    let mut kept = vec!["taken".to_owned()];
    for (number, result) in jobs.join_all().await {
        match (number, number % 10, result) {
            (31 | 41, _, Err(StoreError::Statement(_)))
            | (_, 3, Err(StoreError::Unusable(_)))
            | (_, 5, Err(StoreError::Duplicate))
            | (_, 7, Err(StoreError::Statement(_))) => {}
            (31 | 41, _, result) | (_, 3 | 5 | 7, result) => panic!("{number}: {result:?}"),
            (_, _, result) => {
                result.unwrap();
                kept.push(format!("{number:03}"));
            }
        }
    }
    kept.sort();
    assert_eq!(owners(&db).await, kept);
}

fn keep_or_fail(tx: &mut Tx, number: u32) -> Job<'_, (), StoreError> {
    assert!(number != 31, "a panic before the first statement");
    Box::pin(async move {
        add(tx, &format!("{number:03}")).await?;
        match number % 10 {
            3 => return Err(StoreError::Unusable("changed my mind".into())),
            5 => add(tx, "taken").await?,
            7 => drop(add(tx, "taken").await),
            _ => assert!(number != 41, "a panic after a statement"),
        }
        Ok(())
    })
}

/// The statement that counts looks at the limit.
async fn interleaved_jobs_keep_to_a_limit(fixture: &DatabaseFixture) {
    let handles = [fixture.open().await, fixture.open().await];
    add_owner(&handles[0], "a").await.unwrap();
    let mut jobs = JoinSet::new();
    for number in 0..120 {
        let db = handles[number % 2].clone();
        jobs.spawn(async move {
            let job = db.transact_interleaved(owner(), move |tx| {
                Box::pin(async move {
                    let sql = "UPDATE owners SET keys = keys + 1 WHERE id = 'a' AND keys < 70";
                    let counted = tx.query(sql).execute().await?;
                    add(tx, &format!("{number:03}")).await?;
                    if counted == 0 {
                        return Err(StoreError::Unusable("there are too many".into()));
                    }
                    Ok(())
                })
            });
            job.await
        });
    }
    let kept = jobs.join_all().await.into_iter().flatten();
    assert_eq!(kept.count(), 70);
    assert_eq!(owners(&handles[0]).await.len(), 71);
    let sql = "SELECT keys FROM owners WHERE id = 'a'";
    let counted: i64 = handles[0].read(sql).fetch_one().await.unwrap();
    assert_eq!(counted, 70);
}

async fn only_what_was_kept_is_announced(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let mut feed = db.changes().subscribe();
    let mut jobs = JoinSet::new();
    for number in 0..100 {
        let db = db.clone();
        jobs.spawn(async move {
            let job = db.transact_in_group(owner(), move |tx| {
                Box::pin(async move {
                    let at = Timestamp::from_millis(5);
                    tx.changed(ChangeKind::Key, number.to_string(), at).await?;
                    if number % 2 == 1 {
                        return Err(StoreError::Unusable("changed my mind".into()));
                    }
                    Ok(())
                })
            });
            job.await
        });
    }
    jobs.join_all().await;
    let mut heard = HashSet::new();
    while let Ok(change) = feed.try_recv() {
        heard.insert(change.id.parse::<u32>().unwrap());
    }
    assert_eq!(heard, (0..100).step_by(2).collect());
}

/// Workers of two nodes, and some whose transactions are in no group.
async fn increments_in_groups_and_beside_them_lose_nothing(fixture: &DatabaseFixture) {
    let handles = [fixture.open().await, fixture.open().await];
    add_owner(&handles[0], "a").await.unwrap();
    let mut workers = JoinSet::new();
    for worker in 0..24 {
        let db = handles[worker % 2].clone();
        workers.spawn(async move {
            for _ in 0..20 {
                increment(&db, worker < 20).await.unwrap();
            }
        });
    }
    workers.join_all().await;
    let sql = "SELECT projects FROM owners";
    let total: i64 = handles[0].read(sql).fetch_one().await.unwrap();
    assert_eq!(total, 24 * 20);
}

async fn increment(db: &Db, in_group: bool) -> Result<(), StoreError> {
    if in_group {
        db.transact_in_group(owner(), read_and_write).await
    } else {
        db.transact(read_and_write).await
    }
}

fn read_and_write(tx: &mut Tx) -> Job<'_, (), StoreError> {
    Box::pin(async move {
        let before: i64 = tx.query("SELECT projects FROM owners").fetch_one().await?;
        let update = tx.query("UPDATE owners SET projects = $1").bind(before + 1);
        update.execute().await.map(drop)
    })
}

async fn a_caller_that_goes_away_takes_nobody_along(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let mut jobs = JoinSet::new();
    for number in 0..100 {
        let db = db.clone();
        jobs.spawn(async move {
            let id = format!("{number:02}");
            let job = db.transact_in_group(owner(), move |tx| {
                let id = id.clone();
                Box::pin(async move { add(tx, &id).await })
            });
            if number % 3 == 0 {
                // Polled once: handed over, but not waited for.
                drop(tokio::time::timeout(Duration::ZERO, job).await);
            } else {
                job.await.unwrap();
            }
        });
    }
    jobs.join_all().await;
    let all_there = async {
        while owners(&db).await.len() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, all_there).await.unwrap();
}

/// The second one could not begin before the first one ended if they shared a queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_different_owners_do_not_wait_for_each_other() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let slow = db.transact_in_group(owner(), |tx| {
        Box::pin(async move {
            let sleep = "SELECT 1::bigint FROM (SELECT pg_sleep(30)) AS slept";
            tx.query(sleep).fetch_one::<i64>().await.map(drop)
        })
    });
    let quick = db.transact_in_group(OwnerId::generate(1, 2), |tx| {
        Box::pin(async move { add(tx, "b").await })
    });
    tokio::select! {
        biased;
        slow = slow => panic!("it was to take long: {slow:?}"),
        quick = quick => quick.unwrap_or_else(|error: StoreError| panic!("{error}")),
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_wait_together_share_a_transaction_of_the_server() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let mut jobs = JoinSet::new();
    for number in 0..500 {
        let db = db.clone();
        jobs.spawn(async move {
            let job = db.transact_in_group(owner(), move |tx| {
                Box::pin(async move {
                    add(tx, &format!("{number:03}")).await?;
                    let sql = "SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)";
                    tx.query(sql).fetch_one::<i64>().await
                })
            });
            job.await
                .unwrap_or_else(|error: StoreError| panic!("{error}"))
        });
    }
    let transactions: HashSet<_> = jobs.join_all().await.into_iter().collect();
    assert!(transactions.len() < 100, "{}", transactions.len());
    assert_eq!(owners(&db).await.len(), 500);
    fixture.finish().await;
}

/// In turn, each would count one more than the one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaved_jobs_send_their_statements_at_the_same_time() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let mut jobs = JoinSet::new();
    for number in 0..500 {
        let db = db.clone();
        jobs.spawn(async move {
            let job = db.transact_interleaved(owner(), move |tx| {
                Box::pin(async move {
                    add(tx, &format!("{number:03}")).await?;
                    let sql = "SELECT COUNT(*) FROM owners";
                    tx.query(sql).fetch_one::<i64>().await
                })
            });
            job.await
                .unwrap_or_else(|error: StoreError| panic!("{error}"))
        });
    }
    let counts: HashSet<_> = jobs.join_all().await.into_iter().collect();
    assert!(counts.len() < 250, "{}", counts.len());
    fixture.finish().await;
}
