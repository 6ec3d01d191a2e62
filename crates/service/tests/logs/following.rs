//! Following: everything once, in the order in which it was stored.

use crate::stored::{release, store};
use crate::support::{Installation, on_both_backends};
use crate::{create, owner, texts};
use estrade_service::platform::containers::logs::{
    ContainerLogs, LogFollower, LogQuery, StoredLine, follow_logs,
};
use estrade_service::platform::projects;
use std::time::Duration;
use tokio::time::timeout;

on_both_backends! {
    a_follower_hears_of_everything_once
    a_follower_begins_with_the_newest_lines
    only_what_was_asked_for_is_followed
}

const LIMIT: Duration = Duration::from_secs(10);

async fn next(follower: &mut LogFollower) -> Vec<StoredLine> {
    timeout(LIMIT, follower.next_lines())
        .await
        .unwrap()
        .unwrap()
}

async fn nothing(follower: &mut LogFollower) {
    let none = timeout(Duration::from_millis(300), follower.next_lines()).await;
    assert!(none.is_err());
}

async fn a_follower_hears_of_everything_once(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    let query = LogQuery::default();
    let mut follower = follow_logs(core, &ContainerLogs::default(), &ada, "shop", &query, None)
        .await
        .unwrap();
    nothing(&mut follower).await;
    // Their times are not the order in which they are stored.
    store(
        core,
        project,
        release('a'),
        &[(20, "one"), (21, "two"), (22, "three")],
    )
    .await;
    let first = next(&mut follower).await;
    assert_eq!(texts(&first), ["one", "two", "three"]);
    store(core, project, release('b'), &[(10, "four")]).await;
    assert_eq!(texts(&next(&mut follower).await), ["four"]);
    nothing(&mut follower).await;
    for (seen, rest) in [(0, vec!["two", "three", "four"]), (2, vec!["four"])] {
        let after = Some(first[seen].cursor);
        let mut resumed = follow_logs(core, &ContainerLogs::default(), &ada, "shop", &query, after)
            .await
            .unwrap();
        assert_eq!(texts(&next(&mut resumed).await), rest);
    }
    projects::delete_project(core, &ada, "shop", None)
        .await
        .unwrap();
    let ended = timeout(LIMIT, follower.next_lines()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), "not_found");
}

async fn a_follower_begins_with_the_newest_lines(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    for block in 0..20 {
        let lines = [(block * 3, "a"), (block * 3 + 1, "b"), (block * 3 + 2, "c")];
        store(core, project, release('a'), &lines).await;
    }
    for (count, expected) in [
        (0, 0),
        (1, 1),
        (3, 3),
        (4, 4),
        (50, 50),
        (60, 60),
        (1000, 60),
    ] {
        let query = LogQuery {
            last_lines: Some(count),
            ..LogQuery::default()
        };
        let mut follower = follow_logs(core, &ContainerLogs::default(), &ada, "shop", &query, None)
            .await
            .unwrap();
        let mut lines = Vec::new();
        while lines.len() < expected {
            lines.extend(next(&mut follower).await);
        }
        assert_eq!(lines.len(), expected);
        let times: Vec<_> = lines.iter().map(|line| line.at).collect();
        let first = 60 - i64::try_from(expected).unwrap();
        assert_eq!(times, (first..60).collect::<Vec<_>>(), "{count}");
        nothing(&mut follower).await;
    }
}

async fn only_what_was_asked_for_is_followed(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    store(core, project, release('a'), &[(1, "Error 1"), (2, "fine")]).await;
    let query = LogQuery {
        search: Some("error".into()),
        release: Some(release('a')),
        ..LogQuery::default()
    };
    let mut follower = follow_logs(core, &ContainerLogs::default(), &ada, "shop", &query, None)
        .await
        .unwrap();
    assert_eq!(texts(&next(&mut follower).await), ["Error 1"]);
    store(core, project, release('b'), &[(3, "error of another")]).await;
    store(core, project, release('a'), &[(4, "fine")]).await;
    store(core, project, release('a'), &[(5, "ERROR 2")]).await;
    assert_eq!(texts(&next(&mut follower).await), ["ERROR 2"]);
}
