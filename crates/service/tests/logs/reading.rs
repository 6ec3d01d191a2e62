//! Reading: both directions, ranges, search, releases.

use crate::stored::{SECOND, release, store};
use crate::support::{Installation, on_both_backends};
use crate::{create, owner, texts};
use estrade_model::log::{Direction, Since};
use estrade_service::platform::containers::logs::{
    ContainerLogs, LogQuery, read_logs, read_logs_since,
};
use estrade_service::{Core, Scope};

on_both_backends! {
    lines_of_several_instances_come_in_the_order_of_time
    a_range_has_its_first_and_its_last_second
    only_what_was_asked_for_is_shown
    long_logs_are_read_from_either_end
    the_list_goes_on_after_the_last_line_seen
    what_belongs_to_others_is_not_there
}

async fn read(core: &Core, scope: &Scope, query: LogQuery) -> Vec<String> {
    let lines = read_logs(core, &ContainerLogs::default(), scope, "shop", &query)
        .await
        .unwrap();
    texts(&lines).into_iter().map(str::to_owned).collect()
}

fn forward() -> LogQuery {
    LogQuery {
        direction: Direction::Forward,
        ..LogQuery::default()
    }
}

async fn lines_of_several_instances_come_in_the_order_of_time(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    assert!(read(core, &ada, forward()).await.is_empty());
    store(
        core,
        project,
        release('a'),
        &[(10, "a1"), (40, "a3"), (20, "a2")],
    )
    .await;
    store(
        core,
        project,
        release('b'),
        &[(5, "b1"), (30, "b2"), (40, "b3")],
    )
    .await;
    let all = ["b1", "a1", "a2", "b2", "a3", "b3"];
    assert_eq!(read(core, &ada, forward()).await, all);
    let backward = read(core, &ada, LogQuery::default()).await;
    assert_eq!(backward, all.iter().rev().copied().collect::<Vec<_>>());
    let last = |direction| LogQuery {
        last_lines: Some(2),
        direction,
        ..LogQuery::default()
    };
    assert_eq!(
        read(core, &ada, last(Direction::Forward)).await,
        ["a3", "b3"]
    );
    assert_eq!(
        read(core, &ada, last(Direction::Backward)).await,
        ["b3", "a3"]
    );
    let none = LogQuery {
        last_lines: Some(0),
        ..LogQuery::default()
    };
    assert!(read(core, &ada, none).await.is_empty());
}

async fn a_range_has_its_first_and_its_last_second(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    let lines: Vec<_> = (0..8).map(|n| (n * SECOND / 2, format!("{n}"))).collect();
    let lines: Vec<_> = lines
        .iter()
        .map(|(at, text)| (*at, text.as_str()))
        .collect();
    store(core, project, release('a'), &lines[..5]).await;
    store(core, project, release('a'), &lines[5..]).await;
    for direction in [Direction::Forward, Direction::Backward] {
        let range = |start, end| LogQuery {
            start,
            end,
            direction,
            ..LogQuery::default()
        };
        let mut found = read(core, &ada, range(Some(1), Some(2))).await;
        found.sort();
        assert_eq!(found, ["2", "3", "4", "5"]);
        assert_eq!(read(core, &ada, range(Some(3), None)).await.len(), 2);
        assert_eq!(read(core, &ada, range(None, Some(0))).await.len(), 2);
        assert!(read(core, &ada, range(Some(2), Some(1))).await.is_empty());
        assert!(
            read(core, &ada, range(Some(i64::MAX), None))
                .await
                .is_empty()
        );
        assert!(
            read(core, &ada, range(None, Some(i64::MIN)))
                .await
                .is_empty()
        );
    }
}

async fn only_what_was_asked_for_is_shown(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    store(
        core,
        project,
        release('a'),
        &[(1, "GET /Cart 200"), (2, "!Fehler: ÄRGER")],
    )
    .await;
    store(
        core,
        project,
        release('b'),
        &[(3, "get /cart 500"), (4, "100 %")],
    )
    .await;
    let search = |text: &str| LogQuery {
        search: Some(text.into()),
        ..forward()
    };
    assert_eq!(
        read(core, &ada, search("/CART")).await,
        ["GET /Cart 200", "get /cart 500"]
    );
    assert_eq!(read(core, &ada, search("ärger")).await, ["!Fehler: ÄRGER"]);
    assert_eq!(read(core, &ada, search("%")).await, ["100 %"]);
    assert!(read(core, &ada, search("cart  ")).await.is_empty());
    assert_eq!(read(core, &ada, search("")).await.len(), 4);
    let of = |digit| LogQuery {
        release: Some(release(digit)),
        ..search("cart")
    };
    assert_eq!(read(core, &ada, of('b')).await, ["get /cart 500"]);
    assert!(read(core, &ada, of('c')).await.is_empty());
    let lines = read_logs(
        core,
        &ContainerLogs::default(),
        &ada,
        "shop",
        &search("Fehler"),
    )
    .await
    .unwrap();
    assert!(lines[0].stderr && lines[0].release == release('a'));
}

async fn long_logs_are_read_from_either_end(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    // Two instances, whose blocks overlap, with more blocks than one query reads.
    for block in 0..40_i64 {
        for (instance, digit) in [(0, 'a'), (1, 'b')] {
            let lines: Vec<_> = (0..50)
                .map(|line| block * 100 + line * 2 + instance)
                .map(|at| (at, at.to_string()))
                .collect();
            let lines: Vec<_> = lines
                .iter()
                .map(|(at, text)| (*at, text.as_str()))
                .collect();
            store(core, project, release(digit), &lines).await;
        }
    }
    let numbers = |range: std::ops::Range<i64>| range.map(|at| at.to_string()).collect::<Vec<_>>();
    assert_eq!(read(core, &ada, forward()).await, numbers(0..1000));
    let newest: Vec<_> = numbers(3000..4000).into_iter().rev().collect();
    assert_eq!(read(core, &ada, LogQuery::default()).await, newest);
    let all = LogQuery {
        last_lines: Some(5000),
        ..forward()
    };
    assert_eq!(read(core, &ada, all).await, numbers(0..4000));
    let rare = LogQuery {
        search: Some("333".into()),
        ..LogQuery::default()
    };
    let found: Vec<_> = numbers(0..4000)
        .into_iter()
        .rev()
        .filter(|text| text.contains("333"))
        .collect();
    assert_eq!(read(core, &ada, rare).await, found);
}

async fn the_list_goes_on_after_the_last_line_seen(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    let lines: Vec<_> = (0..1500).map(|n| (n, n.to_string())).collect();
    let lines: Vec<_> = lines
        .iter()
        .map(|(at, text)| (*at, text.as_str()))
        .collect();
    store(core, project, release('a'), &lines).await;
    let newest = read_logs_since(core, &ContainerLogs::default(), &ada, "shop", None)
        .await
        .unwrap();
    assert_eq!((newest[0].at, newest.len()), (500, 1000));
    let first = read_logs_since(
        core,
        &ContainerLogs::default(),
        &ada,
        "shop",
        Some(Since(0)),
    )
    .await
    .unwrap();
    assert_eq!((first[0].at, first.len()), (0, 1000));
    let next = Since(first[999].at + 1);
    let rest = read_logs_since(core, &ContainerLogs::default(), &ada, "shop", Some(next))
        .await
        .unwrap();
    assert_eq!((rest[0].at, rest.len()), (1000, 500));
}

async fn what_belongs_to_others_is_not_there(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let eve = owner(at, "eve").await;
    let project = create(core, &ada, "shop", "nano").await;
    store(core, project, release('a'), &[(1, "secret")]).await;
    let other = create(core, &eve, "other", "nano").await;
    store(core, other, release('b'), &[(1, "mine")]).await;
    let read = read_logs(
        core,
        &ContainerLogs::default(),
        &eve,
        "shop",
        &LogQuery::default(),
    )
    .await;
    assert_eq!(read.unwrap_err().code(), "not_found");
    let lines = read_logs(
        core,
        &ContainerLogs::default(),
        &eve,
        "other",
        &LogQuery::default(),
    )
    .await;
    assert_eq!(texts(&lines.unwrap()), ["mine"]);
}
