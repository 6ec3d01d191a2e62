//! What instances write.

use crate::support::EngineFixture;
use estrade_runtime::{LogLine, LogsFrom};
use futures_util::{StreamExt, TryStreamExt};
use std::time::Duration;

async fn all(
    fixture: &EngineFixture,
    id: &estrade_runtime::InstanceId,
    from: LogsFrom,
) -> Vec<LogLine> {
    fixture.engine.logs(id, from).try_collect().await.unwrap()
}

const ALL: LogsFrom = LogsFrom {
    after: 0,
    last: None,
    follow: false,
};

#[tokio::test]
async fn lines_come_with_their_moment_and_stream() {
    let fixture = EngineFixture::new();
    let program = "import sys, time
print('one'); time.sleep(0.05); print('two', file=sys.stderr); time.sleep(0.05)
sys.stdout.buffer.write(b'bad \\xff utf-8\\n'); sys.stdout.flush(); time.sleep(0.05)
print(''); time.sleep(0.05); print('x' * 40000); time.sleep(0.05); print('no end', end='')";
    let (ended, _) = fixture.run_to_end(&fixture.python(program)).await;
    let lines = all(&fixture, &ended.id, ALL).await;
    let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts[..4], ["one", "two", "bad \u{fffd} utf-8", ""]);
    assert_eq!(*texts.last().unwrap(), "no end");
    assert_eq!(lines.iter().filter(|line| line.stderr).count(), 1);
    assert!(lines[1].stderr);
    assert!(lines.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let long: Vec<_> = lines
        .iter()
        .filter(|line| line.text.starts_with('x'))
        .collect();
    assert_eq!(
        long.iter().map(|line| line.text.len()).sum::<usize>(),
        40_000
    );
    assert!(long.iter().all(|line| line.text.len() <= 16 << 10));
    assert!(long[0].cut && !long.last().unwrap().cut);

    let after = all(
        &fixture,
        &ended.id,
        LogsFrom {
            after: lines[1].at,
            ..ALL
        },
    )
    .await;
    assert_eq!(after, lines[2..]);
    let last = all(
        &fixture,
        &ended.id,
        LogsFrom {
            last: Some(1),
            ..ALL
        },
    )
    .await;
    assert_eq!(last[0].text, "no end");
    fixture.clean().await;
}

#[tokio::test]
async fn following_goes_on_until_the_end() {
    let fixture = EngineFixture::new();
    let program = "import time\nfor n in range(1, 6): print(n); time.sleep(0.2)";
    let instance = fixture.run(&fixture.python(program)).await;
    let lines = fixture.engine.logs(
        &instance.id,
        LogsFrom {
            follow: true,
            ..ALL
        },
    );
    let lines = tokio::time::timeout(Duration::from_secs(30), lines.try_collect::<Vec<_>>()).await;
    let texts: Vec<_> = lines
        .unwrap()
        .unwrap()
        .into_iter()
        .map(|line| line.text)
        .collect();
    assert_eq!(texts, ["1", "2", "3", "4", "5"]);
    fixture.engine.remove_instance(&instance.id).await.unwrap();
    let gone = Box::pin(fixture.engine.logs(&instance.id, ALL))
        .next()
        .await
        .unwrap();
    assert!(gone.unwrap_err().is_not_found());
    fixture.clean().await;
}

#[tokio::test]
async fn the_log_on_disk_is_bounded() {
    let fixture = EngineFixture::new();
    let program = "line = 'y' * 1000\nfor n in range(80000): print(line)";
    let (ended, _) = fixture.run_to_end(&fixture.python(program)).await;
    let kept = all(&fixture, &ended.id, ALL).await;
    let bytes: usize = kept.iter().map(|line| line.text.len()).sum();
    assert!((1 << 20..52 << 20).contains(&bytes), "{bytes}");
    fixture.clean().await;
}
