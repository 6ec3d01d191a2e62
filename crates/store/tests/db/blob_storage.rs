//! The fence that keeps servers of a former place from saying where contents lie.

use crate::database_fixture::DatabaseFixture;
use estrade_blobs::{BlobLocation, Digest, StoredBlob, UniqueId};
use estrade_fixtures::on_both_backends;
use estrade_store::blob_storage::{
    self, begin_switch, cancel_switch, complete_switch, is_under_way,
};
use estrade_store::{Db, StoreError, blob_gc, blob_rows};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;

on_both_backends! {
    a_switch_keeps_running_servers_from_adding_rows
    a_switch_that_was_cancelled_does_not_become_final
    a_switch_comes_after_the_transactions_that_came_before
    places_are_listed_page_by_page
}

fn blob(content: &str) -> StoredBlob {
    StoredBlob {
        digest: Digest::of(content.as_bytes()),
        size: content.len() as u64,
        location: BlobLocation::File {
            id: UniqueId::new().unwrap(),
        },
    }
}

async fn keep(db: &Db, blob: StoredBlob) -> Result<bool, StoreError> {
    db.transact(move |tx| Box::pin(async move { blob_rows::keep_blobs(tx, &[blob], &[]).await }))
        .await
}

async fn is_refused(db: &Db, content: &str) -> bool {
    let kept = keep(db, blob(content)).await;
    let is_known = blob_rows::known_blobs(db, &[Digest::of(content.as_bytes())]).await;
    match kept {
        Ok(kept) => {
            assert!(kept && !is_known.unwrap().is_empty());
            false
        }
        Err(StoreError::BlobsMoved) => {
            assert!(is_known.unwrap().is_empty());
            true
        }
        Err(error) => panic!("{error:?}"),
    }
}

async fn a_switch_keeps_running_servers_from_adding_rows(fixture: &DatabaseFixture) {
    let (old, tool) = (fixture.open().await, fixture.open().await);
    let first = blob("first");
    assert!(keep(&old, first).await.unwrap());
    let switch = begin_switch(&tool).await.unwrap();
    assert!(is_refused(&old, "second").await);
    let moves = vec![(blob("first"), first.location.object())];
    let result: Result<(), StoreError> = old
        .transact(move |tx| {
            let moves = moves.clone();
            Box::pin(async move { blob_gc::move_blobs(tx, &moves).await })
        })
        .await;
    assert!(matches!(result, Err(StoreError::BlobsMoved)));
    // What is known is in both places.
    let known = old.transact(move |tx| {
        Box::pin(async move { blob_rows::keep_blobs(tx, &[], &[first.digest]).await })
    });
    assert!(known.await.unwrap());
    assert!(is_under_way(&tool, switch).await.unwrap());
    complete_switch(&tool).await.unwrap();
    cancel_switch(&tool).await.unwrap();
    assert!(is_refused(&old, "third").await);
    assert!(!is_refused(&fixture.open().await, "fourth").await);
}

async fn a_switch_that_was_cancelled_does_not_become_final(fixture: &DatabaseFixture) {
    let (old, tool) = (fixture.open().await, fixture.open().await);
    let switch = begin_switch(&tool).await.unwrap();
    let meanwhile = fixture.open().await;
    cancel_switch(&tool).await.unwrap();
    cancel_switch(&tool).await.unwrap();
    assert!(!is_refused(&old, "first").await);
    assert!(is_refused(&meanwhile, "second").await);
    assert!(!is_under_way(&tool, switch).await.unwrap());
    // No epoch is used twice: the next switch refuses all of them.
    let other = begin_switch(&tool).await.unwrap();
    assert!(!is_under_way(&tool, switch).await.unwrap());
    for db in [&old, &meanwhile, &tool] {
        assert!(is_refused(db, "third").await);
    }
    assert!(is_under_way(&tool, other).await.unwrap());
}

/// A transaction that has passed the check is seen by who reads rows after the switch.
async fn a_switch_comes_after_the_transactions_that_came_before(fixture: &DatabaseFixture) {
    let (old, tool) = (fixture.open().await, fixture.open().await);
    let mut tasks = JoinSet::new();
    let (db, checked) = (old.clone(), Arc::new(Notify::new()));
    let (has_checked, content) = (Arc::clone(&checked), blob("first"));
    tasks.spawn(async move {
        db.transact(move |tx| {
            let has_checked = Arc::clone(&has_checked);
            Box::pin(async move {
                let kept = blob_rows::keep_blobs(tx, &[content], &[]).await?;
                has_checked.notify_one();
                tx.query(SLOW).fetch_one::<i64>().await?;
                Ok::<_, StoreError>(kept)
            })
        })
        .await
    });
    checked.notified().await;
    let switch = begin_switch(&tool).await.unwrap();
    let known = blob_rows::known_blobs(&tool, &[content.digest]).await;
    assert_eq!(known.unwrap().len(), 1, "the switch did not wait");
    assert!(is_under_way(&tool, switch).await.unwrap());
    assert!(tasks.join_next().await.unwrap().unwrap().unwrap());
    assert!(is_refused(&old, "second").await);
}

/// Takes a moment on either backend.
const SLOW: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
     SELECT MAX(i) FROM n";

async fn places_are_listed_page_by_page(fixture: &DatabaseFixture) {
    let db = fixture.open().await;
    assert!(!blob_storage::has_blobs(&db).await.unwrap());
    let mut expected = Vec::new();
    for number in 0..7 {
        let blob = blob(&number.to_string());
        keep(&db, blob).await.unwrap();
        expected.push(blob.location.object());
    }
    expected.sort_by_key(ToString::to_string);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = blob_storage::list_places(&db, after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(*last);
        found.extend(page);
    }
    assert_eq!(found, expected);
    let total = blob_storage::read_total(&db).await.unwrap();
    assert_eq!((total.contents, total.bytes), (7, 7));
    assert!(blob_storage::has_blobs(&db).await.unwrap());
}
