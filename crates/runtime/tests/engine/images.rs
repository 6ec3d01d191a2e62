//! Images.

use crate::support::{World, base, context, now};
use estrade_runtime::{ImageRef, OwnImage};
use futures_util::TryStreamExt;
use std::time::Duration;

#[tokio::test]
async fn an_image_gets_a_name_of_ours_and_loses_it() {
    let world = World::new();
    let engine = &world.engine;
    let own = OwnImage {
        project: world.project,
        release: world.release,
    };
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
    world.clean().await;
}

#[tokio::test]
async fn an_image_is_made_out_of_a_tar() {
    let world = World::new();
    let own = OwnImage {
        project: world.project,
        release: world.release,
    };
    let name = world.engine.image_name(own);
    world
        .engine
        .import(&name, context(&[("file", "text")]))
        .await
        .unwrap();
    assert!(world.engine.image(&name).await.unwrap().is_some());
    let listed = world.engine.images().await.unwrap();
    assert_eq!(listed[0].image, own);
    let age = now().millis() - listed[0].created.millis();
    assert!((-5_000..60_000).contains(&age), "{age}");
    world.clean().await;
}

#[tokio::test]
async fn a_pull_that_cannot_be_says_so() {
    let world = World::new();
    // Port 1 of this machine: there is no registry.
    let name: ImageRef = "127.0.0.1:1/none:1".parse().unwrap();
    let pulled: Result<Vec<_>, _> = world.engine.pull(&name, None).try_collect().await;
    let error = pulled.unwrap_err();
    assert!(!error.is_engine_away(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    world.clean().await;
}
