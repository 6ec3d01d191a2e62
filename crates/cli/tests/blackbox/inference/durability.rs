//! What is on record when a server is killed.

use super::{
    Backend, InferenceClient, InferenceFixture, chat, chat_response, header, status, times,
};
use estrade_mock_upstream::{MockUpstream, done, event, json, stream_head, usage_event};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What relaxed mode may lose.
pub(super) const WINDOW: Duration = Duration::from_millis(100);
/// What nobody loses, however busy the disk is.
pub(super) const STANDSTILL: Duration = Duration::from_millis(600);

/// The calls that were answered, and when their responses ended.
type Answered = Mutex<Vec<(String, Instant)>>;

async fn upstream() -> MockUpstream {
    MockUpstream::with_script(|_, asked| {
        if asked.body.contains(r#""stream":true"#) {
            vec![stream_head(), event("a"), usage_event(3, 1), done()]
        } else {
            json(200, &chat_response(1))
        }
    })
    .await
}

/// Calls again and again until the server is gone; what was answered, and when.
fn call_on(client: &InferenceClient) -> (JoinSet<()>, Arc<Answered>) {
    let answered = Arc::new(Answered::default());
    let mut clients = JoinSet::new();
    for number in 0..4 {
        let (client, answered) = (client.clone(), Arc::clone(&answered));
        clients.spawn(async move {
            let stream = if number % 2 == 0 {
                ""
            } else {
                r#","stream":true"#
            };
            loop {
                let response = client.call(&chat(stream)).await;
                let whole = response.ends_with("0\r\n\r\n") || response.ends_with('}');
                if status(&response) != 200 || !whole {
                    return;
                }
                let id = header(&response, "x-estrade-call").to_owned();
                assert_eq!(id.len(), 24, "{response}");
                answered.lock().unwrap().push((id, Instant::now()));
                // The machine shall have time to write.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    (clients, answered)
}

/// Kills the server again and again; every response that is older than `window` has its row.
///
/// A machine that stands still for longer than that, because others use its disk, may lose more: not
/// in most rounds, and never more than [`STANDSTILL`].
async fn keeps_what_it_acknowledged(backend: Backend, settings: &str, window: Duration) {
    let upstream = upstream().await;
    let fixture = InferenceFixture::new(backend, &upstream, settings).await;
    let mut server = fixture.start();
    let client = InferenceClient::new(&server, "client", serde_json::json!({})).await;
    let (mut kept, mut young, mut late) = (0, 0, 0);
    let rounds = times(30);
    for round in 0..rounds {
        let (clients, answered) = call_on(&client.at(&server));
        tokio::time::sleep(Duration::from_millis(400 + 17 * round as u64)).await;
        let killed = Instant::now();
        server.kill();
        clients.join_all().await;
        server = fixture.start();
        let rows = client.logs(&server).await;
        let ids: HashSet<_> = rows
            .iter()
            .map(|row| row["_id"].as_str().unwrap())
            .collect();
        let mut oldest = Duration::ZERO;
        for (id, at) in answered.lock().unwrap().iter() {
            let age = killed.saturating_duration_since(*at);
            if ids.contains(&**id) {
                kept += usize::from(age >= window);
            } else {
                young += 1;
                oldest = oldest.max(age);
                assert!(!window.is_zero(), "{id} is lost, {age:?} before the kill");
            }
        }
        assert!(oldest < STANDSTILL, "{oldest:?}");
        late += usize::from(oldest >= window && !window.is_zero());
    }
    eprintln!(
        "{kept} responses had to be there and are, {young} were too young; {late} rounds were late"
    );
    assert!(late * 3 <= rounds, "{late} of {rounds} rounds");
    assert!(kept > 0);
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_usage_loses_nothing() {
    let strict = "usage = { durability = \"strict\" }";
    keeps_what_it_acknowledged(Backend::Sqlite, strict, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_usage_loses_nothing_on_postgres() {
    let strict = "usage = { durability = \"strict\" }";
    keeps_what_it_acknowledged(Backend::Postgres, strict, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relaxed_usage_loses_a_tenth_of_a_second_at_most() {
    keeps_what_it_acknowledged(Backend::Sqlite, "", WINDOW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relaxed_usage_loses_a_tenth_of_a_second_at_most_on_postgres() {
    keeps_what_it_acknowledged(Backend::Postgres, "", WINDOW).await;
}
