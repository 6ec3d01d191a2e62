//! Builds.

use crate::support::{EngineFixture, MIB, context, now, secret, stranger};
use bollard::query_parameters::ListContainersOptions;
use bytes::Bytes;
use estrade_runtime::{BuildError, BuildSpec, DockerBuild, ImageRef, OwnImage};
use futures_util::stream;
use std::io;
use std::time::{Duration, Instant};

fn spec(fixture: &EngineFixture) -> BuildSpec {
    BuildSpec {
        image: OwnImage {
            project: fixture.project,
            release: fixture.release,
        },
        owner: fixture.owner,
        dockerfile: "Dockerfile".into(),
        args: Vec::new(),
        secrets: Vec::new(),
        cache: true,
        memory: 256 * MIB,
        nano_cpus: 1_000_000_000,
        limit: Duration::from_secs(100),
        now: now(),
    }
}

async fn build(
    fixture: &EngineFixture,
    spec: &BuildSpec,
    dockerfile: &str,
) -> (Vec<String>, Result<ImageRef, BuildError>) {
    fixture.engine.ensure_network(spec.owner).await.unwrap();
    let files = [
        (spec.dockerfile.as_str(), dockerfile),
        ("hello.txt", "hello\n"),
    ];
    let mut build = fixture.engine.build(spec, context(&files));
    let lines = read(&mut build).await;
    (lines, build.finish().await)
}

async fn read(build: &mut DockerBuild) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(line) = build.next_line().await {
        lines.push(line);
    }
    lines
}

/// Whether a container runs, of a build or not, whose command has this step.
async fn runs(step: &str) -> bool {
    let listed = stranger()
        .list_containers(None::<ListContainersOptions>)
        .await
        .unwrap();
    listed.iter().any(|container| {
        container
            .command
            .as_deref()
            .is_some_and(|command| command.contains(step))
    })
}

#[tokio::test]
async fn a_directory_becomes_an_image_that_runs() {
    let fixture = EngineFixture::new();
    let mut build_spec = spec(&fixture);
    build_spec.dockerfile = "docker/Dockerfile.web".into();
    build_spec.args = vec![("WHO".into(), secret("world"))];
    let dockerfile = "FROM estrade-test/base:2
ARG WHO
COPY hello.txt /hello.txt
RUN echo \"$WHO\" >> /hello.txt && echo to-stderr >&2
USER 1000
EXPOSE 9000 7000 53/udp
CMD cat /hello.txt";
    let (lines, image) = build(&fixture, &build_spec, dockerfile).await;
    let image = image.unwrap();
    assert!(
        lines.iter().any(|line| line.starts_with("Step 4/")),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line == "to-stderr"), "{lines:#?}");

    let name = fixture.engine.image_name(build_spec.image);
    let found = fixture.engine.image(&name).await.unwrap().unwrap();
    assert_eq!(found.id, image);
    assert_eq!(
        (found.ports.as_slice(), found.user.as_deref()),
        ([7000, 9000].as_slice(), Some("1000"))
    );
    assert!(!found.runs_as_root());
    let mut instance = fixture.spec(&[]);
    (instance.image, instance.command) = (name, None);
    let (_, said) = fixture.run_to_end(&instance).await;
    assert_eq!(said, "hello\nworld");

    // The same again comes from the cache, unless that is not wanted.
    let (lines, again) = build(&fixture, &build_spec, dockerfile).await;
    assert!(
        lines.iter().any(|line| line == " ---> Using cache"),
        "{lines:#?}"
    );
    assert_eq!(again.unwrap(), image);
    build_spec.cache = false;
    let (lines, again) = build(&fixture, &build_spec, dockerfile).await;
    assert!(
        !lines.iter().any(|line| line == " ---> Using cache"),
        "{lines:#?}"
    );
    assert_ne!(again.unwrap(), image);
    fixture.clean().await;
}

#[tokio::test]
async fn a_step_that_fails_is_named() {
    let fixture = EngineFixture::new();
    let dockerfile =
        "FROM estrade-test/base:2\nRUN true\nRUN echo before && exit 7\nRUN echo never";
    let (lines, failed) = build(&fixture, &spec(&fixture), dockerfile).await;
    let Err(BuildError::Failed {
        step,
        code,
        message,
    }) = failed
    else {
        panic!("{failed:?}")
    };
    assert_eq!(
        step.as_deref(),
        Some("Step 3/5 : RUN echo before && exit 7")
    );
    assert_eq!(code, Some(7));
    assert!(message.contains("exit 7"), "{message}");
    assert!(lines.iter().any(|line| line == "before"));
    assert!(!lines.iter().any(|line| line.contains("never")));
    let name = fixture.engine.image_name(spec(&fixture).image);
    assert_eq!(fixture.engine.image(&name).await.unwrap(), None);
    fixture.clean().await;
}

#[tokio::test]
async fn what_is_no_dockerfile_is_the_users_fault() {
    let fixture = EngineFixture::new();
    for dockerfile in [
        "FORM x",
        "",
        "FROM estrade-test/base:2\nCOPY missing /x",
        "FROM 127.0.0.1:1/none:1",
    ] {
        let (_, failed) = build(&fixture, &spec(&fixture), dockerfile).await;
        assert!(
            matches!(failed, Err(BuildError::Failed { .. })),
            "{dockerfile}: {failed:?}"
        );
    }
    let mut long = spec(&fixture);
    long.args = vec![("LONG".into(), secret(&"x".repeat(70_000)))];
    let (_, failed) = build(&fixture, &long, "FROM estrade-test/base:2").await;
    assert!(failed.unwrap_err().to_string().contains("too long"));
    let mut elsewhere = spec(&fixture);
    elsewhere.dockerfile = "other".into();
    let failed = fixture
        .engine
        .build(&elsewhere, context(&[("x", "y")]))
        .finish()
        .await;
    assert!(
        matches!(failed, Err(BuildError::Failed { step: None, .. })),
        "{failed:?}"
    );
    fixture.clean().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_is_told_apart() {
    let fixture = EngineFixture::new();
    fixture.engine.ensure_network(fixture.owner).await.unwrap();
    let pieces = [
        Ok(Bytes::from(vec![0; 512])),
        Err(io::Error::other("the disk is gone")),
    ];
    let failed = fixture
        .engine
        .build(&spec(&fixture), stream::iter(pieces))
        .finish()
        .await;
    match failed {
        Err(BuildError::Context(error)) => assert!(error.to_string().contains("the disk is gone")),
        other => panic!("{other:?}"),
    }
    fixture.clean().await;
}

#[tokio::test]
async fn a_build_that_is_dropped_is_killed() {
    let fixture = EngineFixture::new();
    fixture.engine.ensure_network(fixture.owner).await.unwrap();
    let step = format!("sleep 60{}", std::process::id());
    let dockerfile = format!("FROM estrade-test/base:2\nRUN echo begun && {step}");
    let mut build = fixture
        .engine
        .build(&spec(&fixture), context(&[("Dockerfile", &dockerfile)]));
    while build.next_line().await.as_deref() != Some("begun") {}
    crate::support::eventually("the step runs", || runs(&step)).await;
    drop(build);
    crate::support::eventually("the step is killed", || async { !runs(&step).await }).await;
    fixture.clean().await;
}

#[tokio::test]
async fn a_directory_that_never_ends_is_not_waited_for() {
    let fixture = EngineFixture::new();
    let mut short = spec(&fixture);
    short.limit = Duration::from_secs(1);
    let failed = fixture
        .engine
        .build(&short, stream::pending())
        .finish()
        .await;
    assert!(matches!(failed, Err(BuildError::TimedOut(_))), "{failed:?}");
    let mut build = fixture.engine.build(&spec(&fixture), stream::pending());
    let line = tokio::time::timeout(Duration::from_millis(300), build.next_line());
    assert!(line.await.is_err());
    drop(build);
    // Which also looks whether its connection is closed.
    fixture.clean().await;
}

#[tokio::test]
async fn a_build_that_takes_too_long_is_killed() {
    let fixture = EngineFixture::new();
    let step = format!("sleep 61{}", std::process::id());
    let dockerfile = format!("FROM estrade-test/base:2\nRUN echo begun && {step}");
    let mut short = spec(&fixture);
    // Long enough for the step to begin, also on a slow machine.
    short.limit = Duration::from_secs(12);
    let begin = Instant::now();
    let (lines, failed) = build(&fixture, &short, &dockerfile).await;
    assert!(matches!(failed, Err(BuildError::TimedOut(_))), "{failed:?}");
    assert!(lines.iter().any(|line| line == "begun"), "{lines:#?}");
    assert!(begin.elapsed() < Duration::from_secs(40));
    crate::support::eventually("the step is killed", || async { !runs(&step).await }).await;
    fixture.clean().await;
}

#[tokio::test]
async fn secrets_do_not_get_into_the_log() {
    let fixture = EngineFixture::new();
    let mut build_spec = spec(&fixture);
    build_spec.args = vec![("TOKEN".into(), secret("tok-123456789"))];
    build_spec.secrets = vec![secret("tok-123456789")];
    build_spec.cache = false;
    let dockerfile = "FROM estrade-test/base:2
ARG TOKEN
RUN echo \"it is $TOKEN.\" && printf tok-1234 && sleep 1 && echo 56789 && echo \"again $TOKEN\" >&2
RUN echo \"$TOKEN\" && eval \"false-$TOKEN\"";
    let (lines, failed) = build(&fixture, &build_spec, dockerfile).await;
    let said = lines.join("\n");
    assert!(!said.contains("tok-123456789"), "{said}");
    for expected in ["it is ***.", "\n***\n", "again ***"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let failed = failed.unwrap_err().to_string();
    assert!(
        failed.contains("Step 4/5") && !failed.contains("123456789"),
        "{failed}"
    );
    fixture.clean().await;
}

#[tokio::test]
async fn a_step_has_no_more_memory_than_it_is_given() {
    let fixture = EngineFixture::new();
    let mut small = spec(&fixture);
    small.memory = 64 * MIB;
    let dockerfile = "FROM estrade-test/base:2\nRUN python3 -c 'x = bytearray(400 << 20)'";
    let (_, failed) = build(&fixture, &small, dockerfile).await;
    assert!(
        matches!(
            failed,
            Err(BuildError::Failed {
                code: Some(137),
                ..
            })
        ),
        "{failed:?}"
    );
    fixture.clean().await;
}

#[tokio::test]
async fn what_a_build_leaves_behind_can_be_removed() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let mark = format!("{}-{}", std::process::id(), now().millis());
    let dockerfile = format!(
        "FROM estrade-test/base:2 AS maker\nRUN echo {mark} > /made\nRUN echo more >> /made
FROM estrade-test/base:2\nCOPY --from=maker /made /made\nRUN cat /made"
    );
    let (lines, image) = build(&fixture, &spec(&fixture), &dockerfile).await;
    let image = image.unwrap();
    let layers = |lines: &[String]| -> Vec<ImageRef> {
        let ids = lines.iter().filter_map(|line| line.strip_prefix(" ---> "));
        let ids = ids.filter(|id| id.len() == 12);
        // They are short ids, which is what the engine takes for names without a tag.
        ids.map(|id| id.parse().unwrap()).collect()
    };
    assert!(layers(&lines).len() >= 6, "{lines:#?}");

    let hour = Duration::from_hours(1);
    engine.prune_images(now().before(hour)).await.unwrap();
    let (lines, again) = build(&fixture, &spec(&fixture), &dockerfile).await;
    assert_eq!(again.unwrap(), image);
    assert_eq!(
        lines
            .iter()
            .filter(|line| *line == " ---> Using cache")
            .count(),
        5,
        "{lines:#?}"
    );

    // A build that fails leaves a layer, too.
    let mut failing = spec(&fixture);
    failing.image.release = estrade_model::ReleaseId::generate(now().millis(), 3);
    let dockerfile = format!("FROM estrade-test/base:2\nRUN echo x{mark} > /made\nRUN false");
    build(&fixture, &failing, &dockerfile).await.1.unwrap_err();

    engine.remove_image(spec(&fixture).image).await.unwrap();
    assert_eq!(engine.image(&image).await.unwrap(), None);
    engine.prune_images(now().after(hour)).await.unwrap();
    for dockerfile in [
        dockerfile,
        format!("FROM estrade-test/base:2 AS maker\nRUN echo {mark} > /made"),
    ] {
        let (lines, _) = build(&fixture, &failing, &dockerfile).await;
        assert!(
            !lines.iter().any(|line| line == " ---> Using cache"),
            "{lines:#?}"
        );
    }
    fixture.clean().await;
}

#[tokio::test]
async fn nothing_is_removed_while_something_is_built() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let (_, image) = build(
        &fixture,
        &spec(&fixture),
        "FROM estrade-test/base:2\nRUN true",
    )
    .await;
    let image = image.unwrap();
    let mut other = spec(&fixture);
    other.image.release = estrade_model::ReleaseId::generate(now().millis(), 4);
    let dockerfile = "FROM estrade-test/base:2\nRUN echo begun && sleep 60";
    let mut build = engine.build(&other, context(&[("Dockerfile", dockerfile)]));
    while build.next_line().await.as_deref() != Some("begun") {}

    let refused = engine.remove_image(spec(&fixture).image).await;
    assert!(refused.unwrap_err().is_conflict());
    let later = now().after(Duration::from_hours(1));
    engine.prune_images(later).await.unwrap();
    let releases = engine.releases_with_layers().await.unwrap();
    assert!(!engine.remove_layers(&releases).await.unwrap());
    assert!(engine.image(&image).await.unwrap().is_some());

    drop(build);
    engine.remove_image(spec(&fixture).image).await.unwrap();
    assert_eq!(engine.image(&image).await.unwrap(), None);
    fixture.clean().await;
}
