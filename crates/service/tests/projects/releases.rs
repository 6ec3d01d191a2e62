//! Releases: listed, read, waited for, canceled, rolled back.

use crate::acting::{
    RunningWorker, add_files, code, create, deploy, finished, named, owner, read, with_role,
};
use crate::downloads::clean_up;
use crate::support::{Installation, on_both_backends};
use estrade_model::platform::Platform;
use estrade_model::release::{NewRelease, ReleaseState, ReleaseType};
use estrade_model::team::Role;
use estrade_service::platform::releases::{
    EagerCompressor, Source, begin_upload, cancel_release, create_release, list_releases,
    read_build_logs, read_release, rollback_release, summarize_releases, wait_release,
};
use serde_json::json;
use std::time::{Duration, Instant};

on_both_backends! {
    a_static_release_becomes_ready_and_current
    what_a_release_says_is_kept
    a_container_release_fails_and_says_what_is_needed
    images_are_for_docker_only
    releases_are_listed_in_pages
    waiting_ends_with_the_state_or_the_time
    canceling_works_until_it_is_put_in_place
    rolling_back_runs_the_same_again
    viewers_change_nothing
}

async fn a_static_release_becomes_ready_and_current(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let first = deploy(core, &ada, "shop", &[("index.html", b"1")]).await;
    let second = deploy(core, &ada, "shop", &[("index.html", b"2")]).await;
    let waiting = read(core, &ada, second).await;
    assert_eq!(
        (waiting.state, waiting.queue),
        (ReleaseState::Pending, Some(1))
    );
    let worker = RunningWorker::start(core);
    let done = finished(core, &ada, second).await;
    worker.stop().await;
    assert_eq!(
        (done.state, done.kind),
        (ReleaseState::Ready, ReleaseType::Deploy)
    );
    assert_eq!((done.tag.as_str(), done.port, done.queue), ("v2", 80, None));
    assert!(done.current && done.source_available && done.finished_at.is_some());
    let replaced = read(core, &ada, first).await;
    assert_eq!(
        (replaced.state, replaced.current),
        (ReleaseState::Ready, false)
    );
    let summary = summarize_releases(core, &ada, "shop").await.unwrap();
    assert_eq!((summary.ready, summary.total), (2, 2));
    assert_eq!(
        (summary.current, summary.platform),
        (Some(second), Platform::Static)
    );
}

async fn what_a_release_says_is_kept(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let upload = begin_upload(core, &EagerCompressor::default(), &ada, "shop")
        .await
        .unwrap();
    let upload = add_files(upload, named(&[("a", b"1")])).await.unwrap();
    let secret = json!({"envs": {"TOKEN": "hunter2"}});
    let new = NewRelease {
        platform: Some(Platform::Node),
        port: Some(4000),
        message: Some("first".into()),
        git_info: Some(json!({"branch": "main\u{0}"})),
        client: Some("cli/1.0\n".into()),
        settings: secret.as_object().unwrap().clone(),
    };
    let source = Source::Files(upload);
    let id = create_release(core, &ada, "shop", new, source)
        .await
        .unwrap();
    let release = read(core, &ada, id).await;
    assert_eq!((release.project_type, release.port), (Platform::Node, 4000));
    assert_eq!(release.message.as_deref(), Some("first"));
    assert_eq!(release.git_info, Some(json!({"branch": "main\u{0}"})));
    assert_eq!(release.client.as_deref(), Some("cli/1.0"));
    let stored: Vec<u8> = core
        .db
        .read("SELECT settings FROM releases")
        .fetch_one()
        .await
        .unwrap();
    assert!(!stored.windows(7).any(|part| part == b"hunter2"));
}

async fn a_container_release_fails_and_says_what_is_needed(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let live = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    finished(core, &ada, live).await;
    let upload = begin_upload(core, &EagerCompressor::default(), &ada, "shop")
        .await
        .unwrap();
    let upload = add_files(upload, named(&[("a", b"1")])).await.unwrap();
    let new = NewRelease {
        platform: Some(Platform::Django),
        ..NewRelease::default()
    };
    let id = create_release(core, &ada, "shop", new, Source::Files(upload))
        .await
        .unwrap();
    let failed = finished(core, &ada, id).await;
    worker.stop().await;
    assert_eq!(failed.state, ReleaseState::Failed);
    assert_eq!(
        failed.fail_reason.as_deref(),
        Some("container_runtime_unavailable")
    );
    let message = failed.fail_message.unwrap();
    assert!(message.contains("Docker Engine"));
    // The log ends with the cause also if nothing was built.
    let logs = read_build_logs(core, &ada, id, None).await.unwrap();
    let lines: Vec<_> = logs.build_output.iter().map(|it| it.line.trim()).collect();
    assert_eq!(lines.last(), Some(&&*format!("Failed: {message}")));
    // A failed release never touches the one that is live.
    assert!(read(core, &ada, live).await.current);
    assert_eq!(code(rollback_release(core, &ada, id).await), "not_ready");
}

async fn images_are_for_docker_only(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let make = async |platform, image: &str| {
        let new = NewRelease {
            platform,
            ..NewRelease::default()
        };
        create_release(core, &ada, "shop", new, Source::Image(image.into())).await
    };
    assert_eq!(code(make(None, "nginx").await), "invalid");
    for bad in ["", "a b", "nginx\0", "é", &"x".repeat(600)] {
        assert_eq!(
            code(make(Some(Platform::Docker), bad).await),
            "invalid",
            "{bad:?}"
        );
    }
    let release = make(Some(Platform::Docker), "nginx:1.27").await.unwrap();
    assert!(!read(core, &ada, release).await.source_available);
}

async fn releases_are_listed_in_pages(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    for _ in 0..5 {
        deploy(core, &ada, "shop", &[("a", b"1")]).await;
    }
    let page = async |before, count, skip| {
        let page = list_releases(core, &ada, "shop", before, count, skip)
            .await
            .unwrap();
        let tags: Vec<_> = page.iter().map(|it| it.tag.as_str()).collect();
        (tags.join(" "), page.last().map(|it| it.id))
    };
    let (tags, last) = page(None, 2, 0).await;
    assert_eq!(tags, "v5 v4");
    let (tags, last) = page(last, 2, 0).await;
    assert_eq!(tags, "v3 v2");
    assert_eq!(page(last, 2, 0).await.0, "v1");
    assert_eq!(page(None, 2, 3).await.0, "v2 v1");
}

async fn waiting_ends_with_the_state_or_the_time(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    // Whoever waits for the time and not for the state waits longer than a test may.
    let long = Duration::from_hours(1);
    let wait = async |state, timeout| {
        wait_release(core, &ada, id, state, timeout)
            .await
            .unwrap()
            .0
            .state
    };
    let pending = ReleaseState::Pending;
    assert_eq!(wait(pending, long).await, pending);
    let brief = Duration::from_millis(50);
    assert_eq!(wait(ReleaseState::Ready, brief).await, pending);
    cancel_release(core, &ada, id).await.unwrap();
    assert_eq!(
        wait(ReleaseState::Ready, long).await,
        ReleaseState::Canceled
    );

    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let (_, before) = read_release(core, &ada, id).await.unwrap();
    let begun = Instant::now();
    let waited = async { finished(core, &ada, id).await };
    let starting = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        RunningWorker::start(core)
    };
    let (release, worker) = tokio::join!(waited, starting);
    assert_eq!(release.state, ReleaseState::Ready);
    assert!(
        // The behaviour itself: who hears nothing looks again after two seconds.
        begun.elapsed() < Duration::from_millis(1500),
        "the change was not heard of"
    );
    worker.stop().await;
    let (_, after) = read_release(core, &ada, id).await.unwrap();
    assert!(after > before);
}

async fn canceling_works_until_it_is_put_in_place(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let canceled = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    cancel_release(core, &ada, canceled).await.unwrap();
    assert_eq!(
        read(core, &ada, canceled).await.state,
        ReleaseState::Canceled
    );
    assert_eq!(
        code(cancel_release(core, &ada, canceled).await),
        "not_cancelable"
    );
    let worker = RunningWorker::start(core);
    let next = deploy(core, &ada, "shop", &[("a", b"2")]).await;
    finished(core, &ada, next).await;
    worker.stop().await;
    assert_eq!(
        code(cancel_release(core, &ada, next).await),
        "not_cancelable"
    );
    assert_eq!(
        read(core, &ada, canceled).await.state,
        ReleaseState::Canceled
    );
}

async fn rolling_back_runs_the_same_again(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let first = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    finished(core, &ada, first).await;
    let second = deploy(core, &ada, "shop", &[("a", b"2")]).await;
    finished(core, &ada, second).await;
    assert_eq!(code(rollback_release(core, &ada, second).await), "current");
    let back = rollback_release(core, &ada, first).await.unwrap();
    let done = finished(core, &ada, back).await;
    assert_eq!(
        (done.kind, done.state),
        (ReleaseType::Rollback, ReleaseState::Ready)
    );
    assert_eq!(done.tag, "v3");
    assert!(done.current && done.source_available);
    worker.stop().await;

    let waiting = deploy(core, &ada, "shop", &[("a", b"3")]).await;
    assert_eq!(
        code(rollback_release(core, &ada, waiting).await),
        "not_ready"
    );
    clean_up(core).await;
    assert_eq!(code(rollback_release(core, &ada, first).await), "gone");
    assert!(!read(core, &ada, first).await.source_available);
}

async fn viewers_change_nothing(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let viewer = with_role(&ada, Role::Viewer);
    read_release(core, &viewer, id).await.unwrap();
    assert_eq!(
        code(cancel_release(core, &viewer, id).await),
        "no_permission"
    );
    assert_eq!(
        code(rollback_release(core, &viewer, id).await),
        "no_permission"
    );
    let new = NewRelease {
        platform: Some(Platform::Docker),
        ..NewRelease::default()
    };
    let image = Source::Image("nginx".into());
    assert_eq!(
        code(create_release(core, &viewer, "shop", new, image).await),
        "no_permission"
    );
}
