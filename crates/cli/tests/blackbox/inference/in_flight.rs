//! What is on record of calls that a server was killed in the middle of.

use super::durability::{STANDSTILL, WINDOW};
use super::{
    Backend, InferenceClient, InferenceFixture, chat, chat_response, header, nanos, times,
};
use crate::support::Server;
use estrade_mock_upstream::{Action, MockUpstream, event, json, stream_head};
use estrade_testkit::eventually_or;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// What each event says: one token.
const WORD: &str = "abcd";
const STREAMS: usize = 4;

/// Streams that go on for longer than they are let, and responses that take a while to begin.
async fn upstream() -> MockUpstream {
    MockUpstream::with_script(|_, asked| {
        let wait = |millis| Action::Sleep(Duration::from_millis(millis));
        if !asked.body.contains(r#""stream":true"#) {
            let mut acts = vec![wait(950)];
            acts.extend(json(200, &chat_response(1)));
            return acts;
        }
        let mut acts = vec![stream_head()];
        for _ in 0..1000 {
            acts.extend([event(WORD), wait(10)]);
        }
        acts
    })
    .await
}

/// What a client got of a stream: its call, and how many words there were at which moment.
struct ReceivedStream {
    call: String,
    words: Vec<(Instant, u64)>,
}

impl ReceivedStream {
    fn words_until(&self, moment: Instant) -> u64 {
        let before = self.words.iter().filter(|(at, _)| *at <= moment);
        before.map(|(_, words)| *words).max().unwrap_or(0)
    }
}

/// Reads a stream until the server is gone.
async fn listen(client: InferenceClient) -> ReceivedStream {
    let mut stream = client.connect().await;
    let request = client.request(&chat(r#","stream":true"#));
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut all, mut words) = (Vec::new(), Vec::new());
    while matches!(stream.read_buf(&mut all).await, Ok(1..)) {
        let text = String::from_utf8_lossy(&all);
        words.push((Instant::now(), text.matches(WORD).count() as u64));
    }
    let call = header(&String::from_utf8_lossy(&all), "x-estrade-call").to_owned();
    assert_eq!(call.len(), 24);
    ReceivedStream { call, words }
}

/// The calls that were settled in the place of servers that were killed, by their ids, when there are so many.
async fn settled(
    client: &InferenceClient,
    server: &Server,
    count: usize,
) -> HashMap<String, Value> {
    let found = RefCell::new(HashMap::new());
    eventually_or(
        || format!("{count} calls are settled: {:?}", found.borrow()),
        || async {
            let rows = client.logs(server).await.into_iter();
            let rows = rows.filter(|row| row["status"] == 500);
            let rows: HashMap<_, _> = rows
                .map(|row| (row["_id"].as_str().unwrap().to_owned(), row))
                .collect();
            let all = rows.len() >= count;
            found.replace(rows);
            all
        },
    )
    .await;
    found.into_inner()
}

async fn loses_a_moment_at_most(backend: Backend) {
    let upstream = upstream().await;
    let fixture = InferenceFixture::new(backend, &upstream, "").await;
    let mut server = fixture.start();
    let client = InferenceClient::new(&server, "client", serde_json::json!({})).await;
    let rounds = times(20);
    let mut heard = Vec::new();
    for round in 0..rounds {
        let here = client.at(&server);
        let mut streams = JoinSet::new();
        for _ in 0..STREAMS {
            streams.spawn(listen(here.clone()));
        }
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { here.call(&chat("")).await });
        tokio::time::sleep(Duration::from_millis(500 + 37 * round as u64 % 350)).await;
        let killed = Instant::now();
        server.kill();
        for stream in streams.join_all().await {
            heard.push((stream, killed));
        }
        waiting.join_all().await;
        server = fixture.start();
    }
    let mut rows = settled(&client, &server, rounds * (STREAMS + 1)).await;
    let mut late = 0;
    for (stream, killed) in &heard {
        let row = rows.remove(&stream.call).unwrap();
        let words = row["completionTokens"].as_u64().unwrap();
        let at_least = |window| stream.words_until(killed.checked_sub(window).unwrap());
        let most = stream.words_until(Instant::now());
        eprintln!("{words} of {most} words, {} had to be", at_least(WINDOW));
        // What the server had taken in and the client had not.
        assert!(words <= most + 5 && words >= at_least(STANDSTILL), "{row}");
        late += usize::from(words < at_least(WINDOW));
        assert_eq!(
            (&row["partial"], &row["estimated"]),
            (&true.into(), &true.into())
        );
        assert_eq!(
            nanos(&row["cost"]),
            i64::try_from(words).unwrap() * 1_000_000
        );
        assert_eq!(row["provider"], "acme");
    }
    assert!(late * 3 <= heard.len(), "{late} of {} streams", heard.len());
    // Those that had not begun to be answered.
    assert_eq!(rows.len(), rounds, "{rows:?}");
    assert!(rows.values().all(|row| row["streamed"] == false));
    let all = client.logs(&server).await;
    assert_eq!(all.len(), rounds * (STREAMS + 1));
    let cost = all.iter().map(|row| nanos(&row["cost"])).sum();
    assert_eq!(client.activity(&server).await, (all.len() as u64, cost));
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_lose_a_tenth_of_a_second_at_most() {
    loses_a_moment_at_most(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_lose_a_tenth_of_a_second_at_most_on_postgres() {
    loses_a_moment_at_most(Backend::Postgres).await;
}
