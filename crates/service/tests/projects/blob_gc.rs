//! Cleaning up: what nobody needs goes, what somebody needs never does.

mod nodes;
mod races;
mod sharing;

use crate::acting::{
    RunningWorker, code, count, create, deploy, finished, owner, read, try_deploy,
};
use crate::support::{Installation, on_both_backends};
use estrade_blobs::{Digest, DigestSet, StoredBlob};
use estrade_model::release::{ArtifactId, NewRelease, ReleaseState};
use estrade_model::{ReleaseId, Timestamp};
use estrade_service::gc::blobs::{BlobCollector, CollectedBlobs};
use estrade_service::platform::releases::{
    EagerCompressor, Source, begin_upload, create_release, download_source, rollback_release,
};
use estrade_service::{Core, Scope, Settings, platform::projects};
use estrade_store::variants::read_variants;
use estrade_store::{Db, StoreError, artifacts, blob_gc, blob_rows};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

on_both_backends! {
    releases_beyond_the_history_cannot_come_back
    what_serves_stays_however_old
    what_was_live_lately_stays_for_a_while
    a_deleted_project_leaves_nothing
    what_nobody_came_for_goes_after_a_day
    a_release_unmarks_what_was_marked
    what_releases_share_outlives_the_first
    sparse_packs_are_emptied
    only_an_artifact_that_is_there_keeps_what_the_next_shares
}

const HISTORY: u32 = 3;

/// A core with a short history, and somebody to clean up after it.
async fn tidy(at: &Installation) -> (Arc<Core>, BlobCollector, Scope) {
    let settings = Settings {
        release_history: HISTORY,
        skew: Duration::from_mins(10),
        min_orphan_age: Duration::from_hours(1),
        ..Settings::default()
    };
    let core = at.another_core(settings).await;
    let collector = BlobCollector::new(Arc::clone(&core));
    (core, collector, owner(at, "ada").await)
}

/// Cleans up as if it were later: long after any commit, but within all other times.
async fn clean(core: &Core, collector: &mut BlobCollector) -> CollectedBlobs {
    core.clock.advance(Duration::from_mins(2));
    collector.collect().await.unwrap()
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
    let on_disk = core.blobs.objects().unwrap();
    let on_disk = on_disk.map(|entry| entry.unwrap().id.to_string());
    (known.into_iter().collect(), on_disk.collect())
}

/// At least half of each pack is needed.
async fn assert_packs_are_worth_it(core: &Core) {
    for entry in core.blobs.objects().unwrap() {
        let entry = entry.unwrap();
        let live = blob_gc::live_bytes(&core.db, entry.id).await.unwrap();
        let live = live.unwrap_or_default();
        assert!(live * 2 >= entry.size, "{live} bytes of {entry:?}");
    }
}

/// When all that was found to be without rows, or moves now, is due to be removed.
async fn assert_no_orphans(core: &Core, collector: &mut BlobCollector) {
    for _ in 0..3 {
        clean(core, collector).await;
        core.clock.advance(Duration::from_hours(1));
    }
    clean(core, collector).await;
    let (known, on_disk) = places(core).await;
    assert_eq!(known, on_disk);
    assert_packs_are_worth_it(core).await;
    let dangling = "SELECT COUNT(*) FROM variants v
        WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.digest = v.digest)
           OR (variant IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM blobs b WHERE b.digest = v.variant))";
    assert_eq!(count(core, dangling).await, 0);
}

async fn releases_beyond_the_history_cannot_come_back(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(ready(&core, &ada, "shop", &[("a.html", &page(number))]).await);
    }
    let before = read(&core, &ada, ids[0]).await;
    assert!(before.source_available);
    assert_eq!(
        clean(&core, &mut collector).await,
        CollectedBlobs::default(),
        "all were live lately"
    );
    core.clock.advance(Duration::from_mins(20));
    let removed = clean(&core, &mut collector).await;
    // Each had a page and two variants.
    assert_eq!(removed.contents, 9);
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
    assert_no_orphans(&core, &mut collector).await;
    assert_eq!(
        clean(&core, &mut collector).await,
        CollectedBlobs::default()
    );
    worker.stop().await;
}

async fn what_serves_stays_however_old(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
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
        estrade_service::platform::releases::cancel_release(&core, &ada, id)
            .await
            .unwrap();
    }
    core.clock.advance(Duration::from_mins(12));
    clean(&core, &mut collector).await;
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
    clean(&core, &mut collector).await;
    assert!(contents(&core, first).await.is_none());
    assert!(contents(&core, current).await.is_some());
    assert_no_orphans(&core, &mut collector).await;
    worker.stop().await;
}

async fn what_was_live_lately_stays_for_a_while(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let first = ready(&core, &ada, "shop", &[("a.html", &page(1))]).await;
    for number in 2..8 {
        ready(&core, &ada, "shop", &[("a.html", &page(number))]).await;
    }
    clean(&core, &mut collector).await;
    assert!(
        contents(&core, first).await.is_some(),
        "a page may still be open"
    );
    core.clock.advance(Duration::from_mins(10));
    clean(&core, &mut collector).await;
    assert!(contents(&core, first).await.is_none());
    worker.stop().await;
}

async fn a_deleted_project_leaves_nothing(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
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
    clean(&core, &mut collector).await;
    let left = contents(&core, kept).await.unwrap();
    assert_eq!(
        count(&core, "SELECT COUNT(*) FROM blobs").await,
        i64::try_from(left.len()).unwrap()
    );
    projects::delete_project(&core, &ada, "other", None)
        .await
        .unwrap();
    clean(&core, &mut collector).await;
    // A pack that was open is closed by the first, and found to be without rows by the second.
    clean(&core, &mut collector).await;
    // Files without rows are kept for an hour after that.
    assert!(core.blobs.objects().unwrap().count() > 0);
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut collector).await;
    for sql in [
        "SELECT COUNT(*) FROM blobs",
        "SELECT COUNT(*) FROM variants",
    ] {
        assert_eq!(count(&core, sql).await, 0, "{sql}");
    }
    assert_eq!(core.blobs.objects().unwrap().count(), 0);
    worker.stop().await;
}

/// Stores a content that no release has.
async fn store(core: &Core, content: &[u8]) -> StoredBlob {
    let (blobs, content) = (core.blobs.clone(), content.to_vec());
    let published = tokio::task::spawn_blocking(move || {
        let mut staging = blobs.stage(u64::MAX, |_| Ok(DigestSet::default()));
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
    // It may lie elsewhere by now.
    if let Some(blob) = found.get(&blob.digest) {
        core.blobs.verify(blob).unwrap();
    }
    !found.is_empty()
}

async fn what_nobody_came_for_goes_after_a_day(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
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
    clean(&core, &mut collector).await;
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
    clean(&core, &mut collector).await;
    assert_eq!(is_there().await, [true, true, false]);
    core.clock.advance(Duration::from_hours(1));
    clean(&core, &mut collector).await;
    assert_eq!(is_there().await, [false, false, false]);
    assert_no_orphans(&core, &mut collector).await;
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

async fn mark(db: &Db, digests: Vec<Digest>, run: Timestamp) -> Result<(), StoreError> {
    db.transact(move |tx| {
        let digests = digests.clone();
        Box::pin(async move { blob_gc::mark_blobs(tx, &digests, run).await })
    })
    .await
}

async fn a_release_unmarks_what_was_marked(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let (old, again) = (store(&core, &page(1)).await, store(&core, &page(2)).await);
    let run = core.now();
    mark(&core.db, vec![old.digest, again.digest], run)
        .await
        .unwrap();
    // A clean-up has looked twice, and now a release comes.
    let id = deploy(&core, &ada, "shop", &[("a.html", &page(2))]).await;
    assert!(!marked(&core, again.digest).await && marked(&core, old.digest).await);
    let digests = vec![old.digest, again.digest];
    core.db
        .transact(move |tx| {
            let digests = digests.clone();
            Box::pin(async move { blob_gc::delete_blobs(tx, &digests, run).await })
        })
        .await
        .unwrap();
    assert!(contents(&core, id).await.is_some());
    assert_eq!(count(&core, "SELECT COUNT(*) FROM blobs").await, 1);
    clean(&core, &mut collector).await;
    assert_no_orphans(&core, &mut collector).await;
}

/// A release that names what the newest one has keeps it through that one, marks or not.
async fn what_releases_share_outlives_the_first(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let pages = [page(1), page(2)];
    let files = [("0.html", &pages[0][..]), ("1.html", &pages[1][..])];
    let mut ids = vec![ready(&core, &ada, "shop", &files).await];
    let digests: Vec<_> = pages.iter().map(|page| Digest::of(page)).collect();
    for number in 0..4 {
        // What an earlier clean-up thought, which was cut off.
        mark(&core.db, digests.clone(), core.now()).await.unwrap();
        let mut upload = begin_upload(&core, &EagerCompressor::default(), &ada, "shop")
            .await
            .unwrap();
        for (page, digest) in pages.iter().zip(&digests) {
            let path = format!("{number}/{digest}.html");
            let size = page.len() as u64;
            upload.add_named(path, *digest, size).unwrap();
        }
        let source = Source::Files(Box::new(upload));
        let made = create_release(&core, &ada, "shop", NewRelease::default(), source).await;
        ids.push(made.unwrap());
        let last = finished(&core, &ada, ids[number + 1]).await;
        assert_eq!(last.state, ReleaseState::Ready);
        core.clock.advance(Duration::from_mins(20));
        clean(&core, &mut collector).await;
        let is_kept = |at: usize| at + HISTORY as usize > number + 1;
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(contents(&core, *id).await.is_some(), is_kept(at), "{at}");
        }
    }
    worker.stop().await;
    assert_no_orphans(&core, &mut collector).await;
}

/// The one case that a mark alone cannot tell: a transaction that began before it and ends after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_older_than_the_mark_unmarks_too() {
    let at = Installation::on_postgres().await;
    let core = &at.core;
    let blob = store(core, &page(1)).await;
    let tries = Arc::new(AtomicU64::new(0));
    let (db, count, run) = (core.db.clone(), Arc::clone(&tries), core.now());
    core.db
        .transact(move |tx| {
            let (db, count) = (db.clone(), Arc::clone(&count));
            Box::pin(async move {
                // From here on the transaction sees the fixture as it is now.
                tx.query("SELECT 1 FROM projects")
                    .fetch_all::<i64>()
                    .await?;
                if count.fetch_add(1, Ordering::Relaxed) == 0 {
                    mark(&db, vec![blob.digest], run).await?;
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

async fn only_an_artifact_that_is_there_keeps_what_the_next_shares(at: &Installation) {
    let (core, _, ada) = tidy(at).await;
    create(&core, &ada, "shop").await;
    let worker = RunningWorker::start(&core);
    let release = ready(&core, &ada, "shop", &[("a", b"1")]).await;
    let there = artifact_of(&core, release).await.unwrap();
    let of = |digit: &str| digit.repeat(24).parse::<ArtifactId>().unwrap();
    let (earlier, later) = (of("0"), of("f"));
    let (gone, last) = (of("e"), later);
    for (id, next, keeps) in [
        (there, later, true),
        (there, there, false),
        (there, earlier, false),
        (gone, last, false),
    ] {
        let kept = core
            .db
            .transact(move |tx| Box::pin(artifacts::keep_artifact_for(tx, id, next)));
        assert_eq!(kept.await.unwrap(), keeps, "{id} {next}");
    }
    worker.stop().await;
}

async fn sparse_packs_are_emptied(at: &Installation) {
    let (core, mut collector, ada) = tidy(at).await;
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
            .objects()
            .unwrap()
            .map(|entry| entry.unwrap().size)
            .sum::<u64>()
    };
    let before = bytes();
    let removed = clean(&core, &mut collector).await;
    assert_eq!((removed.packs, removed.files), (1, 0));
    let (now_known, on_disk) = places(&core).await;
    assert!(
        known.is_disjoint(&now_known) && known.is_subset(&on_disk),
        "kept for a while"
    );
    assert_eq!(contents(&core, kept).await.unwrap().len(), 6);
    assert_eq!(
        clean(&core, &mut collector).await,
        CollectedBlobs::default()
    );
    core.clock.advance(Duration::from_hours(1));
    assert_eq!(clean(&core, &mut collector).await.files, 1);
    assert!(bytes() * 10 < before);
    assert!(contents(&core, kept).await.is_some());
    assert_no_orphans(&core, &mut collector).await;
    worker.stop().await;
}
