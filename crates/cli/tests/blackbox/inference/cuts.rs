//! Streams that are cut anywhere, by the client and by the upstream.

use super::{Backend, InferenceClient, InferenceFixture, chat, nanos, resident, status, times};
use crate::support::{Server, random};
use estrade_mock_upstream::{Action, MockUpstream, event, send, stream_head, usage_event};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const STREAM: &str = r#","stream":true"#;
/// Streams at once.
const CONCURRENT_STREAMS: usize = 16;
/// What a second round may take more than the first.
const MAX_GROWTH: u64 = 6 << 20;

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
        if running.len() == CONCURRENT_STREAMS {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(cut());
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Every call is one row, its numbers make sense, and the sums are the sums of the rows.
async fn check(server: &Server, client: &InferenceClient, calls: usize, upstream: &MockUpstream) {
    assert!(
        upstream.wait_for_open(0).await,
        "{} connections to the upstream are left",
        upstream.open()
    );
    let rows = client.logs(server).await;
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
    assert_eq!(client.activity(server).await, (calls as u64, cost));
}

async fn cut_by_callers(backend: Backend) {
    let response = whole();
    // It never comes to its end, so that every stream is cut by its client.
    let endless = response[..response.len() - 30].to_vec();
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
    let fixture = InferenceFixture::new(backend, &upstream, "").await;
    let server = fixture.start();
    let client = Arc::new(InferenceClient::new(&server, "cutter", serde_json::json!({})).await);
    let count = times(1000);
    let mut memory = Vec::new();
    for round in 1..=2 {
        repeat(count, || {
            let client = Arc::clone(&client);
            let bytes = below(length);
            async move {
                let mut stream = client.connect().await;
                let request = client.request(&chat(STREAM));
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut read = vec![0; bytes];
                stream.read_exact(&mut read).await.unwrap();
            }
        })
        .await;
        check(&server, &client, count * round, &upstream).await;
        memory.push(resident(&server));
    }
    eprintln!("resident after each round: {memory:?}");
    assert!(memory[1] < memory[0] + MAX_GROWTH, "{memory:?}");
    fixture.end(server).await;
}

async fn cut_by_the_upstream(backend: Backend) {
    let response = whole();
    let upstream = MockUpstream::new(move |number| {
        let cut = below(response.len());
        let (first, rest) = response[..cut].split_at(below(cut + 1));
        let pause = Action::Sleep(Duration::from_millis(number as u64 % 3));
        vec![
            Action::Send(first.to_vec()),
            pause,
            Action::Send(rest.to_vec()),
            Action::Close,
        ]
    })
    .await;
    let fixture = InferenceFixture::new(backend, &upstream, "").await;
    let server = fixture.start();
    let client = Arc::new(InferenceClient::new(&server, "cut", serde_json::json!({})).await);
    let count = times(1000);
    let mut memory = Vec::new();
    for round in 1..=2 {
        repeat(count, || {
            let client = Arc::clone(&client);
            async move {
                let response = client.call(&chat(STREAM)).await;
                match status(&response) {
                    // Cut in its head: there is no stream yet.
                    502 => assert!(
                        response.contains(r#""code":"upstream_error""#),
                        "{response}"
                    ),
                    200 => {
                        assert!(response.ends_with("0\r\n\r\n"), "not ended: {response}");
                        let whole = response.contains("data: [DONE]");
                        let told = response.contains(r#""code":"upstream_error""#);
                        assert!(whole != told, "{response}");
                    }
                    other => panic!("{other}: {response}"),
                }
            }
        })
        .await;
        check(&server, &client, count * round, &upstream).await;
        memory.push(resident(&server));
    }
    eprintln!("resident after each round: {memory:?}");
    assert!(memory[1] < memory[0] + MAX_GROWTH, "{memory:?}");
    let rows = client.logs(&server).await;
    let partial = rows.iter().filter(|row| row["partial"] == true).count();
    let failed = rows.iter().filter(|row| row["status"] == 502).count();
    assert!(partial + failed > rows.len() / 2, "{partial} {failed}");
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_callers_leave_a_row_and_nothing_else() {
    cut_by_callers(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_callers_leave_a_row_and_nothing_else_on_postgres() {
    cut_by_callers(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_the_upstream_leave_a_row_and_nothing_else() {
    cut_by_the_upstream(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_by_the_upstream_leave_a_row_and_nothing_else_on_postgres() {
    cut_by_the_upstream(Backend::Postgres).await;
}
