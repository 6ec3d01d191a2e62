//! Downloading what a release was made of.

use crate::acting::{code, create, deploy, owner};
use crate::support::{Installation, on_both_backends};
use estrade_model::ReleaseId;
use estrade_model::platform::Platform;
use estrade_model::release::NewRelease;
use estrade_service::platform::releases::{Source, create_release, download_source};
use estrade_service::{Core, Scope};
use futures_util::TryStreamExt;
use std::io::Read;

on_both_backends! {
    a_download_is_what_was_deployed_and_always_the_same
    what_is_gone_and_what_never_was
}

async fn download(core: &Core, scope: &Scope, id: ReleaseId) -> Vec<u8> {
    let source = download_source(core, scope, id).await.unwrap();
    let pieces: Vec<_> = source.stream.try_collect().await.unwrap();
    pieces.concat()
}

async fn a_download_is_what_was_deployed_and_always_the_same(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    // Noise does not compress, so that the archive has many pieces.
    let noise: Vec<u8> = (0..3_u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let deep = format!(
        "{}/é ü.txt",
        "long-directory-name/".repeat(12).trim_end_matches('/')
    );
    let files: Vec<(&str, &[u8])> = vec![
        ("z.html", b"last"),
        ("empty", b""),
        (&deep, b"deep"),
        ("noise", &noise),
        ("block", &[1; 512]),
    ];
    let first = deploy(core, &ada, "shop", &files).await;
    let reversed: Vec<_> = files.iter().rev().copied().collect();
    let second = deploy(core, &ada, "shop", &reversed).await;

    let archive = download(core, &ada, first).await;
    assert_eq!(archive, download(core, &ada, second).await);
    assert_eq!(archive[4..8], [0; 4], "the gzip header has no time");
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let mut unpacked = Vec::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(header.mtime().unwrap(), 0);
        assert_eq!((header.mode().unwrap(), header.uid().unwrap()), (0o644, 0));
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        unpacked.push((path, content));
    }
    let mut expected = crate::acting::named(&files);
    expected.sort();
    assert!(unpacked == expected, "the archive holds something else");
}

async fn what_is_gone_and_what_never_was(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let new = NewRelease {
        platform: Some(Platform::Docker),
        ..NewRelease::default()
    };
    let image = Source::Image("nginx:1.27".into());
    let image = create_release(core, &ada, "shop", new, image)
        .await
        .unwrap();
    assert_eq!(code(download_source(core, &ada, image).await), "not_found");

    let large = deploy(core, &ada, "shop", &[("a", &vec![1; 2 << 20])]).await;
    for place in core.blobs.objects().unwrap() {
        core.blobs.remove_object(place.unwrap().id).unwrap();
    }
    assert_eq!(code(download_source(core, &ada, large).await), "gone");

    let cleaned = deploy(core, &ada, "shop", &[("a", b"small")]).await;
    clean_up(core).await;
    assert_eq!(code(download_source(core, &ada, cleaned).await), "gone");
}

/// As retention does.
pub(crate) async fn clean_up(core: &Core) {
    core.db
        .transact(|tx| {
            Box::pin(async move { tx.query("DELETE FROM artifacts").execute().await.map(drop) })
        })
        .await
        .unwrap();
}
