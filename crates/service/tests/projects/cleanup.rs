//! Cleaning up: what nobody needs goes, what somebody needs never does.

use crate::acting::{
    RunningWorker, code, count, create, deploy, finished, owner, read, try_deploy,
};
use crate::support::{Installation, on_both_engines};
use estrade_model::release::{ArtifactId, ReleaseState};
use estrade_model::{ReleaseId, Timestamp};
use estrade_service::cleanup::{Cleaned, Cleaner};
use estrade_service::releases::{download_source, rollback_release, run_brotli};
use estrade_service::{Core, Scope, Settings, projects};
use estrade_store::blobs::{Digest, StoredBlob};
use estrade_store::variants::read_variants;
use estrade_store::{Db, StoreError, artifacts, blob_rows, cleanup};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

on_both_engines! {
    releases_beyond_the_history_cannot_come_back
    what_serves_stays_however_old
    what_was_live_lately_stays_for_a_while
    a_deleted_project_leaves_nothing
    what_nobody_came_for_goes_after_a_day
    a_release_acquits_what_was_condemned
    sparse_packs_are_emptied
    nothing_in_use_goes_while_releases_come_and_go
    any_order_of_events_keeps_exactly_what_is_needed
}

const HISTORY: u32 = 3;

/// A core with a short history, and somebody to clean up after it.
async fn tidy(at: &Installation) -> (Arc<Core>, Cleaner, Scope) {
    let settings = Settings {
        release_history: HISTORY,
        skew: Duration::from_mins(10),
        ..Settings::default()
    };
    let core = at.another_core(settings).await;
    let cleaner = Cleaner::new(Arc::clone(&core));
    (core, cleaner, owner(at, "ada").await)
}

/// Cleans up as if it were later: long after any commit, but within all other times.
async fn clean(core: &Core, cleaner: &mut Cleaner) -> Cleaned {
    core.clock.advance(Duration::from_mins(2));
    cleaner.clean().await.unwrap()
}

fn page(number: u64) -> Vec<u8> {
    let line = |line| format!("<p>page {number}, line {line}</p>\n");
    (0..60).map(line).collect::<String>().into_bytes()
}

async fn ready(core: &Core, ada: &Scope, project: &str, files: &[(&str, &[u8])]) -> ReleaseId {
    let id = deploy(core, ada, project, files).await;
    assert_eq!(finished(core, ada, id).await.state, ReleaseState::Ready);
    id
}

async fn artifact_of(core: &Core, id: ReleaseId) -> Option<ArtifactId> {
    core.db
        .read("SELECT artifact_id FROM releases WHERE id = $1")
        .bind(id)
        .fetch_one()
        .await
        .unwrap()
}

/// All contents of a release, and their variants, where each is checked.
async fn contents(core: &Core, id: ReleaseId) -> Option<HashSet<Digest>> {
    let artifact = artifact_of(core, id).await?;
    let manifest = artifacts::read_manifest(&core.db, artifact).await.unwrap();
    let manifest = manifest.unwrap();
    let digests: Vec<_> = manifest.files().iter().map(|file| file.digest).collect();
    let places = blob_rows::read_blobs(&core.db, &digests).await.unwrap();
    let variants = read_variants(&core.db, &digests).await.unwrap();
    let mut found: HashSet<Digest> = HashSet::new();
    for blob in places.values().chain(variants.iter().map(|it| &it.blob)) {
        core.blobs.verify(blob).unwrap();
        found.insert(blob.digest);
    }
    for digest in &digests {
        assert!(found.contains(digest), "{id} lacks {digest}");
    }
    Some(found)
}

/// The packs and files that rows name, and those on disk.
async fn places(core: &Core) -> (BTreeSet<String>, BTreeSet<String>) {
    let sql = "SELECT DISTINCT place FROM blobs";
    let known: Vec<String> = core.db.read(sql).fetch_all().await.unwrap();
    let on_disk = core.blobs.places().unwrap();
    let on_disk = on_disk.map(|entry| entry.unwrap().id.to_string());
    (known.into_iter().collect(), on_disk.collect())
}

async fn assert_no_orphans(core: &Core) {
    let (known, on_disk) = places(core).await;
    assert_eq!(known, on_disk);
    let dangling = "SELECT COUNT(*) FROM variants v
        WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.digest = v.digest)
           OR (variant IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM blobs b WHERE b.digest = v.variant))";
    assert_eq!(count(core, dangling).await, 0);
}

async fn releases_beyond_the_history_cannot_come_back(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(ready(&core, &ada, "shop", &[("a.html", &page(number))]).await);
    }
    let before = read(&core, &ada, ids[0]).await;
    assert!(before.source_available);
    assert_eq!(
        clean(&core, &mut cleaner).await,
        Cleaned::default(),
        "all were live lately"
    );
    core.clock.advance(Duration::from_mins(20));
    let cleaned = clean(&core, &mut cleaner).await;
    // Each had a page and two variants, in a pack each.
    assert_eq!((cleaned.contents, cleaned.files), (9, 6));
    for (number, id) in ids.iter().enumerate() {
        let kept = number >= 3;
        assert_eq!(
            read(&core, &ada, *id).await.source_available,
            kept,
            "{number}"
        );
        assert_eq!(contents(&core, *id).await.is_some(), kept);
        let download = download_source(&core, &ada, *id).await;
        assert_eq!(code(download), if kept { "ok" } else { "gone" });
    }
    assert_eq!(code(rollback_release(&core, &ada, ids[2]).await), "gone");
    let back = rollback_release(&core, &ada, ids[3]).await.unwrap();
    assert_eq!(finished(&core, &ada, back).await.state, ReleaseState::Ready);
    assert_no_orphans(&core).await;
    assert_eq!(clean(&core, &mut cleaner).await, Cleaned::default());
    worker.stop().await;
}

async fn what_serves_stays_however_old(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let first = ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    let second = ready(&core, &ada, "shop", &[("a.html", &page(2))]).await;
    let mut current = rollback_release(&core, &ada, first).await.unwrap();
    finished(&core, &ada, current).await;
    worker.stop().await;
    // Many more that never serve.
    let waiting = deploy(&core, &ada, "shop", &[("a.html", &page(3))]).await;
    for number in 4..10 {
        let id = deploy(&core, &ada, "shop", &[("a.html", &page(number))]).await;
        estrade_service::releases::cancel_release(&core, &ada, id)
            .await
            .unwrap();
    }
    core.clock.advance(Duration::from_mins(12));
    clean(&core, &mut cleaner).await;
    assert!(contents(&core, current).await.is_some());
    // The first shares its artifact with what serves, the second is among the newest that were ready.
    assert!(contents(&core, first).await.is_some());
    assert!(contents(&core, second).await.is_some());
    assert!(
        contents(&core, waiting).await.is_some(),
        "it is not finished"
    );
    let kept = "SELECT COUNT(*) FROM releases WHERE state = 'CANCELED' AND artifact_id IS NOT NULL";
    assert_eq!(count(&core, kept).await, i64::from(HISTORY));
    let worker = RunningWorker::start(&core);
    assert_eq!(
        finished(&core, &ada, waiting).await.state,
        ReleaseState::Ready
    );
    for number in 10..14 {
        current = ready(&core, &ada, "shop", &[("a.html", &page(number))]).await;
    }
    core.clock.advance(Duration::from_mins(20));
    clean(&core, &mut cleaner).await;
    assert!(contents(&core, first).await.is_none());
    assert!(contents(&core, current).await.is_some());
    assert_no_orphans(&core).await;
    worker.stop().await;
}

async fn what_was_live_lately_stays_for_a_while(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let first = ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    for number in 2..8 {
        ready(&core, &ada, "shop", &[("a.html", &page(number))]).await;
    }
    clean(&core, &mut cleaner).await;
    assert!(
        contents(&core, first).await.is_some(),
        "a page may still be open"
    );
    core.clock.advance(Duration::from_mins(10));
    clean(&core, &mut cleaner).await;
    assert!(contents(&core, first).await.is_none());
    worker.stop().await;
}

async fn a_deleted_project_leaves_nothing(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    create(&core, &ada, "other").await;
    let worker = RunningWorker::start(&core);
    let shared = page(1);
    let large = page(2).repeat(2000);
    ready(
        &core,
        &ada,
        "shop",
        &[("a.html", &shared), ("b.json", &large), ("c", b"")],
    )
    .await;
    let kept = ready(&core, &ada, "other", &[("a.html", &shared)]).await;
    projects::delete_project(&core, &ada, "shop", None)
        .await
        .unwrap();
    clean(&core, &mut cleaner).await;
    let left = contents(&core, kept).await.unwrap();
    assert_eq!(
        count(&core, "SELECT COUNT(*) FROM blobs").await,
        left.len() as i64
    );
    projects::delete_project(&core, &ada, "other", None)
        .await
        .unwrap();
    clean(&core, &mut cleaner).await;
    // What moved together is kept for an hour after that.
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut cleaner).await;
    for sql in [
        "SELECT COUNT(*) FROM blobs",
        "SELECT COUNT(*) FROM variants",
    ] {
        assert_eq!(count(&core, sql).await, 0, "{sql}");
    }
    assert_eq!(core.blobs.places().unwrap().count(), 0);
    worker.stop().await;
}

/// Stores a content that no release has.
async fn store(core: &Core, content: &[u8]) -> StoredBlob {
    let (blobs, content) = (core.blobs.clone(), content.to_vec());
    let published = tokio::task::spawn_blocking(move || {
        let mut staging = blobs.stage(u64::MAX, |_| Ok(HashSet::new()));
        staging.add(&content).unwrap();
        staging.publish().unwrap()
    })
    .await
    .unwrap();
    let blob = published.blobs()[0];
    core.db
        .transact(move |tx| Box::pin(blob_rows_keep(tx, blob)))
        .await
        .unwrap();
    published.keep();
    blob
}

async fn blob_rows_keep(tx: &mut estrade_store::Tx, blob: StoredBlob) -> Result<(), StoreError> {
    assert!(blob_rows::keep_blobs(tx, &[blob], &[]).await?);
    Ok(())
}

async fn has(core: &Core, blob: &StoredBlob) -> bool {
    let found = blob_rows::read_blobs(&core.db, &[blob.digest])
        .await
        .unwrap();
    let on_disk = core.blobs.verify(blob).is_ok();
    assert_eq!(found.len() == 1, on_disk);
    on_disk
}

async fn what_nobody_came_for_goes_after_a_day(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    let project = create(&core, &ada, "shop").await.id;
    let (sent, source) = (store(&core, &page(1)).await, store(&core, &page(2)).await);
    let unused = store(&core, &page(3)).await;
    let now = core.now();
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                tx.query("INSERT INTO blob_uploads (project_id, digest, at) VALUES ($1, $2, $3)")
                    .bind(project)
                    .bind(sent.digest.as_bytes())
                    .bind(now)
                    .execute()
                    .await?;
                tx.query(
                    "INSERT INTO sources (id, project_id, format, digest, size, created_at)
                     VALUES ('0123456789abcdef01234567', $1, 'zip', $2, 1, $3)",
                )
                .bind(project)
                .bind(source.digest.as_bytes())
                .bind(now)
                .execute()
                .await
            })
        })
        .await
        .unwrap();
    clean(&core, &mut cleaner).await;
    let there = [&sent, &source, &unused];
    let is_there = async || {
        let mut found = Vec::new();
        for blob in there {
            found.push(has(&core, blob).await);
        }
        found
    };
    assert_eq!(is_there().await, [true, true, false]);
    core.clock.advance(Duration::from_hours(23));
    clean(&core, &mut cleaner).await;
    assert_eq!(is_there().await, [true, true, false]);
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut cleaner).await;
    assert_eq!(is_there().await, [false, false, false]);
}

async fn marked(core: &Core, digest: Digest) -> bool {
    let marked: Option<i64> = core
        .db
        .read("SELECT condemned_at FROM blobs WHERE digest = $1")
        .bind(digest.as_bytes())
        .fetch_one()
        .await
        .unwrap();
    marked.is_some()
}

async fn condemn(db: &Db, digests: Vec<Digest>, run: Timestamp) -> Result<(), StoreError> {
    db.transact(move |tx| {
        let digests = digests.clone();
        Box::pin(async move { cleanup::condemn_blobs(tx, &digests, run).await })
    })
    .await
}

async fn a_release_acquits_what_was_condemned(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let (old, again) = (store(&core, &page(1)).await, store(&core, &page(2)).await);
    let run = core.now();
    condemn(&core.db, vec![old.digest, again.digest], run)
        .await
        .unwrap();
    // A clean-up has looked twice, and now a release comes.
    let id = deploy(&core, &ada, "shop", &[("a.html", &page(2))]).await;
    assert!(!marked(&core, again.digest).await && marked(&core, old.digest).await);
    let digests = vec![old.digest, again.digest];
    core.db
        .transact(move |tx| {
            let digests = digests.clone();
            Box::pin(async move { cleanup::delete_blobs(tx, &digests, run).await })
        })
        .await
        .unwrap();
    assert!(contents(&core, id).await.is_some());
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 1);
    clean(&core, &mut cleaner).await;
    assert_no_orphans(&core).await;
}

/// The one case that a mark alone cannot tell: a transaction that began before it and ends after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_older_than_the_mark_acquits_too() {
    let at = Installation::on_postgres().await;
    let core = &at.core;
    let blob = store(core, &page(1)).await;
    let tries = Arc::new(AtomicU64::new(0));
    let (db, count, run) = (core.db.clone(), Arc::clone(&tries), core.now());
    core.db
        .transact(move |tx| {
            let (db, count) = (db.clone(), Arc::clone(&count));
            Box::pin(async move {
                // From here on the transaction sees the world as it is now.
                tx.query("SELECT 1 FROM projects")
                    .fetch_all::<i64>()
                    .await?;
                if count.fetch_add(1, Ordering::Relaxed) == 0 {
                    condemn(&db, vec![blob.digest], run).await?;
                }
                let kept = blob_rows::keep_blobs(tx, &[], &[blob.digest]).await?;
                assert!(kept);
                Ok::<_, StoreError>(())
            })
        })
        .await
        .unwrap();
    assert_eq!(tries.load(Ordering::Relaxed), 2, "it clashed with the mark");
    assert!(!marked(core, blob.digest).await);
    at.remove().await;
}

async fn sparse_packs_are_emptied(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    create(&core, &ada, "other").await;
    let worker = RunningWorker::start(&core);
    let many: Vec<_> = (0..40)
        .map(|number| (format!("{number}.html"), page(number)))
        .collect();
    let id = try_deploy(&core, &ada, "shop", many).await.unwrap();
    finished(&core, &ada, id).await;
    let kept = ready(
        &core,
        &ada,
        "other",
        &[("7.html", &page(7)), ("8.html", &page(8))],
    )
    .await;
    projects::delete_project(&core, &ada, "shop", None)
        .await
        .unwrap();
    let (known, _) = places(&core).await;
    let bytes = || {
        core.blobs
            .places()
            .unwrap()
            .map(|entry| entry.unwrap().size)
            .sum::<u64>()
    };
    let before = bytes();
    let cleaned = clean(&core, &mut cleaner).await;
    assert_eq!((cleaned.packs, cleaned.files), (2, 0));
    let (now_known, on_disk) = places(&core).await;
    assert!(
        known.is_disjoint(&now_known) && known.is_subset(&on_disk),
        "kept for a while"
    );
    assert_eq!(contents(&core, kept).await.unwrap().len(), 6);
    assert_eq!(clean(&core, &mut cleaner).await, Cleaned::default());
    core.clock.advance(Duration::from_hours(1));
    assert_eq!(clean(&core, &mut cleaner).await.files, 2);
    assert!(bytes() * 10 < before);
    assert!(contents(&core, kept).await.is_some());
    assert_no_orphans(&core).await;
    worker.stop().await;
}

/// Deploys, rolls back and deletes until told to stop, and looks at every result.
async fn come_and_go(core: Arc<Core>, ada: Scope, name: String, seed: u64, stop: Arc<AtomicBool>) {
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
            let id = match try_deploy(&core, &ada, &name, files).await {
                Ok(id) => id,
                // It was cleaned up while we sent the rest: a client repeats this.
                Err(estrade_service::Error::Unavailable(_)) => continue,
                Err(error) => unreachable!("{error:?}"),
            };
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
    let (core, mut cleaner, ada) = tidy(at).await;
    let worker = RunningWorker::start(&core);
    let (stop, token) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(run_brotli(Arc::clone(&core), token.clone()));
    for number in 0..3 {
        let name = format!("shop-{number}");
        tasks.spawn(come_and_go(
            Arc::clone(&core),
            ada.clone(),
            name,
            number,
            Arc::clone(&stop),
        ));
    }
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let mut total = Cleaned::default();
    for _ in 0..if full { 300 } else { 30 } {
        core.clock.advance(Duration::from_mins(5));
        let cleaned = cleaner.clean().await.unwrap();
        total.contents += cleaned.contents;
        total.files += cleaned.files;
        total.packs += cleaned.packs;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    token.cancel();
    tasks.join_all().await;
    assert!(total.contents > 0 && total.files > 0, "{total:?}");
    core.clock.advance(Duration::from_hours(2));
    clean(&core, &mut cleaner).await;
    core.clock.advance(Duration::from_hours(2));
    clean(&core, &mut cleaner).await;
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 0);
    assert_no_orphans(&core).await;
    worker.stop().await;
}

/// What a model of one project knows.
#[derive(Default)]
struct Model {
    ready: Vec<(ReleaseId, BTreeSet<Digest>)>,
}

async fn any_order_of_events_keeps_exactly_what_is_needed(at: &Installation) {
    let (core, mut cleaner, ada) = tidy(at).await;
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
                clean(&core, &mut cleaner).await;
                compare(&core, &models).await;
            }
        }
    }
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut cleaner).await;
    compare(&core, &models).await;
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut cleaner).await;
    assert_no_orphans(&core).await;
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
