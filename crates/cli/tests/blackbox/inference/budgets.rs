//! A budget for so many calls, many more callers, and a server that is killed among them.

use super::{Engine, Guest, MODEL, World, chat, chat_answer, nanos, status};
use crate::support::{PATIENCE, Server, random};
use estrade_mock_upstream::{Action, MockUpstream, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Calls that the budget is for.
const ROOM: usize = 400;
const CALLERS: usize = 500;
/// What one call costs, in billionths.
const EACH: i64 = 1_000_000;

/// All callers at once; how many came through.
fn storm(guest: &Guest) -> JoinSet<u16> {
    let guest = Arc::new(guest.clone());
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let guest = Arc::clone(&guest);
        // Half of them set aside twice what they cost in the end.
        let body = chat(&format!(r#","max_tokens":{}"#, 1 + number % 2));
        callers.spawn(async move { status(&guest.call(&body).await) });
    }
    callers
}

fn count(all: &[u16], status: u16) -> usize {
    all.iter().filter(|one| **one == status).count()
}

/// What the ledger's rows sum up to.
async fn sum(guest: &Guest, server: &Server) -> (u64, i64) {
    let rows = guest.logs(server).await;
    let cost = rows.iter().map(|row| nanos(&row["cost"])).sum();
    (rows.len() as u64, cost)
}

async fn survives_a_crash(engine: Engine) {
    let upstream = MockUpstream::new(|number| {
        let pause = Action::Sleep(Duration::from_millis(20 + number as u64 % 7 * 20));
        let mut acts = vec![pause];
        acts.extend(json(200, &chat_answer(1)));
        acts
    })
    .await;
    let world = World::new(engine, &upstream, "").await;
    let server = world.start();
    let budget =
        serde_json::json!({"budget": {"amount": "0.4", "period": "total"}, "models": [MODEL]});
    let guest = Guest::new(&server, "poor", budget).await;

    // The first wave is interrupted somewhere on its way through the budget.
    let callers = storm(&guest);
    let started = Instant::now();
    let some = usize::try_from(random() % (ROOM as u64 / 4)).unwrap();
    while upstream.count() <= some {
        assert!(started.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.kill();
    let first = callers.join_all().await;
    let reached = upstream.count();
    assert!(count(&first, 200) < ROOM && reached <= ROOM, "{reached}");

    // What the dead server had leased counts as spent until its deadline.
    let server = world.start();
    let guest = guest.at(&server);
    let second = storm(&guest).join_all().await;
    assert!(upstream.count() <= ROOM, "{}", upstream.count());
    // 503: five hundred at once may take a slow database more than the seconds that a call waits.
    let answered = [200, 402, 503].map(|status| count(&second, status));
    assert_eq!(answered.iter().sum::<usize>(), CALLERS, "{second:?}");

    // Past it, the rest can be spent to the last call, and not one more.
    let killed = Instant::now();
    let mut third = Vec::new();
    let all = async |third: &mut Vec<u16>| {
        third.extend(storm(&guest).join_all().await);
        sum(&guest, &server).await.1 == EACH * i64::try_from(ROOM).unwrap()
    };
    while !all(&mut third).await {
        let (rows, cost) = sum(&guest, &server).await;
        assert!(
            killed.elapsed() < PATIENCE,
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
    assert!(upstream.count() <= ROOM, "{}", upstream.count());
    let came_through = count(&first, 200) + count(&second, 200) + count(&third, 200);
    assert!(came_through <= upstream.count(), "{came_through}");
    assert_eq!(guest.activity(&server).await, sum(&guest, &server).await);
    assert_eq!(
        server.stop_and_look(&world).await,
        EACH * i64::try_from(ROOM).unwrap()
    );
    let server = world.start();
    assert_eq!(
        status(&guest.at(&server).call(&chat(r#","max_tokens":1"#)).await),
        402
    );
    assert!(upstream.count() <= ROOM);
    world.end(server).await;
}

impl Server {
    /// Stops; what the budgets say then. Nothing is out any more.
    async fn stop_and_look(self, world: &World) -> i64 {
        self.stop();
        let (spent, slices) = world.spent().await;
        assert_eq!(slices, 0, "slices were not given back");
        spent
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_never_overspent_and_nothing_of_it_is_lost() {
    survives_a_crash(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_never_overspent_and_nothing_of_it_is_lost_on_postgres() {
    survives_a_crash(Engine::Postgres).await;
}
