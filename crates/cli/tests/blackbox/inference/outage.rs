//! PostgreSQL goes away and comes back: keys that were used go on, and their calls are not lost.

use super::{InferenceClient, chat, chat_response, home, start, status};
use crate::support::Postgres;
use estrade_mock_upstream::{MockUpstream, json};
use estrade_testkit::eventually_or;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Stands between a server and its database.
struct Line {
    port: u16,
    up: Arc<watch::Sender<bool>>,
    _tasks: JoinSet<()>,
}

impl Line {
    /// A line to this host and port.
    async fn to(database: String) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let up = Arc::new(watch::Sender::new(true));
        let state = Arc::clone(&up);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = socket.accept().await {
                let (mut state, database) = (state.subscribe(), database.clone());
                connections.spawn(async move {
                    if !*state.borrow_and_update() {
                        return;
                    }
                    let mut far = TcpStream::connect(database).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Self {
            port,
            up,
            _tasks: tasks,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_were_used_work_while_the_database_is_down() {
    let upstream = MockUpstream::new(|_| json(200, &chat_response(1))).await;
    let database = Postgres::create().await;
    let (start_of_url, name) = database.url.rsplit_once('/').unwrap();
    let (user, host) = start_of_url.rsplit_once('@').unwrap();
    let line = Line::to(host.to_owned()).await;
    let url = format!("{user}@127.0.0.1:{}/{name}", line.port);
    let home = home(Some(&url), upstream.address, "");
    let server = start(&home);
    let seen = InferenceClient::new(&server, "seen", serde_json::json!({})).await;
    let unseen = InferenceClient::new(&server, "unseen", serde_json::json!({})).await;
    let budget = serde_json::json!({"budget": {"amount": "100", "period": "daily"}});
    let counted = InferenceClient::new(&server, "counted", budget).await;
    for client in [&seen, &counted] {
        assert_eq!(status(&client.call(&chat("")).await), 200);
    }

    line.up.send_replace(false);
    let mut calls = 2;
    for _ in 0..50 {
        let began = Instant::now();
        let response = seen.call(&chat("")).await;
        assert_eq!(status(&response), 200, "{response}");
        assert!(
            began.elapsed() < Duration::from_millis(500),
            "{:?}",
            began.elapsed()
        );
        calls += 1;
    }
    let began = Instant::now();
    let response = unseen.call(&chat("")).await;
    assert_eq!(status(&response), 503, "{response}");
    assert!(
        response.contains("keys_unavailable") && response.contains("retry-after"),
        "{response}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // What is counted must be on record before it goes out.
    let before = upstream.count();
    let began = Instant::now();
    let response = counted.call(&chat("")).await;
    assert_eq!(status(&response), 503, "{response}");
    assert!(response.contains("ledger_unavailable"), "{response}");
    assert_eq!(upstream.count(), before);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    calls += 1;

    line.up.send_replace(true);
    let began = Instant::now();
    eventually_or(
        || format!("the unseen key works\n{}", server.log()),
        || async { status(&unseen.call(&chat("")).await) == 200 },
    )
    .await;
    eprintln!(
        "the unseen key works {:?} after the database is back",
        began.elapsed()
    );
    let counted_calls = Cell::new(0);
    eventually_or(
        || format!("the counted key works\n{}", server.log()),
        || async {
            counted_calls.update(|calls| calls + 1);
            status(&counted.call(&chat("")).await) == 200
        },
    )
    .await;
    // And the one of the unseen key that came through.
    calls += counted_calls.get() + 1;
    let rows = seen.logs(&server).await;
    assert_eq!(rows.len(), calls);
    assert_eq!(seen.activity(&server).await.0, calls as u64);
    server.stop();
    database.drop().await;
}
