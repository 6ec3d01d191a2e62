//! Projects: made, listed, read, changed, deleted.

use crate::acting::{
    RunningWorker, code, count, create, deploy, finished, new_project, owner, with_role,
};
use crate::support::{Installation, on_both_backends};
use estrade_model::project::ProjectStatus;
use estrade_model::team::Role;
use estrade_service::platform::projects::{
    Availability, check_availability, create_project, delete_project, list_projects, read_project,
    resize_project, restart_project, scale_project,
};
use estrade_service::{Error, Settings, platform::events, platform::networks};
use std::sync::Arc;
use tokio::task::JoinSet;

on_both_backends! {
    a_project_is_found_by_name_and_by_id
    what_a_project_is_made_of_is_checked
    a_name_is_taken_for_everyone
    parallel_creates_of_one_name_succeed_once
    the_quota_counts_and_deleting_gives_back
    pages_go_through_all_newest_first
    deleting_takes_everything_but_the_name
    a_stale_version_deletes_nothing
    scale_plan_and_restart_are_checked_and_noted
    a_project_is_deploying_while_a_release_is_unfinished
    each_role_may_do_its_part
    networks_are_listed_and_unique
}

async fn a_project_is_found_by_name_and_by_id(at: &Installation) {
    let ada = owner(at, "ada").await;
    let made = create(&at.core, &ada, "my-site").await;
    assert_eq!((made.scale, made.status), (1, ProjectStatus::Active));
    assert_eq!(made.url, "http://my-site.localhost:8080");
    assert_eq!(made.bundle_plan_id, "standard");
    assert_eq!(made.network.as_ref().unwrap().name, "default");
    for key in ["my-site", &made.id.to_string()] {
        let (detail, _) = read_project(&at.core, &ada, key).await.unwrap();
        assert_eq!(detail.project.id, made.id);
        assert_eq!(detail.project.created_at, made.created_at);
        assert!(detail.envs.is_empty() && detail.current_release.is_none());
    }
    for key in [
        "other",
        "",
        "My-Site",
        "my-site\0",
        "x'; --",
        "0123456789abcdef01234567",
    ] {
        let missing = read_project(&at.core, &ada, key).await;
        assert_eq!(code(missing), "not_found", "{key}");
    }
}

async fn what_a_project_is_made_of_is_checked(at: &Installation) {
    let ada = owner(at, "ada").await;
    let mut new = new_project("bad-plan");
    new.plan_id = "huge".into();
    let Err(Error::Invalid { message, .. }) = create_project(&at.core, &ada, new).await else {
        unreachable!("an unknown plan was accepted")
    };
    assert!(
        message.contains("planID") && message.contains("standard-1x"),
        "{message}"
    );
    let mut new = new_project("bad-bundle");
    new.bundle_plan_id = Some("gold".into());
    assert_eq!(code(create_project(&at.core, &ada, new).await), "invalid");
    for network in ["nope", "", "de\0fault", "0123456789abcdef01234567"] {
        let mut new = new_project("bad-network");
        new.network = Some(network.into());
        assert_eq!(
            code(create_project(&at.core, &ada, new).await),
            "invalid",
            "{network:?}"
        );
    }
    assert_eq!(count(&at.core, "SELECT COUNT(*) FROM projects").await, 0);
    assert_eq!(
        count(&at.core, "SELECT CAST(SUM(projects) AS BIGINT) FROM owners").await,
        0
    );

    let mine = networks::create_network(&at.core, &ada, "mine".parse().unwrap())
        .await
        .unwrap();
    for (name, network) in [
        ("by-name", "mine".to_owned()),
        ("by-id", mine.id.to_string()),
    ] {
        let mut new = new_project(name);
        new.network = Some(network);
        let made = create_project(&at.core, &ada, new).await.unwrap();
        assert_eq!(made.network.unwrap().id, mine.id);
    }
}

async fn a_name_is_taken_for_everyone(at: &Installation) {
    let (ada, bob) = (owner(at, "ada").await, owner(at, "bob").await);
    assert_eq!(
        check_availability(&at.core, &ada, "shop").await.unwrap(),
        Availability::Free
    );
    create(&at.core, &ada, "shop").await;
    assert_eq!(
        check_availability(&at.core, &ada, "shop").await.unwrap(),
        Availability::Taken
    );
    for scope in [&ada, &bob] {
        let second = create_project(&at.core, scope, new_project("shop")).await;
        assert_eq!(code(second), "project_exists");
    }
    for name in ["www", "Shop", "a", "shop\0"] {
        assert_eq!(
            code(check_availability(&at.core, &ada, name).await),
            "invalid"
        );
    }
}

async fn parallel_creates_of_one_name_succeed_once(at: &Installation) {
    let (ada, bob) = (owner(at, "ada").await, owner(at, "bob").await);
    let mut tries = JoinSet::new();
    for number in 0..40 {
        let core = Arc::clone(&at.core);
        let scope = if number % 2 == 0 {
            ada.clone()
        } else {
            bob.clone()
        };
        tries.spawn(async move { code(create_project(&core, &scope, new_project("race")).await) });
    }
    let mut answers = tries.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers.iter().filter(|answer| **answer == "ok").count(), 1);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| **answer == "project_exists")
            .count(),
        39
    );
    assert_eq!(
        count(&at.core, "SELECT CAST(SUM(projects) AS BIGINT) FROM owners").await,
        1
    );
}

async fn the_quota_counts_and_deleting_gives_back(at: &Installation) {
    let ada = owner(at, "ada").await;
    let mut settings = Settings::default();
    settings.quotas.projects = 2;
    let core = at.another_core(settings).await;
    create(&core, &ada, "one").await;
    create(&core, &ada, "two").await;
    let third = create_project(&core, &ada, new_project("three")).await;
    assert_eq!(code(third), "quota");
    delete_project(&core, &ada, "one", None).await.unwrap();
    create(&core, &ada, "three").await;
}

async fn pages_go_through_all_newest_first(at: &Installation) {
    let ada = owner(at, "ada").await;
    for number in 0..7 {
        create(&at.core, &ada, &format!("site-{number}")).await;
    }
    let names = |page: Vec<estrade_model::project::Project>| {
        page.into_iter().map(|it| it.project_id).collect::<Vec<_>>()
    };
    let all = list_projects(&at.core, &ada, None, 100, 0).await.unwrap();
    let middle = all[2].id;
    assert_eq!(
        names(all).join(" "),
        "site-6 site-5 site-4 site-3 site-2 site-1 site-0"
    );
    let page = list_projects(&at.core, &ada, Some(middle), 2, 0)
        .await
        .unwrap();
    assert_eq!(names(page), ["site-3", "site-2"]);
    let page = list_projects(&at.core, &ada, None, 3, 5).await.unwrap();
    assert_eq!(names(page), ["site-1", "site-0"]);
}

async fn deleting_takes_everything_but_the_name(at: &Installation) {
    let ada = owner(at, "ada").await;
    let old = create(&at.core, &ada, "shop").await;
    let (_, version) = read_project(&at.core, &ada, "shop").await.unwrap();
    deploy(&at.core, &ada, "shop", &[("index.html", b"hello")]).await;
    delete_project(&at.core, &ada, &old.id.to_string(), None)
        .await
        .unwrap();
    assert_eq!(
        code(delete_project(&at.core, &ada, "shop", None).await),
        "not_found"
    );
    for sql in [
        "SELECT COUNT(*) FROM projects",
        "SELECT COUNT(*) FROM releases",
        "SELECT COUNT(*) FROM artifacts",
        "SELECT COUNT(*) FROM events",
        "SELECT CAST(SUM(projects) AS BIGINT) FROM owners",
    ] {
        assert_eq!(count(&at.core, sql).await, 0, "{sql}");
    }
    let new = create(&at.core, &ada, "shop").await;
    assert_ne!(new.id, old.id);
    // An entity tag of the old project must not fit the new one of that name.
    let (_, again) = read_project(&at.core, &ada, "shop").await.unwrap();
    assert_ne!(again, version);
}

async fn a_stale_version_deletes_nothing(at: &Installation) {
    let ada = owner(at, "ada").await;
    create(&at.core, &ada, "shop").await;
    let (_, version) = read_project(&at.core, &ada, "shop").await.unwrap();
    scale_project(&at.core, &ada, "shop", 2).await.unwrap();
    let stale = delete_project(&at.core, &ada, "shop", Some(vec![version])).await;
    assert_eq!(code(stale), "precondition_failed");
    let (_, version) = read_project(&at.core, &ada, "shop").await.unwrap();
    delete_project(&at.core, &ada, "shop", Some(vec![version]))
        .await
        .unwrap();
}

async fn scale_plan_and_restart_are_checked_and_noted(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    assert_eq!(code(scale_project(core, &ada, "shop", 11).await), "invalid");
    assert_eq!(
        code(resize_project(core, &ada, "shop", "huge").await),
        "invalid"
    );
    scale_project(core, &ada, "shop", 0).await.unwrap();
    scale_project(core, &ada, "shop", 10).await.unwrap();
    resize_project(core, &ada, "shop", "micro").await.unwrap();
    restart_project(core, &ada, "shop").await.unwrap();
    let (detail, _) = read_project(core, &ada, "shop").await.unwrap();
    assert_eq!(
        (detail.project.scale, detail.project.plan_id.as_str()),
        (10, "micro")
    );
    let noted = events::list_events(core, &ada, "shop", None, 10, 0)
        .await
        .unwrap();
    let noted: Vec<_> = noted
        .iter()
        .map(|it| format!("{} {}", it.action, it.status))
        .collect();
    assert_eq!(
        noted,
        ["restart REQUESTED", "resize micro", "scale 10", "scale 0"]
    );
}

async fn a_project_is_deploying_while_a_release_is_unfinished(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let status = async || list_projects(core, &ada, None, 1, 0).await.unwrap()[0].status;
    let release = deploy(core, &ada, "shop", &[("index.html", b"hello")]).await;
    assert_eq!(status().await, ProjectStatus::Deploying);
    let worker = RunningWorker::start(core);
    finished(core, &ada, release).await;
    worker.stop().await;
    assert_eq!(status().await, ProjectStatus::Active);
    let (detail, _) = read_project(core, &ada, "shop").await.unwrap();
    assert_eq!(detail.current_release, Some(release));
    assert!(detail.project.is_deployed);
}

async fn each_role_may_do_its_part(at: &Installation) {
    let (core, team) = (&at.core, owner(at, "team").await);
    create(core, &team, "shop").await;
    for role in [Role::Viewer, Role::Developer, Role::Admin, Role::Owner] {
        let scope = &with_role(&team, role);
        read_project(core, scope, "shop").await.unwrap();
        let allowed = |least: Role| if role >= least { "ok" } else { "no_permission" };
        let name = format!("by-{}", role.as_str());
        let made = create_project(core, scope, new_project(&name)).await;
        assert_eq!(code(made), allowed(Role::Developer));
        assert_eq!(
            code(scale_project(core, scope, "shop", 1).await),
            allowed(Role::Developer)
        );
        assert_eq!(
            code(restart_project(core, scope, "shop").await),
            allowed(Role::Developer)
        );
        let resized = resize_project(core, scope, "shop", "nano").await;
        assert_eq!(code(resized), allowed(Role::Developer));
        let network = networks::create_network(core, scope, name.parse().unwrap()).await;
        assert_eq!(code(network), allowed(Role::Developer));
        create(core, &team, "doomed").await;
        let deleted = code(delete_project(core, scope, "doomed", None).await);
        assert_eq!(deleted, allowed(Role::Admin));
        if deleted != "ok" {
            delete_project(core, &team, "doomed", None).await.unwrap();
        }
    }
}

async fn networks_are_listed_and_unique(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    networks::create_network(core, &ada, "back".parse().unwrap())
        .await
        .unwrap();
    let second = networks::create_network(core, &ada, "back".parse().unwrap()).await;
    assert_eq!(code(second), "network_exists");
    let listed = networks::list_networks(core, &ada, None, 10, 0)
        .await
        .unwrap();
    let names: Vec<_> = listed.iter().map(|network| network.name.as_str()).collect();
    assert_eq!(names, ["back", "default"]);
}
