//! What is on record when a server is killed.

use super::{Engine, Guest, World, chat, chat_answer, header, status, times};
use estrade_scripted::{Scripted, done, event, json, stream_head, usage_event};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What relaxed mode may lose.
const WINDOW: Duration = Duration::from_millis(100);

async fn upstream() -> Scripted {
    Scripted::by(|_, asked| {
        if asked.body.contains(r#""stream":true"#) {
            vec![stream_head(), event("a"), usage_event(3, 1), done()]
        } else {
            json(200, &chat_answer(1))
        }
    })
    .await
}

/// Calls without a pause until the server is gone; what was answered, and when.
fn call_on(guest: &Guest) -> (JoinSet<()>, Arc<Mutex<Vec<(String, Instant)>>>) {
    let answered = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for number in 0..4 {
        let (guest, answered) = (guest.clone(), Arc::clone(&answered));
        callers.spawn(async move {
            let stream = if number % 2 == 0 {
                ""
            } else {
                r#","stream":true"#
            };
            loop {
                let answer = guest.call(&chat(stream)).await;
                let whole = answer.ends_with("0\r\n\r\n") || answer.ends_with('}');
                if status(&answer) != 200 || !whole {
                    return;
                }
                let id = header(&answer, "x-estrade-call").to_owned();
                assert_eq!(id.len(), 24, "{answer}");
                answered.lock().unwrap().push((id, Instant::now()));
            }
        });
    }
    (callers, answered)
}

/// Kills the server again and again; every answer that is older than `window` has its row.
async fn keeps_what_it_answered(engine: Engine, settings: &str, window: Duration) {
    let upstream = upstream().await;
    let world = World::new(engine, &upstream, settings).await;
    let mut server = world.start();
    let guest = Guest::new(&server, "caller", serde_json::json!({})).await;
    let (mut kept, mut young) = (0, 0);
    for round in 0..times(30) {
        let (callers, answered) = call_on(&guest.at(&server));
        tokio::time::sleep(Duration::from_millis(400 + 17 * round as u64)).await;
        let killed = Instant::now();
        server.kill();
        callers.join_all().await;
        server = world.start();
        let rows = guest.logs(&server).await;
        let ids: HashSet<_> = rows
            .iter()
            .map(|row| row["_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), rows.len(), "a call is there twice");
        for (id, at) in answered.lock().unwrap().iter() {
            if killed.saturating_duration_since(*at) >= window {
                assert!(
                    ids.contains(&**id),
                    "{id} is lost, {:?} before the kill",
                    killed - *at
                );
                kept += 1;
            } else {
                young += 1;
            }
        }
    }
    eprintln!("{kept} answers had to be there and are, {young} were too young");
    assert!(kept > 0);
    world.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_usage_loses_nothing() {
    let strict = "usage = { durability = \"strict\" }";
    keeps_what_it_answered(Engine::Sqlite, strict, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_usage_loses_nothing_on_postgres() {
    let strict = "usage = { durability = \"strict\" }";
    keeps_what_it_answered(Engine::Postgres, strict, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relaxed_usage_loses_a_tenth_of_a_second_at_most() {
    keeps_what_it_answered(Engine::Sqlite, "", WINDOW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relaxed_usage_loses_a_tenth_of_a_second_at_most_on_postgres() {
    keeps_what_it_answered(Engine::Postgres, "", WINDOW).await;
}
