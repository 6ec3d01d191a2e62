//! Environment variables.

use crate::acting::{RunningWorker, code, count, create, deploy, finished, owner, read, with_role};
use crate::support::{Installation, on_both_backends};
use estrade_model::project::EnvSetting;
use estrade_model::release::{ReleaseState, ReleaseType};
use estrade_model::team::Role;
use estrade_service::platform::envs::update_envs;
use estrade_service::platform::projects::read_project;
use estrade_service::platform::releases::download_source;

on_both_backends! {
    the_whole_set_is_replaced_and_the_last_duplicate_wins
    values_are_sealed_and_masked
    too_many_too_long_and_nul_are_refused
    new_values_rerun_what_serves
}

fn variables(pairs: &[(&str, &str)]) -> Vec<EnvSetting> {
    pairs
        .iter()
        .map(|(key, value)| EnvSetting {
            key: key.parse().unwrap(),
            value: (*value).to_owned(),
        })
        .collect()
}

async fn the_whole_set_is_replaced_and_the_last_duplicate_wins(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop").await;
    let (_, before) = read_project(core, &ada, "shop").await.unwrap();
    let first = variables(&[("GONE", "x"), ("A", "1")]);
    update_envs(core, &ada, "shop", first).await.unwrap();
    let second = variables(&[("A", "old"), ("B", ""), ("A", "é\n2")]);
    let made = update_envs(core, &ada, &project.id.to_string(), second)
        .await
        .unwrap();
    assert_eq!(
        made, None,
        "nothing serves, so there is nothing to run again"
    );
    let (detail, after) = read_project(core, &ada, "shop").await.unwrap();
    let envs: Vec<_> = detail
        .envs
        .iter()
        .map(|env| (env.key.as_str(), env.value.as_str()))
        .collect();
    assert_eq!(envs, [("B", ""), ("A", "é\n2")]);
    assert!(detail.envs.iter().all(|env| env.encrypted));
    assert!(after > before);
    update_envs(core, &ada, "shop", Vec::new()).await.unwrap();
    assert_eq!(count(core, "SELECT COUNT(*) FROM env_vars").await, 0);
}

async fn values_are_sealed_and_masked(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    update_envs(core, &ada, "shop", variables(&[("PASSWORD", "hunter2")]))
        .await
        .unwrap();
    let sealed: Vec<u8> = core
        .db
        .read("SELECT sealed FROM env_vars")
        .fetch_one()
        .await
        .unwrap();
    assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    let seen = async |role| {
        let (detail, _) = read_project(core, &with_role(&ada, role), "shop")
            .await
            .unwrap();
        detail.envs[0].value.clone()
    };
    assert_eq!(seen(Role::Viewer).await, "***");
    assert_eq!(seen(Role::Developer).await, "hunter2");
    let viewer = with_role(&ada, Role::Viewer);
    assert_eq!(
        code(update_envs(core, &viewer, "shop", Vec::new()).await),
        "no_permission"
    );
}

async fn too_many_too_long_and_nul_are_refused(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let keys: Vec<_> = (0..=200).map(|number| format!("KEY_{number}")).collect();
    let many: Vec<_> = keys.iter().map(|key| (key.as_str(), "x")).collect();
    update_envs(core, &ada, "shop", variables(&many[..200]))
        .await
        .unwrap();
    assert_eq!(
        code(update_envs(core, &ada, "shop", variables(&many)).await),
        "invalid"
    );
    let longest = "x".repeat(32 * 1024);
    update_envs(core, &ada, "shop", variables(&[("A", &longest)]))
        .await
        .unwrap();
    for bad in [format!("{longest}x"), "a\0b".into()] {
        let refused = update_envs(core, &ada, "shop", variables(&[("A", &bad)])).await;
        assert_eq!(code(refused), "invalid");
    }
}

async fn new_values_rerun_what_serves(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let worker = RunningWorker::start(core);
    let first = deploy(core, &ada, "shop", &[("index.html", b"hello")]).await;
    finished(core, &ada, first).await;
    let made = update_envs(core, &ada, "shop", variables(&[("A", "1")]))
        .await
        .unwrap();
    let second = finished(core, &ada, made.unwrap()).await;
    assert_eq!(
        (second.kind, second.state),
        (ReleaseType::EnvUpdate, ReleaseState::Ready)
    );
    assert!(second.current && second.source_available);
    assert!(!read(core, &ada, first).await.current);
    assert_eq!(count(core, "SELECT COUNT(*) FROM artifacts").await, 1);
    download_source(core, &ada, second.id)
        .await
        .map(drop)
        .unwrap();
    worker.stop().await;
}
