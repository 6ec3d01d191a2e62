//! Making, starting, stopping, removing, listing.

use crate::support::{EngineFixture, base, eventually, secret, stranger};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, RemoveContainerOptions, StartContainerOptions,
};
use estrade_runtime::Runtime as _;
use estrade_runtime::{Engine, EngineHost, Error, EventKind, InstanceState, Probe, SubnetPool};
use futures_util::{StreamExt, future};
use std::time::{Duration, Instant};

const SERVER: &str = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)";

fn exit(state: &InstanceState) -> &estrade_runtime::Exit {
    match state {
        InstanceState::Exited(exit) => exit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_life_of_an_instance() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let spec = fixture.python(SERVER);
    let instance = fixture.run(&spec).await;
    assert_eq!(instance.key, spec.key);
    assert_eq!(instance.digest, spec.digest());
    assert!(instance.started_at.is_some());

    let probe = Probe::Http {
        path: "/etc/hostname".into(),
        host: "x.localhost".into(),
    };
    engine
        .wait_until_ready(&instance, &probe, Duration::from_secs(20))
        .await
        .unwrap();
    let listed = engine.instances().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, InstanceState::Running);
    assert_eq!(listed[0].address, instance.address);
    assert_eq!(listed[0].address.unwrap().port(), 8000);
    let subnets = engine.subnets().await.unwrap();
    assert!(subnets[0].contains(instance.address.unwrap().ip()));

    // Everything may be said twice.
    let again = engine.create_instance(&spec).await.unwrap();
    assert_eq!((again.id, again.new), (instance.id.clone(), false));
    engine.start_instance(&instance.id).await.unwrap();

    for _ in 0..2 {
        engine
            .stop_instance(&instance.id, Duration::from_secs(10))
            .await
            .unwrap();
        let stopped = &engine.instances().await.unwrap()[0];
        assert_eq!(exit(&stopped.state).code, 143);
        assert!(!exit(&stopped.state).oom_killed);
        assert!(exit(&stopped.state).at >= stopped.started_at);
        assert_eq!(stopped.address, None);
    }
    engine.start_instance(&instance.id).await.unwrap();
    assert_eq!(
        engine.instances().await.unwrap()[0].state,
        InstanceState::Running
    );
    for _ in 0..2 {
        engine.remove_instance(&instance.id).await.unwrap();
        assert_eq!(engine.instance(&instance.id).await.unwrap(), None);
    }
    engine
        .stop_instance(&instance.id, Duration::ZERO)
        .await
        .unwrap();
    assert!(
        engine
            .start_instance(&instance.id)
            .await
            .unwrap_err()
            .is_not_found()
    );
    fixture.clean().await;
}

#[tokio::test]
async fn sigterm_first_and_sigkill_when_the_grace_is_over() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let polite = "import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(7)))
print('up'); time.sleep(600)";
    let stubborn = "import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up'); time.sleep(600)";
    for (number, program, grace, code) in [(1, polite, 60, 7), (2, stubborn, 2, 137)] {
        let mut spec = fixture.python(program);
        spec.key.number = number;
        let instance = fixture.run(&spec).await;
        let from = estrade_runtime::LogsFrom {
            after: 0,
            last: None,
            follow: true,
        };
        let up = Box::pin(engine.logs(&instance.id, from))
            .next()
            .await
            .unwrap()
            .unwrap();
        assert_eq!(up.text, "up");
        let begin = Instant::now();
        engine
            .stop_instance(&instance.id, Duration::from_secs(grace))
            .await
            .unwrap();
        let took = begin.elapsed();
        let stopped = engine.instance(&instance.id).await.unwrap().unwrap();
        assert_eq!(exit(&stopped.state).code, code);
        let in_grace = took < Duration::from_secs(grace);
        assert_eq!(in_grace, code == 7, "{took:?}");
    }
    fixture.clean().await;
}

#[tokio::test]
async fn many_who_make_the_same_make_one() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let networks = future::join_all((0..8).map(|_| engine.ensure_network(fixture.owner))).await;
    let networks: Vec<_> = networks.into_iter().map(Result::unwrap).collect();
    assert!(networks.iter().all(|network| *network == networks[0]));
    assert_eq!(engine.networks().await.unwrap().len(), 1);

    let spec = fixture.python("import time; time.sleep(600)");
    let created = future::join_all((0..8).map(|_| engine.create_instance(&spec))).await;
    let created: Vec<_> = created.into_iter().map(Result::unwrap).collect();
    assert_eq!(created.iter().filter(|created| created.new).count(), 1);
    assert!(created.iter().all(|other| other.id == created[0].id));

    let id = &created[0].id;
    let started = future::join_all((0..8).map(|_| engine.start_instance(id))).await;
    assert!(started.into_iter().all(|started| started.is_ok()));
    // A network that is in use stays.
    assert!(
        engine
            .remove_network(&networks[0])
            .await
            .unwrap_err()
            .is_conflict()
    );
    let removed = future::join_all((0..8).map(|_| engine.remove_instance(id))).await;
    for removed in removed {
        removed.unwrap();
    }
    engine.remove_network(&networks[0]).await.unwrap();
    engine.remove_network(&networks[0]).await.unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn another_spec_is_another_container() {
    let fixture = EngineFixture::new();
    let mut spec = fixture.python(
        "import os, time; print(os.environ['A'], open('/etc/hosts').read()); time.sleep(600)",
    );
    spec.env = vec![("A".into(), secret("one two=three"))];
    spec.hosts = vec![("ai.internal".into(), "10.9.8.7".parse().unwrap())];
    let first = fixture.run(&spec).await;
    spec.revision = 1;
    // More than any machine has: then it may use all of it.
    spec.limits.nano_cpus = 100_000_000_000_000;
    let second = fixture.run(&spec).await;
    assert_ne!(first.id, second.id);
    assert_ne!(first.digest, second.digest);
    assert_eq!(fixture.engine.instances().await.unwrap().len(), 2);
    let (_, said) = fixture.run_to_end(&fixture.spec(&["true"])).await;
    assert_eq!(said, "");
    let mut spec = fixture
        .python("import os; print(os.environ['A'], 'ai.internal' in open('/etc/hosts').read())");
    spec.env = vec![("A".into(), secret("one two=three"))];
    spec.hosts = vec![("ai.internal".into(), "10.9.8.7".parse().unwrap())];
    let (_, said) = fixture.run_to_end(&spec).await;
    assert_eq!(said, "one two=three True");
    fixture.clean().await;
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    engine.ensure_network(fixture.owner).await.unwrap();
    let mut spec = fixture.spec(&["no-such-program"]);
    let (ended, said) = fixture.run_to_end(&spec).await;
    assert_eq!(exit(&ended.state).code, 127);
    assert!(said.contains("no-such-program"), "{said}");
    // What the engine refuses to start stays as it was made.
    let mut nobody = fixture.spec(&["true"]);
    nobody.user = Some("no-such-user".into());
    let created = engine.create_instance(&nobody).await.unwrap();
    let error = engine.start_instance(&created.id).await.unwrap_err();
    assert!(error.to_string().contains("no-such-user"), "{error}");
    let instance = engine.instance(&created.id).await.unwrap().unwrap();
    assert_eq!(instance.state, InstanceState::Created);

    spec.image = "estrade-test/none".parse().unwrap();
    let error = engine.create_instance(&spec).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");

    let mut homeless = fixture.spec(&["true"]);
    homeless.key.owner = estrade_model::OwnerId::generate(1, 1);
    let error = engine.run_instance(&homeless).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    fixture.clean().await;
}

#[tokio::test]
async fn without_an_engine_the_error_says_what_to_do() {
    let engine = Engine::new(
        EngineHost::Unix("/nonexistent/docker.sock".into()),
        "a".parse().unwrap(),
        SubnetPool::default(),
    );
    let error = engine.unwrap().info().await.unwrap_err();
    assert!(matches!(error, Error::NoEngine { .. }), "{error}");
    assert!(error.is_engine_away());
    let text = error.to_string();
    assert!(
        text.contains("docker.io") && text.contains("/nonexistent/docker.sock"),
        "{text}"
    );
}

#[tokio::test]
async fn what_others_made_is_not_there() {
    let (ours, theirs, stranger) = (EngineFixture::new(), EngineFixture::new(), stranger());
    let other = theirs
        .run(&theirs.python("import time; time.sleep(600)"))
        .await;
    // A container without labels, under the very name that ours would have.
    let spec = ours.python("import time; time.sleep(600)");
    let name = format!(
        "estrade-{}-{}-1-{}",
        ours.engine.installation(),
        ours.release,
        spec.digest()
    );
    let body = ContainerCreateBody {
        image: Some(base().to_string()),
        cmd: Some(vec!["sleep".into(), "600".into()]),
        host_config: Some(HostConfig {
            network_mode: Some("none".into()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let options = CreateContainerOptions {
        name: Some(name.clone()),
        ..Default::default()
    };
    stranger
        .create_container(Some(options), body)
        .await
        .unwrap();
    stranger
        .start_container(&name, None::<StartContainerOptions>)
        .await
        .unwrap();

    let error = ours.engine.create_instance(&spec).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(ours.engine.instances().await.unwrap().is_empty());
    assert!(ours.engine.networks().await.unwrap().is_empty());
    ours.clean().await;

    let found = stranger
        .inspect_container(&name, None::<InspectContainerOptions>)
        .await
        .unwrap();
    assert_eq!(found.state.unwrap().running, Some(true));
    let other = theirs.engine.instance(&other.id).await.unwrap().unwrap();
    assert_eq!(other.state, InstanceState::Running);
    let force = RemoveContainerOptions {
        force: true,
        ..Default::default()
    };
    stranger.remove_container(&name, Some(force)).await.unwrap();
    theirs.clean().await;
}

#[tokio::test]
async fn events_come_as_things_happen() {
    let (fixture, other) = (EngineFixture::new(), EngineFixture::new());
    let mut events = Box::pin(fixture.engine.events());
    // The stream connects when it is first read.
    let mut next = async || tokio::time::timeout(Duration::from_secs(20), events.next()).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(500), next())
            .await
            .is_err()
    );
    other.run(&other.spec(&["true"])).await;
    let instance = fixture
        .run(&fixture.python("import sys; sys.exit(3)"))
        .await;
    fixture.engine.wait_for_exit(&instance.id).await.unwrap();
    fixture.engine.remove_instance(&instance.id).await.unwrap();
    for kind in [EventKind::Started, EventKind::Ended(3), EventKind::Removed] {
        let event = next().await.expect("an event").unwrap().unwrap();
        assert_eq!(
            (event.id, event.key, event.kind),
            (instance.id.clone(), instance.key, kind)
        );
    }
    drop(events);
    fixture.clean().await;
    other.clean().await;
}

#[tokio::test]
async fn volumes_keep_what_is_in_them() {
    use estrade_runtime::{Mount, VolumeKey};
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let key = VolumeKey {
        owner: fixture.owner,
        project: fixture.project,
        name: "data".parse().unwrap(),
    };
    for _ in 0..2 {
        engine.ensure_volume(&key, 1 << 30).await.unwrap();
    }
    assert_eq!(engine.volumes().await.unwrap(), std::slice::from_ref(&key));
    let mut spec = fixture.spec(&[
        "sh",
        "-c",
        "head -c 2000000 /dev/zero > /data/file; ls -l /data",
    ]);
    spec.mounts = vec![Mount {
        volume: key.clone(),
        path: "/data".into(),
        read_only: false,
    }];
    let (ended, said) = fixture.run_to_end(&spec).await;
    assert!(said.contains("2000000"), "{said}");
    assert!(engine.remove_volume(&key).await.unwrap_err().is_conflict());
    engine.remove_instance(&ended.id).await.unwrap();

    spec.command = Some(
        ["sh", "-c", "wc -c < /data/file; touch /data/x"]
            .map(str::to_owned)
            .into(),
    );
    spec.mounts[0].read_only = true;
    let (ended, said) = fixture.run_to_end(&spec).await;
    assert!(
        said.contains("2000000") && said.contains("Read-only"),
        "{said}"
    );
    let used = engine.volume_use().await.unwrap();
    assert_eq!(used.len(), 1);
    assert!(used[0].1 >= 2_000_000, "{used:?}");
    engine.remove_instance(&ended.id).await.unwrap();
    for _ in 0..2 {
        engine.remove_volume(&key).await.unwrap();
    }

    // A stranger's, under the very name that ours would have.
    let stranger = stranger();
    let name = format!("estrade-{}-{}-data", engine.installation(), fixture.project);
    let request = bollard::models::VolumeCreateRequest {
        name: Some(name.clone()),
        ..Default::default()
    };
    stranger.create_volume(request).await.unwrap();
    assert!(
        engine
            .ensure_volume(&key, 1 << 30)
            .await
            .unwrap_err()
            .is_conflict()
    );
    engine.remove_volume(&key).await.unwrap();
    stranger.inspect_volume(&name).await.unwrap();
    stranger
        .remove_volume(
            &name,
            None::<bollard::query_parameters::RemoveVolumeOptions>,
        )
        .await
        .unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn waiting_for_an_exit_sees_it_and_a_removal() {
    let fixture = EngineFixture::new();
    let instance = fixture
        .run(&fixture.python("import time; time.sleep(600)"))
        .await;
    let wait = fixture.engine.wait_for_exit(&instance.id);
    let remove = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fixture.engine.remove_instance(&instance.id).await.unwrap();
    };
    let (ended, ()) = tokio::join!(wait, remove);
    // Killed is seen before gone, or not any more.
    if let Some(ended) = ended.unwrap() {
        assert_ne!(ended.state, InstanceState::Running);
    }
    eventually("gone", || async {
        fixture
            .engine
            .wait_for_exit(&instance.id)
            .await
            .unwrap()
            .is_none()
    })
    .await;
    fixture.clean().await;
}
