//! How much is kept.

use crate::stored::{SECOND, release, store};
use crate::support::{Installation, on_both_backends};
use crate::{create, owner};
use estrade_model::ProjectId;
use estrade_model::log::Direction;
use estrade_service::platform::containers::logs::merging::merge;
use estrade_service::platform::containers::logs::retention::prune;
use estrade_service::platform::containers::logs::{ContainerLogs, LogQuery, StoredLine, read_logs};
use estrade_service::{Core, platform::projects};
use estrade_store::log_blocks::{LogBlock, SPAN, list_blocks_above};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    the_oldest_goes_when_it_is_too_much
    what_is_too_old_goes
    a_deleted_project_leaves_nothing
    small_blocks_become_large_ones
}

const MIB: usize = 1 << 20;

/// Stores a block of about so many bytes that cannot be compressed.
async fn store_much(core: &Core, project: ProjectId, at: i64, bytes: usize) {
    let mut seed = u64::try_from(at).unwrap();
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b' ' + u8::try_from(seed >> 57).unwrap() % 95)
    };
    // Six and a half bits in every byte.
    let text: String = (0..bytes * 8 / 6).map(|_| next()).collect();
    store(core, project, release('a'), &[(at, &text)]).await;
}

async fn blocks(core: &Core, project: ProjectId) -> Vec<LogBlock> {
    list_blocks_above(&core.db, project, 0, 1000).await.unwrap()
}

fn now(core: &Core) -> i64 {
    core.now().millis() * 1_000_000
}

async fn the_oldest_goes_when_it_is_too_much(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let small = create(core, &ada, "small", "micro").await;
    let large = create(core, &ada, "large", "standard-1x").await;
    let begin = now(core);
    for number in 0..20 {
        // The last one that is stored is the oldest.
        store_much(core, small, begin - number, MIB).await;
        store_much(core, large, begin - number, MIB).await;
    }
    prune(core, &CancellationToken::new()).await.unwrap();
    let kept = blocks(core, small).await;
    let bytes: usize = kept.iter().map(|block| block.data.len()).sum();
    assert!(bytes <= 16 * MIB && bytes > 14 * MIB, "{bytes}");
    let times: Vec<_> = kept.iter().map(|block| begin - block.last_at).collect();
    let expected: Vec<_> = (0..i64::try_from(kept.len()).unwrap()).collect();
    assert_eq!(times, expected, "the newest stay");
    assert_eq!(blocks(core, large).await.len(), 20);
}

async fn what_is_too_old_goes(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    let begin = now(core);
    for number in 0..1200 {
        store(core, project, release('a'), &[(begin + number, "x")]).await;
    }
    core.clock.advance(Duration::from_hours(29 * 24));
    let later = now(core);
    store(core, project, release('a'), &[(later, "y")]).await;
    prune(core, &CancellationToken::new()).await.unwrap();
    let before = blocks(core, project).await.pop().unwrap();
    assert_eq!(
        blocks(core, project).await.len(),
        1000,
        "the first page of 1201"
    );
    core.clock.advance(Duration::from_hours(25));
    prune(core, &CancellationToken::new()).await.unwrap();
    let kept = blocks(core, project).await;
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].last_at, later);
    core.clock.advance(Duration::from_hours(31 * 24));
    prune(core, &CancellationToken::new()).await.unwrap();
    assert!(blocks(core, project).await.is_empty());
    // A follower has seen a number and asks for higher ones.
    store(core, project, release('a'), &[(now(core), "z")]).await;
    assert!(blocks(core, project).await[0].number > before.number);
}

async fn small_blocks_become_large_ones(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    // Two instances that take turns, for two hours; one writes a lot at once, in between.
    let begin = now(core);
    for number in 0..400 {
        let moment = begin + number * 18 * SECOND;
        let text = format!("line {number}");
        let of = release(if number % 3 == 0 { 'a' } else { 'b' });
        store(
            core,
            project,
            of,
            &[(moment, &text), (moment - 1, "!before")],
        )
        .await;
    }
    store_much(core, project, begin + 3000 * SECOND, MIB / 25).await;
    let lines = || async {
        let query = LogQuery {
            direction: Direction::Forward,
            last_lines: Some(2000),
            ..LogQuery::default()
        };
        let lines = read_logs(core, &ContainerLogs::default(), &ada, "shop", &query)
            .await
            .unwrap();
        let line = |it: &StoredLine| (it.at, it.release, it.stderr, it.text.clone());
        let mut lines: Vec<_> = lines.iter().map(line).collect();
        lines.sort();
        lines
    };
    let (before, blocks_before) = (lines().await, blocks(core, project).await);
    assert_eq!((before.len(), blocks_before.len()), (801, 401));

    let stop = CancellationToken::new();
    merge(core, &ContainerLogs::default(), &stop).await.unwrap();
    assert_eq!(blocks(core, project).await.len(), 401, "they are too new");
    core.clock.advance(Duration::from_hours(4));
    merge(core, &ContainerLogs::default(), &stop).await.unwrap();
    assert_eq!(lines().await, before);
    let merged = blocks(core, project).await;
    assert!(merged.len() < 30, "{}", merged.len());
    assert!(
        merged
            .iter()
            .all(|block| block.last_at - block.first_at <= SPAN)
    );
    let last = |blocks: &[LogBlock]| blocks.iter().map(|block| block.number).max();
    assert_eq!(last(&merged), last(&blocks_before));
    // It comes to an end.
    for _ in 0..5 {
        merge(core, &ContainerLogs::default(), &stop).await.unwrap();
    }
    assert_eq!(lines().await, before);
    let merged = blocks(core, project).await;
    merge(core, &ContainerLogs::default(), &stop).await.unwrap();
    let numbers = |blocks: &[LogBlock]| blocks.iter().map(|it| it.number).collect::<Vec<_>>();
    assert_eq!(numbers(&blocks(core, project).await), numbers(&merged));
}

async fn a_deleted_project_leaves_nothing(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    let project = create(core, &ada, "shop", "nano").await;
    assert!(store(core, project, release('a'), &[(1, "x")]).await);
    projects::delete_project(core, &ada, "shop", None)
        .await
        .unwrap();
    assert!(blocks(core, project).await.is_empty());
    assert!(!store(core, project, release('a'), &[(2, "y")]).await);
}
