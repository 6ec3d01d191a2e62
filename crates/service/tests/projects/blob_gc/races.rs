//! Cleaning up while releases are made: what one forgets, another has just asked for.

use super::{HISTORY, assert_no_orphans, clean, contents, page, ready, tidy};
use crate::acting::{RunningWorker, add_files, count, create, finished, named, try_deploy};
use crate::support::{Installation, on_both_backends};
use estrade_blobs::{Digest, MIN_LARGE_BYTES};
use estrade_model::ReleaseId;
use estrade_model::release::{NewRelease, ReleaseState};
use estrade_service::gc::blobs::CollectedBlobs;
use estrade_service::platform::releases::{
    self, EagerCompressor, Source, rollback_release, run_brotli,
};
use estrade_service::{Core, Scope, platform::projects};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    what_an_upload_found_stays_until_it_ends
    what_was_marked_is_stored_again
    nothing_in_use_goes_while_releases_come_and_go
    any_order_of_events_keeps_exactly_what_is_needed
}

/// Begins an upload that finds a page stored, and has looked it up by now: a large file makes it.
async fn slow_upload(core: &Core, ada: &Scope, page: &[u8]) -> Source {
    let upload = releases::begin_upload(core, &EagerCompressor::default(), ada, "other")
        .await
        .unwrap();
    let large = vec![7; usize::try_from(MIN_LARGE_BYTES).unwrap()];
    let files = named(&[("a.html", page), ("b.bin", &large)]);
    Source::Files(add_files(upload, files).await.unwrap())
}

async fn what_an_upload_found_stays_until_it_ends(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    create(&core, &ada, "other").await;
    let worker = RunningWorker::start(&core);
    ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    let (slow, given_up) = (
        slow_upload(&core, &ada, &page(1)).await,
        slow_upload(&core, &ada, &page(1)).await,
    );
    projects::delete_project(&core, &ada, "shop", None)
        .await
        .unwrap();
    clean(&core, &mut collector).await;
    let id = releases::create_release(&core, &ada, "other", NewRelease::default(), slow)
        .await
        .unwrap();
    assert_eq!(finished(&core, &ada, id).await.state, ReleaseState::Ready);
    assert!(contents(&core, id).await.is_some());
    projects::delete_project(&core, &ada, "other", None)
        .await
        .unwrap();
    clean(&core, &mut collector).await;
    // The page with its two variants, and the large file, which was found stored as well.
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 4);
    drop(given_up);
    clean(&core, &mut collector).await;
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 0);
    worker.stop().await;
}

/// A clean-up may be about to forget it, and no longer ask.
async fn what_was_marked_is_stored_again(at: &Installation) {
    let (core, _, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    create(&core, &ada, "other").await;
    let worker = RunningWorker::start(&core);
    ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    set(&core, "UPDATE blobs SET condemned_at = 1").await;
    let slow = slow_upload(&core, &ada, &page(1)).await;
    set(&core, "DELETE FROM blobs").await;
    let id = releases::create_release(&core, &ada, "other", NewRelease::default(), slow)
        .await
        .unwrap();
    assert_eq!(finished(&core, &ada, id).await.state, ReleaseState::Ready);
    assert!(contents(&core, id).await.is_some());
    worker.stop().await;
}

async fn set(core: &Core, sql: &'static str) {
    core.db
        .transact(move |tx| Box::pin(async move { tx.query(sql).execute().await.map(drop) }))
        .await
        .unwrap();
}

/// Deploys, rolls back and deletes until told to stop, and looks at every result.
async fn come_and_go(
    core: Arc<Core>,
    ada: Scope,
    name: String,
    (seed, time): (u64, Arc<RwLock<()>>),
    stop: Arc<AtomicBool>,
) {
    let mut random = seed;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 33
    };
    while !stop.load(Ordering::Relaxed) {
        create(&core, &ada, &name).await;
        let mut ids = Vec::new();
        for _ in 0..6 {
            // Few pages, so that what one removes another has just asked for.
            let files: Vec<_> = (0..3)
                .map(|at| (format!("{at}.html"), page(next() % 8)))
                .collect();
            let _stands_still = time.read().await;
            let id = try_deploy(&core, &ada, &name, files).await.unwrap();
            ids.push(id);
            assert_eq!(finished(&core, &ada, id).await.state, ReleaseState::Ready);
            contents(&core, id).await;
            let target = ids[usize::try_from(next()).unwrap() % ids.len()];
            match rollback_release(&core, &ada, target).await {
                Ok(back) => {
                    assert_eq!(finished(&core, &ada, back).await.state, ReleaseState::Ready);
                    // The one that serves always has everything.
                    assert!(contents(&core, back).await.is_some());
                }
                Err(error) => assert!(["gone", "current"].contains(&error.code()), "{error:?}"),
            }
        }
        projects::delete_project(&core, &ada, &name, None)
            .await
            .unwrap();
    }
}

async fn nothing_in_use_goes_while_releases_come_and_go(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    let worker = RunningWorker::start(&core);
    let (stop, token) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
    // Hours go by here, and a release has minutes: none is on its way when they do.
    let time = Arc::new(RwLock::new(()));
    let mut tasks = JoinSet::new();
    tasks.spawn(run_brotli(
        Arc::clone(&core),
        EagerCompressor::default(),
        token.clone(),
    ));
    for number in 0..3 {
        let name = format!("shop-{number}");
        tasks.spawn(come_and_go(
            Arc::clone(&core),
            ada.clone(),
            name,
            (number, Arc::clone(&time)),
            Arc::clone(&stop),
        ));
    }
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let mut total = CollectedBlobs::default();
    let least = if full { 300 } else { 30 };
    for round in 0..10 * least {
        // On a slow machine little happens meanwhile: then it takes longer until something was removed at all.
        if round >= least && total.contents > 0 && total.files > 0 {
            break;
        }
        let alone = time.write().await;
        core.clock.advance(Duration::from_mins(5));
        drop(alone);
        let removed = collector.collect().await.unwrap();
        total.contents += removed.contents;
        total.files += removed.files;
        total.packs += removed.packs;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    token.cancel();
    tasks.join_all().await;
    assert!(total.contents > 0 && total.files > 0, "{total:?}");
    core.clock.advance(Duration::from_hours(2));
    clean(&core, &mut collector).await;
    core.clock.advance(Duration::from_hours(2));
    clean(&core, &mut collector).await;
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 0);
    assert_no_orphans(&core, &mut collector).await;
    worker.stop().await;
}

/// What a model of one project knows.
#[derive(Default)]
struct Model {
    ready: Vec<(ReleaseId, BTreeSet<Digest>)>,
}

#[expect(clippy::print_stderr, reason = "who repeats a failure needs the seed")]
async fn any_order_of_events_keeps_exactly_what_is_needed(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    let worker = RunningWorker::start(&core);
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let seed: u64 = std::env::var("ESTRADE_TEST_SEED").map_or_else(
        |_| u64::try_from(core.now().millis()).unwrap(),
        |text| text.parse().unwrap(),
    );
    eprintln!("ESTRADE_TEST_SEED={seed}");
    let mut random = seed;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut models: [Option<Model>; 3] = Default::default();
    for _ in 0..if full { 400 } else { 60 } {
        let which = usize::try_from(next(3)).unwrap();
        let name = format!("shop-{which}");
        let Some(model) = &mut models[which] else {
            create(&core, &ada, &name).await;
            models[which] = Some(Model::default());
            continue;
        };
        match next(10) {
            0..5 => {
                let pages: Vec<_> = (0..=next(4)).map(|_| page(next(12))).collect();
                let digests = pages.iter().map(|page| Digest::of(page)).collect();
                let files = pages.into_iter().enumerate();
                let files = files
                    .map(|(at, page)| (format!("{at}.html"), page))
                    .collect();
                let id = try_deploy(&core, &ada, &name, files).await.unwrap();
                assert_eq!(finished(&core, &ada, id).await.state, ReleaseState::Ready);
                model.ready.push((id, digests));
            }
            5..7 if !model.ready.is_empty() => {
                let at = usize::try_from(next(model.ready.len() as u64)).unwrap();
                let (id, digests) = model.ready[at].clone();
                if let Ok(back) = rollback_release(&core, &ada, id).await {
                    assert_eq!(finished(&core, &ada, back).await.state, ReleaseState::Ready);
                    model.ready.push((back, digests));
                }
            }
            7 => {
                projects::delete_project(&core, &ada, &name, None)
                    .await
                    .unwrap();
                models[which] = None;
            }
            _ => {
                // All that were live lately are not any more.
                core.clock.advance(Duration::from_mins(20));
                clean(&core, &mut collector).await;
                compare(&core, &models).await;
            }
        }
    }
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut collector).await;
    compare(&core, &models).await;
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut collector).await;
    assert_no_orphans(&core, &mut collector).await;
    worker.stop().await;
}

/// The newest releases of each project have all they need, and there is nothing else.
async fn compare(core: &Core, models: &[Option<Model>]) {
    let mut needed = HashSet::new();
    for model in models.iter().flatten() {
        for (id, digests) in model.ready.iter().rev().take(HISTORY as usize) {
            let found = contents(core, *id).await.unwrap();
            assert!(digests.iter().all(|digest| found.contains(digest)));
            needed.extend(found);
        }
    }
    let stored: Vec<[u8; 32]> = core
        .db
        .read("SELECT digest FROM blobs")
        .fetch_all()
        .await
        .unwrap();
    let stored: HashSet<_> = stored.into_iter().map(Digest::from).collect();
    assert_eq!(stored, needed);
}
