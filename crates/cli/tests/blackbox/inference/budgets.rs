//! A budget for so many calls, many more clients, and a server that is killed among them.

use super::{
    Backend, InferenceClient, InferenceFixture, MODEL, chat, chat_response, nanos, status,
};
use crate::support::{Server, TIMEOUT, random};
use estrade_mock_upstream::{Action, MockUpstream, json};
use estrade_testkit::eventually_or;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Calls that the budget is for.
const MAX_CALLS: usize = 400;
const CLIENTS: usize = 500;
/// What one call costs, in billionths.
const CALL_COST: i64 = 1_000_000;

/// All clients at once; how many came through.
fn storm(client: &InferenceClient) -> JoinSet<u16> {
    let client = Arc::new(client.clone());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Arc::clone(&client);
        // Half of them set aside twice what they cost in the end.
        let body = chat(&format!(r#","max_tokens":{}"#, 1 + number % 2));
        clients.spawn(async move { status(&client.call(&body).await) });
    }
    clients
}

fn count(all: &[u16], status: u16) -> usize {
    all.iter().filter(|one| **one == status).count()
}

/// What the ledger's rows sum up to.
async fn sum(client: &InferenceClient, server: &Server) -> (u64, i64) {
    let rows = client.logs(server).await;
    let cost = rows.iter().map(|row| nanos(&row["cost"])).sum();
    (rows.len() as u64, cost)
}

async fn survives_a_crash(backend: Backend) {
    let upstream = MockUpstream::new(|number| {
        let pause = Action::Sleep(Duration::from_millis(20 + number as u64 % 7 * 20));
        let mut acts = vec![pause];
        acts.extend(json(200, &chat_response(1)));
        acts
    })
    .await;
    let fixture = InferenceFixture::new(backend, &upstream, "").await;
    let server = fixture.start();
    let budget =
        serde_json::json!({"budget": {"amount": "0.4", "period": "total"}, "models": [MODEL]});
    let client = InferenceClient::new(&server, "poor", budget).await;

    // The first wave is interrupted somewhere on its way through the budget.
    let clients = storm(&client);
    let some = usize::try_from(random() % (MAX_CALLS as u64 / 4)).unwrap();
    eventually_or(
        || format!("{some} calls reach the upstream\n{}", server.log()),
        || async { upstream.count() > some },
    )
    .await;
    server.kill();
    let first = clients.join_all().await;
    let reached = upstream.count();
    assert!(
        count(&first, 200) < MAX_CALLS && reached <= MAX_CALLS,
        "{reached}"
    );

    // What the dead server had leased counts as spent until its deadline.
    let server = fixture.start();
    let client = client.at(&server);
    let second = storm(&client).join_all().await;
    assert!(upstream.count() <= MAX_CALLS, "{}", upstream.count());
    // 503: five hundred at once may take a slow database more than the seconds that a call waits.
    let answered = [200, 402, 503].map(|status| count(&second, status));
    assert_eq!(answered.iter().sum::<usize>(), CLIENTS, "{second:?}");

    // Past it, the rest can be spent to the last call, and not one more.
    let killed = Instant::now();
    let mut third = Vec::new();
    let all = async |third: &mut Vec<u16>| {
        third.extend(storm(&client).join_all().await);
        sum(&client, &server).await.1 == CALL_COST * i64::try_from(MAX_CALLS).unwrap()
    };
    while !all(&mut third).await {
        let (rows, cost) = sum(&client, &server).await;
        assert!(
            killed.elapsed() < TIMEOUT,
            "{rows} rows, {cost} spent, {} admitted",
            upstream.count()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    eprintln!(
        "{} calls came through before the kill, {} then, {} past the deadline after {:?}; admitted {}",
        count(&first, 200),
        count(&second, 200),
        count(&third, 200),
        killed.elapsed(),
        upstream.count()
    );
    assert!(upstream.count() <= MAX_CALLS, "{}", upstream.count());
    let came_through = count(&first, 200) + count(&second, 200) + count(&third, 200);
    assert!(came_through <= upstream.count(), "{came_through}");
    assert_eq!(client.activity(&server).await, sum(&client, &server).await);
    assert_eq!(
        server.stop_and_look(&fixture).await,
        CALL_COST * i64::try_from(MAX_CALLS).unwrap()
    );
    let server = fixture.start();
    assert_eq!(
        status(&client.at(&server).call(&chat(r#","max_tokens":1"#)).await),
        402
    );
    assert!(upstream.count() <= MAX_CALLS);
    fixture.end(server).await;
}

impl Server {
    /// Stops; what the budgets say then. Nothing is out any more.
    async fn stop_and_look(self, fixture: &InferenceFixture) -> i64 {
        self.stop();
        let (spent, slices) = fixture.spent().await;
        assert_eq!(slices, 0, "slices were not given back");
        spent
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_never_overspent_and_nothing_of_it_is_lost() {
    survives_a_crash(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_never_overspent_and_nothing_of_it_is_lost_on_postgres() {
    survives_a_crash(Backend::Postgres).await;
}
