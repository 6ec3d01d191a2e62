//! The change feed: who holds a cache hears of every change, on this node and on others.

use crate::database_fixture::DatabaseFixture;
use estrade_fixtures::{Fixture, on_both_backends};
use estrade_model::Timestamp;
use estrade_store::changes::{follow, prune_changes};
use estrade_store::{Change, ChangeKind, Db, StoreError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    the_node_that_made_a_change_sees_it_before_the_commit_returns
    another_process_hears_of_a_change_in_time
    a_follower_starts_by_distrusting_what_was_read_before
    a_change_that_was_undone_is_not_heard_of
    a_caller_that_went_away_does_not_silence_its_change
    old_notes_are_pruned_in_pieces
}

async fn change(db: &Db, id: &str) -> Result<(), StoreError> {
    let id = id.to_owned();
    db.transact(move |tx| {
        let id = id.clone();
        Box::pin(async move {
            tx.changed(ChangeKind::Key, id, Timestamp::from_millis(5))
                .await
        })
    })
    .await
}

/// Waits for the change of that id.
async fn hear(feed: &mut Receiver<Change>, id: &str) {
    let heard = async { while feed.recv().await.unwrap().id != id {} };
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, heard).await.unwrap();
}

/// A follower of the feed, ended with the test.
struct Follower {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Follower {
    /// Starts to follow and waits until it does.
    async fn start(db: &Db) -> Self {
        let mut feed = db.changes().subscribe();
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        task.spawn(follow(db.clone(), stop.clone()));
        hear(&mut feed, "").await;
        Self { stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        let patience = Duration::from_secs(5);
        tokio::time::timeout(patience, self.task.join_all())
            .await
            .unwrap();
    }
}

async fn the_node_that_made_a_change_sees_it_before_the_commit_returns(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hooked = Arc::clone(&heard);
    db.changes()
        .on_change(move |change| hooked.lock().unwrap().push(change.id.clone()));
    for number in 0..5 {
        change(&db, &number.to_string()).await.unwrap();
        assert_eq!(heard.lock().unwrap().len(), number + 1);
    }
}

async fn another_process_hears_of_a_change_in_time(fixture: &DatabaseFixture) {
    let (here, there) = (fixture.open().await, fixture.open().await);
    let mut feed = here.changes().subscribe();
    let follower = Follower::start(&here).await;
    let mut waits = Vec::new();
    for number in 0..7 {
        let id = format!("key-{number}");
        change(&there, &id).await.unwrap();
        let committed = Instant::now();
        hear(&mut feed, &id).await;
        waits.push(committed.elapsed());
    }
    waits.sort();
    // What the contract promises, and twice as long as either engine's follower may sleep.
    // The median: a machine that is busy with other tests may hold up one of them.
    assert!(waits[3] < Duration::from_secs(1), "{waits:?}");
    follower.end().await;
}

async fn a_follower_starts_by_distrusting_what_was_read_before(fixture: &DatabaseFixture) {
    let (here, there) = (fixture.open().await, fixture.open().await);
    change(&there, "before").await.unwrap();
    let mut feed = here.changes().subscribe();
    let follower = Follower::start(&here).await;
    assert_eq!(feed.recv().await.unwrap().kind, ChangeKind::Everything);
    follower.end().await;
}

async fn a_change_that_was_undone_is_not_heard_of(fixture: &DatabaseFixture) {
    let (here, there) = (fixture.open().await, fixture.open().await);
    let (mut at_home, mut abroad) = (there.changes().subscribe(), here.changes().subscribe());
    let follower = Follower::start(&here).await;
    let undone: Result<(), StoreError> = there
        .transact(|tx| {
            Box::pin(async move {
                tx.changed(ChangeKind::Key, "undone", Timestamp::from_millis(5))
                    .await?;
                Err(StoreError::Duplicate)
            })
        })
        .await;
    assert!(undone.is_err());
    change(&there, "kept").await.unwrap();
    assert_eq!(at_home.recv().await.unwrap().id, "kept");
    assert_eq!(abroad.recv().await.unwrap().kind, ChangeKind::Everything);
    assert_eq!(abroad.recv().await.unwrap().id, "kept");
    follower.end().await;
}

async fn a_caller_that_went_away_does_not_silence_its_change(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    let mut feed = db.changes().subscribe();
    drop(tokio::time::timeout(Duration::ZERO, change(&db, "key")).await);
    hear(&mut feed, "key").await;
}

async fn old_notes_are_pruned_in_pieces(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    for number in 0..5 {
        change(&db, &number.to_string()).await.unwrap();
    }
    let (old, later) = (Timestamp::from_millis(5), Timestamp::from_millis(6));
    assert_eq!(prune_changes(&db, old, 10).await.unwrap(), 0);
    assert_eq!(prune_changes(&db, later, 3).await.unwrap(), 3);
    assert_eq!(prune_changes(&db, later, 3).await.unwrap(), 2);
    assert_eq!(prune_changes(&db, later, 3).await.unwrap(), 0);
}

/// A transaction that stays open keeps the feed from moving on, but not from saying things once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_heard_twice_beside_a_long_transaction_on_postgres() {
    let fixture = DatabaseFixture::on_postgres().await;
    let (here, there) = (fixture.open().await, fixture.open().await);
    let mut feed = here.changes().subscribe();
    let follower = Follower::start(&here).await;
    let long = there.transact(|tx| {
        Box::pin(async move {
            tx.changed(ChangeKind::Key, "late", Timestamp::from_millis(5))
                .await?;
            let sleep = "SELECT 1::bigint FROM (SELECT pg_sleep(2)) AS slept";
            tx.query(sleep).fetch_one::<i64>().await.map(drop)
        })
    });
    let short = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        change(&there, "early").await
    };
    let (long, short): (Result<(), StoreError>, _) = tokio::join!(long, short);
    assert!(long.is_ok() && short.is_ok());
    change(&there, "last").await.unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|id| id != "last") {
        heard.push(feed.recv().await.unwrap().id);
    }
    heard.sort();
    assert_eq!(heard, ["", "early", "last", "late"]);
    follower.end().await;
    fixture.finish().await;
}
