//! What belongs to one owner does not exist for another.

use crate::acting::{
    RunningWorker, code, create, deploy, finished, new_project, nobody, owner, try_deploy,
};
use crate::support::{Installation, on_both_backends};
use estrade_model::release::{NewRelease, ReleaseState};
use estrade_model::{ProjectId, ReleaseId};
use estrade_service::platform::releases::{self, EagerCompressor, Source};
use estrade_service::{
    Core, Scope, platform::envs, platform::events, platform::networks, platform::projects,
};
use std::sync::Arc;
use std::time::Duration;

on_both_backends! {
    a_stranger_gets_the_response_for_what_does_not_exist
    lists_hold_only_ones_own
    a_network_of_another_cannot_be_joined
}

/// Every operation on a project or release, with its answer.
async fn attempts(
    core: &Arc<Core>,
    scope: &Scope,
    project: &str,
    release: ReleaseId,
) -> Vec<(&'static str, &'static str)> {
    let image = Source::Image("nginx".into());
    let soon = Duration::from_millis(1);
    vec![
        (
            "read project",
            code(projects::read_project(core, scope, project).await),
        ),
        (
            "scale",
            code(projects::scale_project(core, scope, project, 3).await),
        ),
        (
            "resize",
            code(projects::resize_project(core, scope, project, "micro").await),
        ),
        (
            "restart",
            code(projects::restart_project(core, scope, project).await),
        ),
        (
            "delete",
            code(projects::delete_project(core, scope, project, None).await),
        ),
        (
            "delete matching",
            code(projects::delete_project(core, scope, project, Some(vec![1])).await),
        ),
        (
            "envs",
            code(envs::update_envs(core, scope, project, Vec::new()).await),
        ),
        (
            "events",
            code(events::list_events(core, scope, project, None, 9, 0).await),
        ),
        (
            "events after",
            code(events::events_after(core, scope, project, None, 9).await),
        ),
        (
            "follow",
            code(events::follow_events(core, scope, project, None).await),
        ),
        (
            "upload",
            code(releases::begin_upload(core, &EagerCompressor::default(), scope, project).await),
        ),
        (
            "deploy",
            code(try_deploy(core, scope, project, Vec::new()).await),
        ),
        (
            "deploy an image",
            code(
                releases::create_release(core, scope, project, NewRelease::default(), image).await,
            ),
        ),
        (
            "releases",
            code(releases::list_releases(core, scope, project, None, 9, 0).await),
        ),
        (
            "summary",
            code(releases::summarize_releases(core, scope, project).await),
        ),
        (
            "read release",
            code(releases::read_release(core, scope, release).await),
        ),
        (
            "wait",
            code(releases::wait_release(core, scope, release, ReleaseState::Ready, soon).await),
        ),
        (
            "cancel",
            code(releases::cancel_release(core, scope, release).await),
        ),
        (
            "roll back",
            code(releases::rollback_release(core, scope, release).await),
        ),
        (
            "download",
            code(releases::download_source(core, scope, release).await),
        ),
    ]
}

async fn a_stranger_gets_the_response_for_what_does_not_exist(at: &Installation) {
    let (core, ada, bob) = (&at.core, owner(at, "ada").await, owner(at, "bob").await);
    let project = create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let ready = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    finished(core, &ada, ready).await;
    worker.stop().await;
    let waiting = deploy(core, &ada, "shop", &[("a", b"2")]).await;
    let (_, version) = projects::read_project(core, &ada, "shop").await.unwrap();

    let unknown = attempts(core, &bob, "no-such", nobody()).await;
    for (name, answer) in &unknown {
        assert_eq!(*answer, "not_found", "{name}");
    }
    for key in ["shop", &project.id.to_string()] {
        for release in [ready, waiting] {
            assert_eq!(attempts(core, &bob, key, release).await, unknown);
        }
    }
    let (_, after) = projects::read_project(core, &ada, "shop").await.unwrap();
    assert_eq!(after, version, "a stranger changed something");
}

async fn lists_hold_only_ones_own(at: &Installation) {
    let (core, ada, bob) = (&at.core, owner(at, "ada").await, owner(at, "bob").await);
    let theirs = create(core, &ada, "hers").await;
    create(core, &bob, "his").await;
    networks::create_network(core, &ada, "hers".parse().unwrap())
        .await
        .unwrap();
    let listed = projects::list_projects(core, &bob, None, 9, 0)
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].project_id, "his");
    let above: ProjectId = theirs.id;
    assert!(
        projects::list_projects(core, &bob, Some(above), 9, 0)
            .await
            .unwrap()
            .is_empty()
    );
    let listed = networks::list_networks(core, &bob, None, 9, 0)
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
}

async fn a_network_of_another_cannot_be_joined(at: &Installation) {
    let (core, ada, bob) = (&at.core, owner(at, "ada").await, owner(at, "bob").await);
    let hers = networks::create_network(core, &ada, "hers".parse().unwrap())
        .await
        .unwrap();
    for network in ["hers".to_owned(), hers.id.to_string()] {
        let mut new = new_project("his");
        new.network = Some(network);
        assert_eq!(
            code(projects::create_project(core, &bob, new).await),
            "invalid"
        );
    }
}
