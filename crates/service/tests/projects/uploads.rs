//! Files on their way in: what is refused leaves nothing, what is known is not written again.

use crate::acting::{
    RunningWorker, add_files, bytes_on_disk, code, count, create, deploy, finished, named, owner,
    try_deploy, with_role,
};
use crate::support::{Installation, on_both_backends};
use estrade_model::plan::Plan;
use estrade_model::release::NewRelease;
use estrade_model::team::Role;
use estrade_service::platform::releases::{EagerCompressor, Source, begin_upload, create_release};
use estrade_service::{Core, Error, Settings, platform::projects};

on_both_backends! {
    bad_files_are_refused_by_name_and_leave_nothing
    the_caps_hold_and_leave_nothing
    a_refusal_at_the_end_leaves_nothing
    each_content_is_stored_once
}

/// How many files the blob store has, published and unfinished.
fn files_on_disk(core: &Core) -> (usize, u64) {
    let published = core.blobs.objects().unwrap().count();
    (published, core.blobs.sweep_temporary().unwrap())
}

async fn assert_nothing_left(core: &Core) {
    assert_eq!(files_on_disk(core), (0, 0));
    for sql in [
        "SELECT COUNT(*) FROM blobs",
        "SELECT COUNT(*) FROM artifacts",
        "SELECT COUNT(*) FROM releases",
        "SELECT COUNT(*) FROM events",
    ] {
        assert_eq!(count(core, sql).await, 0, "{sql}");
    }
}

async fn bad_files_are_refused_by_name_and_leave_nothing(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let large = vec![7; 2 << 20];
    for bad in ["../up", "/abs", "a//b", "a\0b", "good", "good/below", "dir"] {
        let files = named(&[("good", b"1"), ("dir/file", &large), (bad, b"2")]);
        let Err(Error::Invalid { message, .. }) = try_deploy(core, &ada, "shop", files).await
        else {
            unreachable!("{bad} was accepted")
        };
        let shown = bad.split('/').next().unwrap().escape_debug().to_string();
        assert!(message.contains(&shown), "{message}");
    }
    let none = try_deploy(core, &ada, "shop", Vec::new()).await;
    assert_eq!(code(none), "invalid");
    assert_nothing_left(core).await;
}

async fn the_caps_hold_and_leave_nothing(at: &Installation) {
    let ada = owner(at, "ada").await;
    let mut settings = Settings {
        max_files: 3,
        max_release_bytes: 3 << 30,
        ..Settings::default()
    };
    let plan = |disk_gb| Plan {
        memory_mb: 1,
        cpus: 1,
        disk_gb,
        hourly_price: 0,
    };
    settings.plans.set("tiny".into(), plan(0));
    let core = at.another_core(settings).await;
    create(&core, &ada, "shop").await;
    let four: Vec<_> = (0..4).map(|number| (number.to_string(), vec![1])).collect();
    assert_eq!(
        code(try_deploy(&core, &ada, "shop", four).await),
        "too_large"
    );
    projects::resize_project(&core, &ada, "shop", "tiny")
        .await
        .unwrap();
    let one = named(&[("a", b"1")]);
    let Err(Error::TooLarge(message)) = try_deploy(&core, &ada, "shop", one).await else {
        unreachable!("more than the plan's disk was accepted")
    };
    assert!(message.contains("tiny"), "{message}");

    let settings = Settings {
        max_release_bytes: 10,
        ..Settings::default()
    };
    let core = at.another_core(settings).await;
    create(&core, &ada, "other").await;
    // The same content twice counts twice.
    let files = named(&[("a", b"123456"), ("b", b"123456")]);
    assert_eq!(
        code(try_deploy(&core, &ada, "other", files).await),
        "too_large"
    );
    projects::delete_project(&core, &ada, "shop", None)
        .await
        .unwrap();
    assert_nothing_left(&core).await;
}

async fn a_refusal_at_the_end_leaves_nothing(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let large = vec![3; 2 << 20];
    let files = || named(&[("a", b"small"), ("b", &large)]);

    create(core, &ada, "shop").await;
    let upload = begin_upload(core, &EagerCompressor::default(), &ada, "shop")
        .await
        .unwrap();
    let source = Source::Files(add_files(upload, files()).await.unwrap());
    let long = NewRelease {
        message: Some("x".repeat(100_000)),
        ..NewRelease::default()
    };
    assert_eq!(
        code(create_release(core, &ada, "shop", long, source).await),
        "invalid"
    );
    assert_nothing_left(core).await;

    // Deleted while its files were received, and a new one of that name made.
    let upload = begin_upload(core, &EagerCompressor::default(), &ada, "shop")
        .await
        .unwrap();
    let source = Source::Files(add_files(upload, files()).await.unwrap());
    projects::delete_project(core, &ada, "shop", None)
        .await
        .unwrap();
    create(core, &ada, "shop").await;
    let new = NewRelease::default();
    assert_eq!(
        code(create_release(core, &ada, "shop", new, source).await),
        "not_found"
    );
    assert_nothing_left(core).await;

    let viewer = with_role(&ada, Role::Viewer);
    assert_eq!(
        code(begin_upload(core, &EagerCompressor::default(), &viewer, "shop").await),
        "no_permission"
    );
}

async fn each_content_is_stored_once(at: &Installation) {
    let (core, ada, bob) = (&at.core, owner(at, "ada").await, owner(at, "bob").await);
    create(core, &ada, "one").await;
    create(core, &bob, "two").await;
    let worker = RunningWorker::start(core);
    let large = vec![5; 2 << 20];
    let files: &[(&str, &[u8])] = &[("a", b"same"), ("b", b"same"), ("c", &large), ("d", b"")];
    let first = deploy(core, &ada, "one", files).await;
    finished(core, &ada, first).await;
    // One pack and one large file; three distinct contents.
    assert_eq!(files_on_disk(core), (2, 0));
    assert_eq!(count(core, "SELECT COUNT(*) FROM blobs").await, 3);
    let bytes = bytes_on_disk(core);
    deploy(core, &ada, "one", files).await;
    deploy(core, &bob, "two", files).await;
    assert_eq!(files_on_disk(core), (2, 0), "nothing was written again");
    assert_eq!(bytes_on_disk(core), bytes);
    let more: &[(&str, &[u8])] = &[("a", b"same"), ("c", &large), ("e", b"new")];
    deploy(core, &ada, "one", more).await;
    // It shares the pack.
    assert_eq!(files_on_disk(core), (2, 0));
    assert_eq!(
        bytes_on_disk(core),
        bytes + 3,
        "only what is new was written"
    );
    assert_eq!(count(core, "SELECT COUNT(*) FROM blobs").await, 4);
    worker.stop().await;
}
