//! Clients that hang up on an upstream that bills all that it generates: the ledger has it, and the budget
//! is not overspent, also when the server is killed meanwhile.

use super::{Backend, InferenceClient, InferenceFixture, MODEL, chat, nanos, status};
use crate::support::TIMEOUT;
use estrade_mock_upstream::{
    Action, MockUpstream, event, json as response, send, stream_head, usage_event,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Tokens that every call generates, each at 0.001: twenty calls are a budget of 10.00.
const TOKENS: u64 = 500;
/// What that costs, in billionths.
const CALL_COST: i64 = 500_000_000;
const BUDGET: i64 = 10_000_000_000;
const CLIENTS: usize = 60;

/// Generates all that was asked for, bills it, and only then notices that nobody reads it.
async fn upstream(billed: Arc<AtomicI64>) -> MockUpstream {
    MockUpstream::with_script(move |number, asked| {
        billed.fetch_add(CALL_COST, Ordering::SeqCst);
        let pause = Action::Sleep(Duration::from_millis(100 + number as u64 % 5 * 40));
        let mut acts = Vec::new();
        if asked.body.contains(r#""stream":true"#) {
            acts.extend([stream_head(), event("a"), pause.clone(), event("b"), pause]);
            acts.push(usage_event(3, TOKENS));
            acts.push(send("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"));
        } else {
            acts.push(pause);
            let body = super::chat_response(TOKENS);
            acts.extend(response(200, &body));
        }
        acts
    })
    .await
}

/// Clients that hang up: half of them before anything came, the others within a stream.
async fn hang_up(client: &InferenceClient) {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = client.clone();
        clients.spawn(async move {
            let more = if number % 2 == 0 {
                ""
            } else {
                r#","stream":true"#
            };
            let body = chat(&format!(r#","max_tokens":{TOKENS}{more}"#));
            let mut stream = client.connect().await;
            if stream
                .write_all(client.request(&body).as_bytes())
                .await
                .is_err()
            {
                return;
            }
            if number % 2 == 1 {
                let _ = stream.read(&mut [0; 64]).await;
            } else {
                tokio::time::sleep(Duration::from_millis(number as u64 * 3)).await;
            }
            if number % 3 == 0 {
                stream.set_zero_linger().unwrap();
            }
        });
    }
    clients.join_all().await;
}

async fn bills_what_nobody_reads(backend: Backend, kill: bool) {
    let billed = Arc::new(AtomicI64::new(0));
    let upstream = upstream(Arc::clone(&billed)).await;
    let fixture = InferenceFixture::new(backend, &upstream, "").await;
    let mut server = fixture.start();
    let limits = json!({"budget": {"amount": "10.00", "period": "total"}, "models": [MODEL]});
    let mut client = InferenceClient::new(&server, "poor", limits).await;
    let started = Instant::now();
    let last = chat(&format!(r#","max_tokens":{TOKENS}"#));
    // Until there is nothing left to spend, with nothing under way any more.
    let mut rounds = 0;
    loop {
        hang_up(&client).await;
        rounds += 1;
        if kill && rounds == 1 {
            server.kill();
            server = fixture.start();
            client = client.at(&server);
        }
        let spent: i64 = client
            .logs(&server)
            .await
            .iter()
            .map(|row| nanos(&row["cost"]))
            .sum();
        let owed = billed.load(Ordering::SeqCst);
        assert!(owed <= BUDGET, "{owed} was billed");
        if status(&client.call(&last).await) == 402 && spent >= owed && spent > BUDGET - CALL_COST {
            break;
        }
        assert!(
            started.elapsed() < 2 * TIMEOUT,
            "{spent} spent, {owed} billed"
        );
    }
    let rows = client.logs(&server).await;
    let spent: i64 = rows.iter().map(|row| nanos(&row["cost"])).sum();
    let billed = billed.load(Ordering::SeqCst);
    eprintln!(
        "{rounds} rounds: {billed} billed, {spent} in the ledger, {} calls",
        rows.len()
    );
    assert!(
        billed > BUDGET / 2,
        "the upstream was hardly asked: {billed}"
    );
    assert!(
        billed <= spent && spent <= BUDGET,
        "{billed} billed, {spent} in the ledger"
    );
    assert_eq!(client.activity(&server).await.1, spent);
    // Who was to be asked is on record of what a killed server left, too.
    let paid = rows.iter().filter(|row| nanos(&row["cost"]) > 0);
    assert!(paid.clone().count() > 0);
    for row in paid {
        assert_eq!(row["provider"], "acme", "{row}");
    }
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_paid_for() {
    bills_what_nobody_reads(Backend::Sqlite, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_paid_for_on_postgres() {
    bills_what_nobody_reads(Backend::Postgres, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_paid_for_after_a_kill() {
    bills_what_nobody_reads(Backend::Sqlite, true).await;
}
