//! Every line once, whatever happens.

use crate::engine::{LogFixture, RunningKeeper};
use crate::stored::release;
use crate::support::{Installation, on_both_backends};
use crate::texts;
use estrade_model::log::Direction;
use estrade_service::platform::containers::logs::{LogCollector, LogQuery, follow_logs, read_logs};
use std::time::{Duration, Instant};
use tokio::time::timeout;

on_both_backends! {
    lines_come_once_each_while_keepers_come_and_go
    lines_outlive_their_containers
    settling_stores_the_last_words
    an_instance_that_is_started_again_goes_on
    long_lines_come_in_pieces
    lines_are_seen_soon
    a_flood_is_complete_and_takes_little_memory
    lines_that_nobody_could_read_are_not_missing_silently
}

const LIMIT: Duration = Duration::from_secs(20);

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Sorted as numbers, so that the order of the two streams does not matter.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_by_key(|line| line.parse::<usize>().unwrap());
    lines
}

async fn lines_come_once_each_while_keepers_come_and_go(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let program = "import sys, time
for n in range(900):
    print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True)
    if n % 3 == 0: time.sleep(0.01)";
    let id = fixture.run(release('a'), 1, program).await;
    for _ in 0..8 {
        let running = RunningKeeper::start(&fixture);
        tokio::time::sleep(Duration::from_millis(450)).await;
        running.stop().await;
    }
    fixture.ended(&id).await;
    let running = RunningKeeper::start(&fixture);
    running.keeper.settle(&id, LIMIT).await;
    assert_eq!(sorted(fixture.lines().await), numbers(0..900));
    running.stop().await;
    fixture.clean().await;
}

async fn lines_outlive_their_containers(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    for (digit, text) in [('a', "first"), ('b', "second")] {
        let program = format!("import time; print('{text}', flush=True); time.sleep(30)");
        let id = fixture.run(release(digit), 1, &program).await;
        let other = fixture.run(release(digit), 2, &program).await;
        fixture
            .wait_for_lines(if digit == 'a' { 2 } else { 4 })
            .await;
        for id in [id, other] {
            fixture
                .core
                .runtime
                .stop_instance(&id, Duration::ZERO)
                .await
                .unwrap();
            running.keeper.settle(&id, LIMIT).await;
            fixture.core.runtime.remove_instance(&id).await.unwrap();
        }
    }
    assert_eq!(
        fixture.lines().await,
        ["first", "first", "second", "second"]
    );
    let query = LogQuery {
        release: Some(release('b')),
        ..LogQuery::default()
    };
    let lines = read_logs(&fixture.core, &fixture.logs, &fixture.ada, "shop", &query)
        .await
        .unwrap();
    assert_eq!(texts(&lines), ["second", "second"]);
    running.stop().await;
    fixture.clean().await;
}

async fn settling_stores_the_last_words(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    // It has no follower.
    let program = "for n in range(3000): print(n)";
    let id = fixture.run(release('a'), 1, program).await;
    fixture.ended(&id).await;
    let keeper = LogCollector::new(&fixture.core, &fixture.logs);
    keeper.settle(&id, LIMIT).await;
    assert_eq!(fixture.lines().await, numbers(0..3000));
    keeper.settle(&id, LIMIT).await;
    assert_eq!(fixture.lines().await.len(), 3000, "once is enough");
    fixture.core.runtime.remove_instance(&id).await.unwrap();
    let begun = Instant::now();
    keeper.settle(&id, LIMIT).await;
    LogCollector::new(&fixture.core, &fixture.logs)
        .settle(&id, LIMIT)
        .await;
    assert!(begun.elapsed() < Duration::from_secs(5), "it is gone");

    // Somebody follows it and has not stored everything yet.
    let running = RunningKeeper::start(&fixture);
    let program =
        "import time\nfor n in range(3000, 4000): print(n, flush=True); time.sleep(0.002)";
    let id = fixture.run(release('a'), 2, program).await;
    fixture.ended(&id).await;
    running.keeper.settle(&id, LIMIT).await;
    fixture.core.runtime.remove_instance(&id).await.unwrap();
    assert_eq!(fixture.lines().await, numbers(0..4000));
    running.stop().await;
    fixture.clean().await;
}

async fn an_instance_that_is_started_again_goes_on(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    let id = fixture.run(release('a'), 1, "print('hello')").await;
    for count in 2..=4 {
        fixture.ended(&id).await;
        fixture.start_again(&id).await;
        fixture.wait_for_lines(count).await;
    }
    fixture.ended(&id).await;
    running.keeper.settle(&id, LIMIT).await;
    assert_eq!(fixture.lines().await, ["hello"; 4]);
    running.stop().await;
    fixture.clean().await;
}

async fn long_lines_come_in_pieces(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    let program = "print('x' * 100000); print('end')";
    let id = fixture.run(release('a'), 1, program).await;
    fixture.ended(&id).await;
    running.keeper.settle(&id, LIMIT).await;
    let mut lines = fixture.lines().await;
    assert_eq!(lines.pop().unwrap(), "end");
    assert!(lines.iter().all(|line| line.len() <= 16 << 10));
    assert_eq!(lines.concat(), "x".repeat(100_000));
    running.stop().await;
    fixture.clean().await;
}

async fn lines_are_seen_soon(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    let program = "import time
time.sleep(3)
for n in range(5): print(n, flush=True); time.sleep(1.3)";
    fixture.run(release('a'), 1, program).await;
    let query = LogQuery::default();
    let follower = follow_logs(
        &fixture.core,
        &fixture.logs,
        &fixture.ada,
        "shop",
        &query,
        None,
    )
    .await;
    let (mut follower, mut slowest, mut seen) = (follower.unwrap(), 0, Vec::new());
    while seen.len() < 5 {
        let lines = timeout(LIMIT, follower.next_lines())
            .await
            .unwrap()
            .unwrap();
        for line in lines {
            slowest = slowest.max(fixture.core.now().millis() - line.at / 1_000_000);
            seen.push(line.text);
        }
    }
    assert_eq!(seen, numbers(0..5));
    assert!(
        slowest < 2500,
        "{slowest} ms, on a machine that does other things too"
    );
    running.stop().await;
    fixture.clean().await;
}

/// The largest that this process has been, in KiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

async fn a_flood_is_complete_and_takes_little_memory(at: &Installation) {
    const LINES: usize = 200_000;
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    let before = peak();
    let program = format!(
        "import time; time.sleep(1)\nfor n in range({LINES}): print(n, 'is a line of the flood')"
    );
    let id = fixture.run(release('a'), 1, &program).await;
    fixture.ended(&id).await;
    running.keeper.settle(&id, Duration::from_mins(2)).await;
    let grown = peak() - before;
    assert!(grown < 64 << 10, "{grown} KiB");

    let query = LogQuery {
        last_lines: Some(0),
        ..LogQuery::default()
    };
    // From the first line on.
    let first = "0-0".parse().unwrap();
    let mut follower = follow_logs(
        &fixture.core,
        &fixture.logs,
        &fixture.ada,
        "shop",
        &query,
        Some(first),
    )
    .await
    .unwrap();
    let mut next = 0;
    while next < LINES {
        let lines = timeout(LIMIT, follower.next_lines()).await;
        for line in lines.expect("every line is there").unwrap() {
            assert_eq!(line.text, format!("{next} is a line of the flood"));
            next += 1;
        }
    }
    let more = timeout(Duration::from_secs(2), follower.next_lines()).await;
    assert!(more.is_err(), "and no other");
    running.stop().await;
    fixture.clean().await;
}

async fn lines_that_nobody_could_read_are_not_missing_silently(at: &Installation) {
    let fixture = LogFixture::new(at).await;
    let running = RunningKeeper::start(&fixture);
    // More than the engine keeps.
    let program = "import time; print('first', flush=True); time.sleep(6)
for n in range(60000): print('x' * 1000)
print('last')";
    let id = fixture.run(release('a'), 1, program).await;
    fixture.wait_for_lines(1).await;
    running.stop().await;
    fixture.ended(&id).await;
    LogCollector::new(&fixture.core, &fixture.logs)
        .settle(&id, Duration::from_mins(2))
        .await;
    let query = LogQuery {
        direction: Direction::Forward,
        ..LogQuery::default()
    };
    let lines = read_logs(&fixture.core, &fixture.logs, &fixture.ada, "shop", &query)
        .await
        .unwrap();
    assert_eq!(lines[0].text, "first");
    assert!(lines[1].text.contains("lines are missing here"));
    assert!(lines[2..].iter().all(|line| line.text.starts_with('x')));
    let query = LogQuery {
        search: Some("MISSING".into()),
        ..LogQuery::default()
    };
    let said = read_logs(&fixture.core, &fixture.logs, &fixture.ada, "shop", &query).await;
    assert_eq!(said.unwrap().len(), 1, "once");
    assert_eq!(fixture.lines().await.pop().unwrap(), "last");
    fixture.clean().await;
}
