//! Streams that are cut anywhere, by whoever calls and by whoever answers.

use super::{Engine, Guest, World, chat, nanos, resident, status, times};
use crate::support::{Server, random};
use estrade_mock_upstream::{Action, MockUpstream, event, send, stream_head, usage_event};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const STREAM: &str = r#","stream":true"#;
/// Streams at once.
const LANES: usize = 16;
/// What a second round may take more than the first.
const SPARE: u64 = 6 << 20;

/// The bytes of a whole stream.
fn whole() -> Vec<u8> {
    let mut acts = vec![stream_head()];
    acts.extend((0..40).map(|number| event(&format!("word {number} "))));
    acts.push(usage_event(7, 40));
    acts.push(send("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"));
    let bytes = acts.into_iter().map(|act| match act {
        Action::Send(bytes) => bytes,
        other => panic!("{other:?}"),
    });
    bytes.flatten().collect()
}

fn below(most: usize) -> usize {
    usize::try_from(random() % most as u64).unwrap()
}

/// Cuts as many streams as it shall, a few at once.
async fn repeat<F>(count: usize, cut: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    for _ in 0..count {
        if running.len() == LANES {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(cut());
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Every call is one row, its numbers make sense, and the sums are the sums of the rows.
async fn check(server: &Server, guest: &Guest, calls: usize, upstream: &MockUpstream) {
    assert!(
        upstream.wait_for_open(0).await,
        "{} connections to the upstream are left",
        upstream.open()
    );
    let rows = guest.logs(server).await;
    assert_eq!(rows.len(), calls);
    let ids: HashSet<_> = rows.iter().map(|row| row["_id"].to_string()).collect();
    assert_eq!(ids.len(), calls);
    let mut cost = 0;
    for row in &rows {
        for field in ["promptTokens", "completionTokens", "latencyMs", "ttfbMs"] {
            assert!(row[field].as_u64().is_some(), "{field}: {row}");
        }
        assert!(row["completionTokens"].as_u64() <= Some(200), "{row}");
        assert_eq!(row["streamed"], true, "{row}");
        cost += nanos(&row["cost"]);
    }
    assert_eq!(guest.activity(server).await, (calls as u64, cost));
}

async fn cut_by_callers(engine: Engine) {
    let answer = whole();
    // It never comes to its end, so that every stream is cut by its caller.
    let endless = answer[..answer.len() - 30].to_vec();
    let length = endless.len();
    let upstream = MockUpstream::new(move |number| {
        let (first, rest) = endless.split_at(number * 37 % endless.len());
        vec![
            Action::Send(first.to_vec()),
            Action::Sleep(Duration::from_millis(number as u64 % 3)),
            Action::Send(rest.to_vec()),
            Action::AwaitClose,
        ]
    })
    .await;
    let world = World::new(engine, &upstream, "").await;
    let server = world.start();
    let guest = Arc::new(Guest::new(&server, "cutter", serde_json::json!({})).await);
    let count = times(1000);
    let mut memory = Vec::new();
    for round in 1..=2 {
        repeat(count, || {
            let guest = Arc::clone(&guest);
            let bytes = below(length);
            async move {
                let mut stream = guest.connect().await;
                let request = guest.request(&chat(STREAM));
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut read = vec![0; bytes];
                stream.read_exact(&mut read).await.unwrap();
            }
        })
        .await;
        check(&server, &guest, count * round, &upstream).await;
        memory.push(resident(&server));
    }
    eprintln!("resident after each round: {memory:?}");
    assert!(memory[1] < memory[0] + SPARE, "{memory:?}");
    world.end(server).await;
}

async fn cut_by_the_upstream(engine: Engine) {
    let answer = whole();
    let upstream = MockUpstream::new(move |number| {
        let cut = below(answer.len());
        let (first, rest) = answer[..cut].split_at(below(cut + 1));
        let pause = Action::Sleep(Duration::from_millis(number as u64 % 3));
        vec![
            Action::Send(first.to_vec()),
            pause,
            Action::Send(rest.to_vec()),
            Action::Close,
        ]
    })
    .await;
    let world = World::new(engine, &upstream, "").await;
    let server = world.start();
    let guest = Arc::new(Guest::new(&server, "cut", serde_json::json!({})).await);
    let count = times(1000);
    let mut memory = Vec::new();
    for round in 1..=2 {
        repeat(count, || {
            let guest = Arc::clone(&guest);
            async move {
                let answer = guest.call(&chat(STREAM)).await;
                match status(&answer) {
                    // Cut in its head: there is no stream yet.
                    502 => assert!(answer.contains(r#""code":"upstream_error""#), "{answer}"),
                    200 => {
                        assert!(answer.ends_with("0\r\n\r\n"), "not ended: {answer}");
                        let whole = answer.contains("data: [DONE]");
                        let told = answer.contains(r#""code":"upstream_error""#);
                        assert!(whole != told, "{answer}");
                    }
                    other => panic!("{other}: {answer}"),
                }
            }
        })
        .await;
        check(&server, &guest, count * round, &upstream).await;
        memory.push(resident(&server));
    }
    eprintln!("resident after each round: {memory:?}");
    assert!(memory[1] < memory[0] + SPARE, "{memory:?}");
    let rows = guest.logs(&server).await;
    let partial = rows.iter().filter(|row| row["partial"] == true).count();
    let failed = rows.iter().filter(|row| row["status"] == 502).count();
    assert!(partial + failed > rows.len() / 2, "{partial} {failed}");
    world.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_callers_leave_a_row_and_nothing_else() {
    cut_by_callers(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_callers_leave_a_row_and_nothing_else_on_postgres() {
    cut_by_callers(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_the_upstream_leave_a_row_and_nothing_else() {
    cut_by_the_upstream(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_the_upstream_leave_a_row_and_nothing_else_on_postgres() {
    cut_by_the_upstream(Engine::Postgres).await;
}
