//! Cleaning up packs that many releases share, while they are added to.

use super::{
    assert_no_orphans, assert_packs_are_worth_it, clean, contents, has, page, ready, store, tidy,
};
use crate::acting::{RunningWorker, bytes_on_disk, create};
use crate::support::{Installation, on_both_backends};
use estrade_blobs::{BlobError, DigestSet, PublishedBlobs};
use estrade_service::Core;
use estrade_service::gc::blobs::{BlobCollector, CollectedBlobs};
use std::sync::Arc;
use std::time::Duration;

on_both_backends! {
    what_was_given_up_goes_with_its_pack
    an_open_pack_without_rows_is_no_orphan
    what_is_added_while_the_rest_moves_stays
    a_pack_of_an_earlier_process_is_cleaned_up
}

/// Stores a content whose row is not committed.
async fn publish(core: &Core, content: Vec<u8>) -> PublishedBlobs {
    let blobs = core.blobs.clone();
    let publish = move || {
        let mut staging = blobs.stage(u64::MAX, |_| Ok(DigestSet::default()));
        staging.add(&content).unwrap();
        staging.publish().unwrap()
    };
    tokio::task::spawn_blocking(publish).await.unwrap()
}

async fn what_was_given_up_goes_with_its_pack(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let kept = ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    worker.stop().await;
    let needed = bytes_on_disk(&core);
    let given_up = publish(&core, vec![7; 100_000]).await;
    let blob = given_up.blobs()[0];
    given_up.discard();
    assert!(bytes_on_disk(&core) > 100_000);
    let removed = clean(&core, &mut collector).await;
    assert_eq!((removed.packs, removed.files), (1, 0));
    // A reader that was told of it may still come.
    assert_eq!(clean(&core, &mut collector).await.files, 0);
    core.blobs.verify(&blob).unwrap();
    core.clock.advance(Duration::from_hours(1));
    assert_eq!(clean(&core, &mut collector).await.files, 1);
    assert!(matches!(core.blobs.verify(&blob), Err(BlobError::Missing)));
    assert_eq!(bytes_on_disk(&core), needed);
    assert!(contents(&core, kept).await.is_some());
    assert_no_orphans(&core, &mut collector).await;
}

async fn an_open_pack_without_rows_is_no_orphan(at: &Installation) {
    let (core, mut collector, _) = tidy(at).await;
    let published = publish(&core, page(1)).await;
    let blob = published.blobs()[0];
    for _ in 0..3 {
        core.clock.advance(Duration::from_hours(2));
        assert_eq!(
            clean(&core, &mut collector).await,
            CollectedBlobs::default()
        );
        core.blobs.verify(&blob).unwrap();
    }
    // It will never be committed.
    published.keep();
    assert_eq!(clean(&core, &mut collector).await.files, 0);
    core.clock.advance(Duration::from_hours(1));
    assert_eq!(clean(&core, &mut collector).await.files, 1);
    assert_eq!(bytes_on_disk(&core), 0);
}

async fn what_is_added_while_the_rest_moves_stays(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let kept = ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    worker.stop().await;
    publish(&core, vec![7; 100_000]).await.discard();
    // It lies in the pack that is emptied, and its row comes after that.
    let late = publish(&core, page(2)).await;
    assert_eq!(clean(&core, &mut collector).await.packs, 1);
    let blob = late.blobs()[0];
    let next = store(&core, &page(3)).await;
    assert_ne!(
        next.location.object(),
        blob.location.object(),
        "nobody adds to it"
    );
    let committed = core
        .db
        .transact(move |tx| Box::pin(super::blob_rows_keep(tx, blob)));
    committed.await.unwrap();
    late.keep();
    // It is needed by nothing, but a clean-up may come before whatever needs it.
    core.blobs.verify(&blob).unwrap();
    assert!(has(&core, &blob).await);
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut collector).await;
    assert!(!has(&core, &blob).await && !has(&core, &next).await);
    assert!(contents(&core, kept).await.is_some());
    assert_no_orphans(&core, &mut collector).await;
}

async fn a_pack_of_an_earlier_process_is_cleaned_up(at: &Installation) {
    let (before, _, ada) = tidy(at).await;
    create(&before, &ada, "shop").await;
    let worker = RunningWorker::start(&before);
    let kept = ready(&before, &ada, "shop", &[("a.html", &page(1))]).await;
    worker.stop().await;
    // Killed before the commit; no destructor runs.
    std::mem::forget(publish(&before, vec![7; 100_000]).await);

    let core = at.another_core(before.settings.clone()).await;
    let mut collector = BlobCollector::new(Arc::clone(&core));
    let new = publish(&core, page(2)).await;
    assert_eq!(clean(&core, &mut collector).await.packs, 1);
    assert_eq!(clean(&core, &mut collector).await.files, 0);
    core.clock.advance(Duration::from_hours(1));
    assert_eq!(clean(&core, &mut collector).await.files, 1);
    core.blobs.verify(&new.blobs()[0]).unwrap();
    new.discard();
    assert!(contents(&core, kept).await.is_some());
    assert_packs_are_worth_it(&core).await;
    assert_no_orphans(&core, &mut collector).await;
}
