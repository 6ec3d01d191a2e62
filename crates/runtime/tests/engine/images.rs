//! Images.

use crate::support::{EngineFixture, base, context, now, stranger};
use bollard::query_parameters::RemoveImageOptions;
use bytes::Bytes;
use estrade_runtime::{ImageRef, OwnImage};
use futures_util::TryStreamExt;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

fn own(fixture: &EngineFixture) -> OwnImage {
    OwnImage {
        project: fixture.project,
        release: fixture.release,
    }
}

#[tokio::test]
async fn an_image_gets_a_name_of_ours_and_loses_it() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let own = own(&fixture);
    let found = engine.image(&base()).await.unwrap().unwrap();
    assert!(found.runs_as_root() && found.size > 10_000_000 && found.ports.is_empty());
    for _ in 0..2 {
        engine.tag(&base(), own).await.unwrap();
    }
    let name = engine.image_name(own);
    assert_eq!(engine.image(&name).await.unwrap().unwrap().id, found.id);
    let listed = engine.images().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].image, listed[0].size), (own, found.size));

    // Our name goes, theirs stays.
    for _ in 0..2 {
        engine.remove_image(own).await.unwrap();
    }
    assert_eq!(engine.image(&name).await.unwrap(), None);
    engine
        .prune_images(now().after(Duration::from_hours(1)))
        .await
        .unwrap();
    assert_eq!(engine.image(&base()).await.unwrap(), Some(found));
    let none: ImageRef = "estrade-test/none".parse().unwrap();
    assert!(engine.tag(&none, own).await.unwrap_err().is_not_found());
    fixture.clean().await;
}

#[tokio::test]
async fn images_to_build_on_go_when_nobody_builds_on_them_any_more() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let mut names = Vec::new();
    for kind in ["fetched", "used", "theirs"] {
        let name: ImageRef = format!("estrade-test/{kind}:{}", fixture.release)
            .parse()
            .unwrap();
        // Each is another image.
        let file = context(&[("kind", kind)]);
        engine.import(&name, file).await.unwrap();
        engine
            .note_base(&name, kind != "theirs", now())
            .await
            .unwrap();
        names.push(name);
    }
    let there = || async {
        let mut there = Vec::new();
        for name in &names {
            there.push(engine.image(name).await.unwrap().is_some());
        }
        there
    };
    engine
        .prune_bases(now().before(Duration::from_mins(1)))
        .await
        .unwrap();
    assert_eq!(there().await, [true, true, true], "they were used just now");
    let later = now().after(Duration::from_hours(1));
    engine.note_base(&names[1], false, later).await.unwrap();
    engine
        .prune_bases(now().after(Duration::from_mins(1)))
        .await
        .unwrap();
    assert_eq!(there().await, [false, true, true]);
    engine
        .prune_bases(later.after(Duration::from_mins(1)))
        .await
        .unwrap();
    assert_eq!(there().await, [false, false, true], "that one is not ours");
    let (theirs, options) = (names[2].as_str(), None::<RemoveImageOptions>);
    stranger()
        .remove_image(theirs, options, None)
        .await
        .unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn unnamed_images_of_others_stay() {
    let (fixture, stranger) = (EngineFixture::new(), stranger());
    let options = bollard::query_parameters::CreateImageOptions {
        from_src: Some("-".into()),
        ..Default::default()
    };
    let mark = format!("{:?}", fixture.engine);
    let tar = bollard::body_try_stream(context(&[("mark", &mark)]));
    let made = stranger.create_image(Some(options), Some(tar), None);
    let made: Vec<_> = made.try_collect().await.unwrap();
    let id = made.last().unwrap().status.clone().unwrap();
    let later = now().after(Duration::from_hours(1));
    fixture.engine.prune_images(later).await.unwrap();
    stranger.inspect_image(&id).await.unwrap();
    stranger
        .remove_image(&id, None::<RemoveImageOptions>, None)
        .await
        .unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn an_image_is_made_out_of_a_tar() {
    let fixture = EngineFixture::new();
    let own = own(&fixture);
    let name = fixture.engine.image_name(own);
    fixture
        .engine
        .import(&name, context(&[("file", "text")]))
        .await
        .unwrap();
    assert!(fixture.engine.image(&name).await.unwrap().is_some());
    let listed = fixture.engine.images().await.unwrap();
    assert_eq!(listed[0].image, own);
    let age = now().millis() - listed[0].created.millis();
    assert!((-5_000..60_000).contains(&age), "{age}");
    fixture.clean().await;
}

#[tokio::test]
async fn a_pull_that_cannot_be_says_so() {
    let fixture = EngineFixture::new();
    // Port 1 of this machine: there is no registry.
    let name: ImageRef = "127.0.0.1:1/none:1".parse().unwrap();
    let pull = fixture
        .engine
        .pull(&name, Some(own(&fixture)), None)
        .await
        .unwrap();
    let error = pull.finish().await.unwrap_err();
    assert!(!error.is_engine_away(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    fixture.clean().await;
}

#[tokio::test]
async fn a_pulled_image_is_the_releases_and_goes_with_it() {
    let (fixture, registry) = (EngineFixture::new(), Registry::start().await);
    let engine = &fixture.engine;
    let name: ImageRef = format!("{}/app:1", registry.address).parse().unwrap();
    for known in [false, true] {
        if known {
            // Somebody else has pulled it, too.
            let options = bollard::query_parameters::CreateImageOptions {
                from_image: Some(name.to_string()),
                ..Default::default()
            };
            let pulled = stranger().create_image(Some(options), None, None);
            pulled.try_for_each(|_| async { Ok(()) }).await.unwrap();
        }
        let mut pull = engine.pull(&name, Some(own(&fixture)), None).await.unwrap();
        let mut progress = Vec::new();
        while let Some(message) = pull.next_progress().await {
            progress.push(message.status);
        }
        assert!(
            progress.iter().any(|status| status.starts_with("Status: ")),
            "{progress:?}"
        );
        pull.finish().await.unwrap();
        let found = engine
            .image(&engine.image_name(own(&fixture)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.ports, [4321]);
        engine.remove_image(own(&fixture)).await.unwrap();
        assert_eq!(engine.image(&name).await.unwrap().is_some(), known);
    }
    stranger()
        .remove_image(name.as_str(), None::<RemoveImageOptions>, None)
        .await
        .unwrap();
    fixture.clean().await;
}

/// A registry with one image of one layer, `app:1`.
struct Registry {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Registry {
    async fn start() -> Self {
        let layer = context(&[("file", "text")])
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .concat();
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": {"ExposedPorts": {"4321/tcp": {}}},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let part = |kind: &str, bytes: &[u8]| {
            serde_json::json!({
                "mediaType": format!("application/vnd.docker.{kind}"),
                "size": bytes.len(), "digest": digest(bytes),
            })
        };
        let kind = "application/vnd.docker.distribution.manifest.v2+json";
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": kind,
            "config": part("container.image.v1+json", &config),
            "layers": [part("image.rootfs.diff.tar.gzip", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let contents: HashMap<String, (&str, Vec<u8>)> = HashMap::from([
            ("/v2/".to_owned(), ("application/json", b"{}".to_vec())),
            ("/v2/app/manifests/1".to_owned(), (kind, manifest.clone())),
            (
                format!("/v2/app/manifests/{}", digest(&manifest)),
                (kind, manifest),
            ),
            (
                format!("/v2/app/blobs/{}", digest(&config)),
                ("application/octet-stream", config),
            ),
            (
                format!("/v2/app/blobs/{}", digest(&layer)),
                ("application/octet-stream", layer),
            ),
        ]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::new(contents)));
        Self {
            address,
            _tasks: tasks,
        }
    }
}

async fn serve(listener: TcpListener, contents: Arc<HashMap<String, (&'static str, Vec<u8>)>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let contents = Arc::clone(&contents);
        let response = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let found = contents.get(request.uri().path()).cloned();
            async move {
                let (kind, bytes) = found.unwrap_or(("text/plain", Vec::new()));
                let status = if bytes.is_empty() { 404 } else { 200 };
                http::Response::builder()
                    .status(status)
                    .header("content-type", kind)
                    .header("docker-content-digest", digest(&bytes))
                    .body(Full::new(Bytes::from(bytes)))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new();
        let connection = connection.serve_connection(TokioIo::new(stream), response);
        connections.spawn(async move {
            let _ = connection.await;
        });
    }
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
