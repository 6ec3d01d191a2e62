//! Compressed variants: made once, kept where they are worth it, and there when a release is READY.

use crate::acting::{
    RunningWorker, bytes_on_disk, count, create, deploy, finished, named, owner, try_deploy,
};
use crate::support::{Installation, on_both_backends};
use estrade_blobs::Digest;
use estrade_model::coding::Coding;
use estrade_model::release::ReleaseState;
use estrade_model::{ProjectId, ReleaseId};
use estrade_service::platform::releases::{
    Claim, EagerCompressor, cancel_release, rollback_release, run_brotli,
};
use estrade_service::{Core, Publisher, Result, Scope, Services};
use estrade_store::blob_rows::read_blobs;
use estrade_store::routes::LiveRow;
use estrade_store::variants::{VariantRow, find_tried, read_variants};
use estrade_store::{ChangeKind, artifacts};
use std::io::Read;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    text_has_variants_when_it_is_ready
    what_does_not_shrink_is_noted_and_not_kept
    large_contents_are_streamed
    a_rollback_makes_none
    brotli_follows_and_is_announced
    releases_that_make_the_same_do_not_clash
    a_canceled_release_leaves_nothing_half_done
    what_was_shown_before_the_commit_is_never_something_else
}

fn text(lines: usize) -> Vec<u8> {
    let line = |number| format!("<p class=\"line\">number {number} of a page</p>\n");
    (0..lines).map(line).collect::<String>().into_bytes()
}

/// Bytes that nobody can compress.
fn noise(length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

fn unpack(coding: Coding, packed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match coding {
        Coding::Gzip => flate2::read::GzDecoder::new(packed)
            .read_to_end(&mut content)
            .map(drop),
        Coding::Zstd => zstd::stream::copy_decode(packed, &mut content),
        Coding::Brotli => brotli::BrotliDecompress(&mut &*packed, &mut content),
        Coding::Identity => unreachable!(),
    }
    .unwrap();
    content
}

async fn variants_of(core: &Core, content: &[u8]) -> Vec<VariantRow> {
    let digest = Digest::of(content);
    let mut found = read_variants(&core.db, &[digest]).await.unwrap();
    found.sort_by_key(|variant| variant.coding);
    for variant in &found {
        core.blobs.verify(&variant.blob).unwrap();
        let mut packed = Vec::new();
        let mut reader = core.blobs.open_reader(&variant.blob).unwrap();
        reader.read_to_end(&mut packed).unwrap();
        assert!(packed.len() * 100 <= content.len() * 95);
        assert_eq!(
            unpack(variant.coding, &packed),
            content,
            "{:?}",
            variant.coding
        );
    }
    found
}

fn codings(found: &[VariantRow]) -> Vec<Coding> {
    found.iter().map(|variant| variant.coding).collect()
}

async fn deploy_ready(core: &Core, ada: &Scope, files: &[(&str, &[u8])]) {
    let id = deploy(core, ada, "shop", files).await;
    assert_eq!(finished(core, ada, id).await.state, ReleaseState::Ready);
}

async fn text_has_variants_when_it_is_ready(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let (page, script, license) = (text(100), text(101), text(102));
    let many: Vec<_> = (0..150).map(|number| text(40 + number)).collect();
    let mut files = named(&[("a.html", &page), ("b.js", &script), ("LICENSE", &license)]);
    files.extend(named(&[
        ("short.html", b"short"),
        ("photo.png", &text(1003)),
    ]));
    let pages = many.iter().enumerate();
    files.extend(pages.map(|(number, page)| (format!("p/{number}.html"), page.clone())));
    let id = try_deploy(core, &ada, "shop", files).await.unwrap();
    assert_eq!(finished(core, &ada, id).await.state, ReleaseState::Ready);
    for content in [&page, &script, &license].into_iter().chain(&many) {
        let found = variants_of(core, content).await;
        assert_eq!(codings(&found), [Coding::Gzip, Coding::Zstd]);
    }
    for content in [&b"short"[..], &text(1003)] {
        let digest = [Digest::of(content)];
        assert!(find_tried(&core.db, &digest).await.unwrap().is_empty());
    }
    let open = "SELECT COUNT(*) FROM artifacts WHERE NOT compressed";
    assert_eq!(count(core, open).await, 0);
    worker.stop().await;
}

async fn what_does_not_shrink_is_noted_and_not_kept(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let (js, unknown, large) = (noise(5000), noise(6000), noise(3 << 20));
    deploy_ready(
        core,
        &ada,
        &[("a.js", &js), ("b", &unknown), ("c.css", &large)],
    )
    .await;
    for content in [&js, &unknown, &large] {
        assert!(variants_of(core, content).await.is_empty());
        let tried = find_tried(&core.db, &[Digest::of(content)]).await.unwrap();
        assert_eq!(tried.len(), 2, "so that nobody tries again");
    }
    // A pack and a large file; nothing was left by what was tried.
    assert_eq!(core.blobs.objects().unwrap().count(), 2);
    assert_eq!(bytes_on_disk(core), 5000 + 6000 + (3 << 20));
    assert_eq!(core.blobs.sweep_temporary().unwrap(), 0);
    worker.stop().await;
}

async fn large_contents_are_streamed(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let large = text(60_000);
    assert!(large.len() > 2 << 20);
    deploy_ready(core, &ada, &[("big.json", &large), ("a.html", &text(90))]).await;
    let found = variants_of(core, &large).await;
    assert_eq!(codings(&found), [Coding::Gzip, Coding::Zstd]);
    worker.stop().await;
}

async fn a_rollback_makes_none(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let first = deploy(core, &ada, "shop", &[("a.html", &text(100))]).await;
    let worker = RunningWorker::start(core);
    finished(core, &ada, first).await;
    deploy_ready(core, &ada, &[("a.html", &text(101))]).await;
    let before = bytes_on_disk(core);
    let again = rollback_release(core, &ada, first).await.unwrap();
    finished(core, &ada, again).await;
    // The same content in another release: nothing to make either.
    deploy_ready(core, &ada, &[("b.html", &text(101))]).await;
    assert_eq!(bytes_on_disk(core), before);
    worker.stop().await;
}

async fn brotli_follows_and_is_announced(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let (page, large) = (text(300), text(20_000));
    deploy_ready(
        core,
        &ada,
        &[("a.html", &page), ("b.json", &large), ("c.js", &noise(900))],
    )
    .await;
    worker.stop().await;
    let mut changes = core.db.changes().subscribe();
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    task.spawn(run_brotli(
        Arc::clone(core),
        EagerCompressor::default(),
        stop.clone(),
    ));
    let announced = async {
        loop {
            let change = changes.recv().await.unwrap();
            if change.kind == ChangeKind::Route {
                return change.id;
            }
        }
    };
    let announced = tokio::time::timeout(Duration::from_secs(100), announced).await;
    assert_eq!(announced.unwrap(), project.id.to_string());
    for content in [&page, &large] {
        let found = variants_of(core, content).await;
        let all = [Coding::Gzip, Coding::Zstd, Coding::Brotli];
        assert_eq!(codings(&found), all);
        assert!(
            found[2].blob.size < found[0].blob.size,
            "it is worth the wait"
        );
    }
    assert!(
        artifacts::list_without_brotli(&core.db, 9)
            .await
            .unwrap()
            .is_empty()
    );
    stop.cancel();
    task.join_all().await;
}

async fn releases_that_make_the_same_do_not_clash(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let worker = RunningWorker::start(core);
    let page = text(500);
    let mut ids = Vec::new();
    for number in 0..6 {
        let name = format!("shop-{number}");
        create(core, &ada, &name).await;
        ids.push(deploy(core, &ada, &name, &[("a.html", &page)]).await);
    }
    for id in ids {
        assert_eq!(finished(core, &ada, id).await.state, ReleaseState::Ready);
    }
    let found = variants_of(core, &page).await;
    assert_eq!(codings(&found), [Coding::Gzip, Coding::Zstd]);
    worker.stop().await;
}

async fn a_canceled_release_leaves_nothing_half_done(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let large = text(200_000);
    let id = deploy(core, &ada, "shop", &[("a.json", &large)]).await;
    let worker = RunningWorker::start(core);
    // Somewhere in the middle: the state is written down while the work goes on.
    while !matches!(
        crate::acting::read(core, &ada, id).await.state,
        ReleaseState::Building | ReleaseState::Ready
    ) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let canceled = cancel_release(core, &ada, id).await.is_ok();
    let state = finished(core, &ada, id).await.state;
    assert_eq!(state == ReleaseState::Canceled, canceled);
    worker.stop().await;
    assert!(Claim::take(core, 1).await.unwrap().is_empty());
    if canceled {
        assert_eq!(count(core, "SELECT COUNT(*) FROM variants").await, 0);
        let digest = [Digest::of(&large)];
        assert_eq!(read_blobs(&core.db, &digest).await.unwrap().len(), 1);
    }
    // The next release does not rely on what was never done.
    let worker = RunningWorker::start(core);
    deploy_ready(core, &ada, &[("a.json", &large)]).await;
    worker.stop().await;
    assert_eq!(variants_of(core, &large).await.len(), 2);
}

/// Stands for the edge: is shown variants before they are committed. The first time, somebody else takes the
/// release over right after that.
struct Onlooker {
    core: Arc<Core>,
    shown: Mutex<Vec<VariantRow>>,
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// How long a worker that is never heard of again keeps its release.
const LEASE: Duration = Duration::from_secs(6);

impl Publisher for Onlooker {
    fn prepare<'p>(
        &'p self,
        _: ProjectId,
        _: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> Boxed<'p, Result<()>> {
        let mut shown = self.shown.lock().unwrap();
        let is_first = shown.is_empty();
        shown.extend(fresh);
        Box::pin(async move {
            if is_first {
                self.core.clock.advance(LEASE);
                Claim::take(&self.core, 1).await?;
            }
            Ok(())
        })
    }

    fn publish(
        &self,
        _: ProjectId,
        _: ReleaseId,
        _: &[SocketAddr],
        _: Duration,
    ) -> Boxed<'static, ()> {
        Box::pin(async {})
    }
}

async fn what_was_shown_before_the_commit_is_never_something_else(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let onlooker = Arc::new(Onlooker {
        core: Arc::clone(core),
        shown: Mutex::default(),
    });
    let edge: Arc<dyn Publisher> = Arc::clone(&onlooker) as _;
    let services = Services::new(core).unwrap();
    services.publisher.set(Arc::downgrade(&edge));
    create(core, &ada, "late").await;
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start_with(services);
    let late = deploy(core, &ada, "late", &[("a.html", &text(100))]).await;
    let is_shown = || onlooker.shown.lock().unwrap().len() >= 2;
    while !is_shown() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Others come to where its variants lay, as far as that is free.
    for lines in 101..110 {
        deploy_ready(core, &ada, &[("a.html", &text(lines))]).await;
    }
    let verify_all = || {
        let shown = onlooker.shown.lock().unwrap().clone();
        for variant in &shown {
            core.blobs.verify(&variant.blob).unwrap();
        }
        shown
    };
    verify_all();
    core.clock.advance(LEASE);
    let late = finished(core, &ada, late).await;
    assert_eq!(late.state, ReleaseState::Ready);
    worker.stop().await;
    let shown = verify_all();
    let (first, rest) = shown.split_at(2);
    let again = rest.iter().filter(|it| it.of == first[0].of);
    let again: Vec<_> = again.map(|it| it.blob.location).collect();
    assert_eq!(again.len(), 2, "the first time was in vain");
    assert!(first.iter().all(|it| !again.contains(&it.blob.location)));
    assert_eq!(variants_of(core, &text(100)).await.len(), 2);
}
