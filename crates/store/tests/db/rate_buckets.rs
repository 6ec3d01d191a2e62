//! Buckets that nodes share: what they use adds up, and no more is granted than there is.

use crate::database_fixture::DatabaseFixture;
use estrade_fixtures::Fixture;
use estrade_model::Timestamp;
use estrade_model::rate::{RATE_ONE, RateReply, RateReport, RateUnit};
use estrade_store::StoreError;
use estrade_store::rate_buckets::{exchange, prune_rate_buckets};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ONE: i64 = RATE_ONE.cast_signed();

fn report(subject: u8, limit: u32) -> RateReport {
    RateReport {
        subject: [subject; 12],
        unit: RateUnit::Requests,
        limit: NonZeroU32::new(limit).unwrap(),
        change: 0,
        own: 0,
        first: 0,
        all: 0,
    }
}

/// Whole units of a reply: used, without what leaks while the test runs, and granted.
fn units(reply: RateReply) -> (i64, i64) {
    ((reply.used + ONE - 1) / ONE, reply.granted / ONE)
}

#[tokio::test]
async fn what_is_used_adds_up_and_the_rest_is_granted() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let mut number = 0;
    let mut exchanged = async |reports: &[RateReport]| {
        number += 1;
        let replies = exchange(&db, reports).await.unwrap();
        assert_eq!(replies.len(), reports.len(), "{number}");
        replies.into_iter().map(units).collect::<Vec<_>>()
    };
    let limit = 10;
    let used = |change| RateReport {
        change: change * ONE,
        ..report(1, limit)
    };
    let asks = |first, all| RateReport {
        first: first * ONE,
        all: all * ONE,
        ..report(1, limit)
    };
    let tokens = RateReport {
        unit: RateUnit::Tokens,
        change: 5 * ONE,
        ..report(1, 1_000)
    };
    // Several buckets in one exchange, some of them new, and replies in their order.
    assert_eq!(exchanged(&[used(3), tokens]).await, [(3, 0), (5, 0)]);
    assert_eq!(exchanged(&[report(2, 1), used(1)]).await, [(0, 0), (4, 0)]);
    assert_eq!(exchanged(&[asks(1, 4)]).await, [(8, 4)]);
    assert_eq!(exchanged(&[asks(1, 9)]).await, [(10, 2)], "what is left");
    assert_eq!(exchanged(&[asks(1, 1)]).await, [(10, 0)]);
    assert_eq!(exchanged(&[used(5)]).await, [(15, 0)], "used is used");
    assert_eq!(exchanged(&[used(-12)]).await, [(3, 0)]);
    assert_eq!(
        exchanged(&[asks(8, 9)]).await,
        [(3, 0)],
        "not a part of a call"
    );
    assert_eq!(exchanged(&[used(-100)]).await, [(0, 0)]);
    assert_eq!(exchanged(&[asks(25, 25)]).await, [(25, 25)], "empty: whole");
    let own = RateReport {
        own: 7 * ONE,
        ..report(2, limit)
    };
    assert_eq!(exchanged(&[own]).await, [(7, 0)], "at least its own");
    assert_eq!(exchanged(&[own]).await, [(7, 0)], "not twice");
    fixture.finish().await;
}

#[tokio::test]
async fn a_bucket_leaks_by_the_clock_of_the_database() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let limit = 60_000;
    let used = RateReport {
        change: 60_000 * ONE,
        ..report(1, limit)
    };
    let before = Instant::now();
    exchange(&db, &[used]).await.unwrap();
    let after = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let least = after.elapsed();
    let left = exchange(&db, &[report(1, limit)]).await.unwrap()[0].used;
    // A thousand a second.
    let leaked = Duration::from_micros(u64::try_from((60_000 * ONE - left) / 60_000).unwrap());
    assert!(leaked >= least.mul_f64(0.9), "{leaked:?} in {least:?}");
    assert!(leaked <= before.elapsed().mul_f64(1.1), "{leaked:?}");
    fixture.finish().await;
}

#[tokio::test]
async fn many_nodes_at_once_are_granted_exactly_what_there_is() {
    let fixture = DatabaseFixture::on_postgres().await;
    let nodes = [
        fixture.open().await,
        fixture.open().await,
        fixture.open().await,
    ];
    let limit = 1_000;
    let mut tasks = JoinSet::new();
    for db in nodes {
        for _ in 0..4 {
            let db = db.clone();
            tasks.spawn(async move {
                let mut granted = 0;
                for round in 0..60_u8 {
                    // In an order of its own: nodes must not wait for each other.
                    let mut reports = [report(1, limit), report(2, limit), report(3, limit)];
                    reports.rotate_left(usize::from(round) % 3);
                    for report in &mut reports {
                        (report.first, report.all) = (ONE, 3 * ONE);
                    }
                    let replies = exchange(&db, &reports).await.unwrap();
                    granted += replies.iter().map(|reply| reply.granted / ONE).sum::<i64>();
                }
                granted
            });
        }
    }
    let started = Instant::now();
    let mut granted = 0;
    while let Some(of_task) = tasks.join_next().await {
        granted += of_task.unwrap();
    }
    let leaked = started.elapsed().as_secs_f64() * f64::from(limit) / 60.0;
    let most = 3.0 * (f64::from(limit) + leaked + 1.0);
    // 12 × 60 × 9 were asked for: more than there was.
    assert!(granted >= 3 * i64::from(limit), "{granted}");
    let granted = u32::try_from(granted).unwrap();
    assert!(f64::from(granted) <= most, "{granted} of {most}");
    fixture.finish().await;
}

#[tokio::test]
async fn old_buckets_are_removed_when_they_are_empty() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let debt = RateReport {
        change: 1_000 * ONE,
        ..report(1, 1)
    };
    let ordinary = RateReport {
        change: ONE,
        ..report(2, 1)
    };
    exchange(&db, &[debt, ordinary]).await.unwrap();
    let now = Timestamp::from_millis(i64::MAX / 2_000);
    assert_eq!(
        prune_rate_buckets(&db, Timestamp::from_millis(1), 10)
            .await
            .unwrap(),
        0
    );
    assert_eq!(prune_rate_buckets(&db, now, 10).await.unwrap(), 1);
    let left = exchange(&db, &[report(1, 1)]).await.unwrap();
    assert!(left[0].used > 900 * ONE);
    fixture.finish().await;
}

#[tokio::test]
async fn a_removal_leaves_out_what_an_exchange_has_locked() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let reports = [1, 2, 3, 4].map(|subject| report(subject, 10));
    exchange(&db, &reports).await.unwrap();
    let (locked, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let holder = {
        let (db, locked, done) = (db.clone(), Arc::clone(&locked), Arc::clone(&done));
        async move {
            let lock = "SELECT bucket FROM rate_buckets WHERE bucket LIKE '0202%' FOR UPDATE";
            db.transact(move |tx| {
                let (locked, done) = (Arc::clone(&locked), Arc::clone(&done));
                Box::pin(async move {
                    let buckets: Vec<String> = tx.query(lock).fetch_all().await?;
                    assert_eq!(buckets.len(), 1);
                    locked.notify_one();
                    done.notified().await;
                    Ok::<_, StoreError>(())
                })
            })
            .await
        }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(holder);
    locked.notified().await;
    let late = Timestamp::from_millis(i64::MAX / 2_000);
    let second = Duration::from_secs(1);
    for due in [2, 1, 0] {
        let removal = timeout(second, prune_rate_buckets(&db, late, 2)).await;
        assert_eq!(removal.expect("it does not wait").unwrap(), due);
    }
    done.notify_one();
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(prune_rate_buckets(&db, late, 2).await.unwrap(), 1);
    fixture.finish().await;
}

#[tokio::test]
async fn a_new_bucket_is_not_removed_before_it_is_used() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let remover = fixture.open().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let now = UNIX_EPOCH.elapsed().unwrap().as_millis();
        let now = Timestamp::from_millis(i64::try_from(now).unwrap());
        let hour_ago = now.before(Duration::from_hours(1));
        loop {
            prune_rate_buckets(&remover, hour_ago, 100).await.unwrap();
        }
    });
    for subject in 0..=u8::MAX {
        exchange(&db, &[report(subject, 10)]).await.unwrap();
    }
    tasks.shutdown().await;
    fixture.finish().await;
}

#[tokio::test]
async fn no_debt_is_longer_than_a_day() {
    let fixture = DatabaseFixture::on_postgres().await;
    let db = fixture.open().await;
    let debt = RateReport {
        change: i64::MAX / 2,
        ..report(1, 10)
    };
    for _ in 0..2 {
        let replies = exchange(&db, &[debt]).await.unwrap();
        assert_eq!(replies[0].used, 24 * 60 * 10 * ONE);
    }
    fixture.finish().await;
}
