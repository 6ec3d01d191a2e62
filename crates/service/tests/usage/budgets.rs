//! Budgets: never overspent, never short, also when a server dies.

use crate::node::{CallSource, Node, books, bury_all, id, kept, number, total, until_none, whole};
use crate::support::{Installation, on_both_backends};
use estrade_fixtures::eventually;
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, RowState};
use estrade_model::key::Budget;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

on_both_backends! {
    five_hundred_at_once_never_spend_more_than_the_budget
    two_servers_share_a_budget
    what_a_dead_server_left_is_settled_from_the_ledger
    a_server_that_was_taken_for_dead_goes_on
    a_changed_budget_counts_for_the_next_call
    what_is_given_back_of_a_lowered_budget_is_not_spent_again
    who_stops_waiting_gives_back_what_was_set_aside
}

/// Asks for many calls at once; each that is let in costs one. Returns how many were.
async fn rush(node: &Arc<Node>, who: CallSource, budget: &Budget, calls: usize) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let (node, budget) = (Arc::clone(node), budget.clone());
        tasks.spawn(async move {
            loop {
                match node.admit(&who, Some(&budget)).await {
                    Ok((id, reservation)) => {
                        node.close(&who, id, reservation, whole(1));
                        return true;
                    }
                    Err(AdmissionError::Budget { of_workspace, .. }) => {
                        assert!(!of_workspace);
                        return false;
                    }
                    // On a busy machine the database takes longer than a caller is kept waiting.
                    Err(AdmissionError::Unavailable) => {}
                }
            }
        });
    }
    tasks
        .join_all()
        .await
        .into_iter()
        .filter(|let_in| *let_in)
        .count()
}

/// Asks again and again until `most` calls were let in altogether, `before` of them earlier.
async fn spend_the_rest(
    node: &Arc<Node>,
    who: CallSource,
    budget: &Budget,
    before: usize,
    most: usize,
) {
    let spent = Cell::new(before);
    eventually("the rest of the budget is spent", || async {
        if spent.get() < most {
            let more = rush(node, who, budget, 50).await;
            spent.set(spent.get() + more);
        }
        spent.get() >= most
    })
    .await;
    assert_eq!(spent.get(), most);
    assert_eq!(rush(node, who, budget, 50).await, 0);
}

async fn five_hundred_at_once_never_spend_more_than_the_budget(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(100));
    let node = Arc::new(Node::start(at, |_| {}).await);
    assert_eq!(rush(&node, who, &budget, 500).await, 100);
    Arc::into_inner(node).unwrap().stop().await;
    let (calls, sums) = books(&at.core, &who).await;
    assert_eq!((calls, sums), (100, [whole(100).nanos(); 3]));
    // Everything was given back, and the server is gone.
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM budget_slices").await,
        0
    );
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM ledger_nodes").await,
        0
    );
}

async fn two_servers_share_a_budget(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(60));
    let nodes = [
        Arc::new(Node::start(at, |_| {}).await),
        Arc::new(Node::start(at, |_| {}).await),
    ];
    let (a, b) = tokio::join!(
        rush(&nodes[0], who, &budget, 100),
        rush(&nodes[1], who, &budget, 100)
    );
    assert!(a + b <= 60, "{a} + {b}");
    // What one has leased and not used comes back, and the rest can be spent.
    spend_the_rest(&nodes[0], who, &budget, a + b, 60).await;
    for node in nodes {
        Arc::into_inner(node).unwrap().stop().await;
    }
    assert_eq!(books(&at.core, &who).await.1, [whole(60).nanos(); 3]);
}

async fn what_a_dead_server_left_is_settled_from_the_ledger(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(50));
    let deadline = Duration::from_secs(3);
    let node = Node::start(at, |usage| usage.deadline = deadline).await;
    let mut reservations = Vec::new();
    for _ in 0..20 {
        reservations.push(node.admit(&who, Some(&budget)).await.unwrap());
    }
    let quarter = Amount::from_nanos(250_000_000);
    for (id, reservation) in reservations.drain(..5) {
        node.close(&who, id, reservation, quarter);
    }
    node.ledger.flush().await;
    let died = Instant::now();
    node.die().await;
    let heir = Arc::new(Node::start(at, |usage| usage.deadline = deadline).await);
    // Until the deadline all that the dead one had leased counts as spent.
    let before = rush(&heir, who, &budget, 50).await;
    assert!(before <= 30 || died.elapsed() >= deadline / 2, "{before}");
    until_none(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await;
    let nobody = "SELECT COUNT(*) FROM calls WHERE cost_nanos > 0 AND provider = ''";
    assert_eq!(number(&at.core, nobody).await, 0, "who was asked is known");
    // 15 calls may have reached the provider: they cost what was set aside. Five cost a quarter.
    spend_the_rest(&heir, who, &budget, before, 50 - 15 - 2).await;
    Arc::into_inner(heir).unwrap().stop().await;
    let sum = whole(33 + 15 + 1).nanos() + quarter.nanos();
    assert_eq!(books(&at.core, &who).await.1, [sum; 3]);
}

async fn a_server_that_was_taken_for_dead_goes_on(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(10));
    let node = Node::start(at, |usage| usage.idle = Duration::from_mins(1)).await;
    let (held, reservation) = node.admit(&who, Some(&budget)).await.unwrap();
    bury_all(&at.core).await;
    assert_eq!(books(&at.core, &who).await, (1, [whole(1).nanos(); 3]));
    let (id, second) = node.admit(&who, Some(&budget)).await.unwrap();
    node.close(&who, id, second, whole(1));
    // It was settled at what it might have cost. Its end corrects that, once.
    let quarter = Amount::from_nanos(250_000_000);
    for _ in 0..2 {
        let late = BudgetReservation {
            row_state: RowState::Open,
            ..reservation
        };
        node.close(&who, held, late, quarter);
        node.ledger.flush().await;
    }
    node.stop().await;
    let sum = whole(1).nanos() + quarter.nanos();
    assert_eq!(books(&at.core, &who).await, (2, [sum; 3]));
    let models = "SELECT COUNT(*) FROM usage_hours WHERE requests <> 0 AND model <> 'model'";
    assert_eq!(number(&at.core, models).await, 0);
}

/// How many servers have renewed their deadline in time; none when the database does not answer.
async fn alive(at: &Installation) -> Option<i64> {
    let alive = "SELECT COUNT(*) FROM ledger_nodes WHERE deadline > $1";
    let alive = at.core.db.read(alive).bind(at.core.now());
    alive.fetch_one().await.ok()
}

async fn open_calls(at: &Installation, who: &CallSource) -> i64 {
    let open = "SELECT COUNT(*) FROM calls WHERE open AND key_id = $1";
    let open = at.core.db.read(open).bind(who.key);
    open.fetch_one().await.unwrap()
}

/// No server could renew while the database was away, so none is dead because of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_makes_nobody_dead() {
    let at = Installation::on_postgres().await;
    let (who, of_killed, budget) = (CallSource::new(), CallSource::new(), total(10));
    let deadline = Duration::from_secs(2);
    // First: whenever the outage ends, it most likely looks before the next one renews.
    let other = Node::start(&at, |usage| usage.deadline = deadline).await;
    let node = Node::start(&at, |usage| {
        usage.idle = Duration::from_mins(1);
        usage.deadline = deadline;
    })
    .await;
    let killed = Node::start(&at, |usage| usage.deadline = deadline).await;
    let (held, reservation) = node.admit(&who, Some(&budget)).await.unwrap();
    killed.admit(&of_killed, Some(&budget)).await.unwrap();
    at.database().set_read_only(true).await;
    killed.die().await;
    eventually("every deadline has passed", || async {
        alive(&at).await == Some(0)
    })
    .await;
    // The other one looks every quarter of a deadline, which shows nowhere: twice now, in vain.
    sleep(deadline / 2).await;
    at.database().set_read_only(false).await;
    // Settling goes by the deadline that was seen: whoever has renewed since the outage has survived it.
    eventually("only the killed server is settled", || async {
        open_calls(&at, &of_killed).await == 0 && alive(&at).await == Some(1)
    })
    .await;
    assert_eq!(open_calls(&at, &who).await, 1);
    let quarter = Amount::from_nanos(250_000_000);
    node.close(&who, held, reservation, quarter);
    node.stop().await;
    other.stop().await;
    let sum = whole(1).nanos() + quarter.nanos();
    assert_eq!(
        books(&at.core, &who).await,
        (2, [sum, sum, quarter.nanos()])
    );
    at.remove().await;
}

async fn what_is_given_back_of_a_lowered_budget_is_not_spent_again(at: &Installation) {
    let who = CallSource::new();
    let node = Node::start(at, |_| {}).await;
    let (mut open, before, after) = (Vec::new(), total(10), total(5));
    while let Ok(admitted) = node.admit(&who, Some(&before)).await {
        open.push(admitted);
    }
    assert_eq!(open.len(), 10);
    node.admit(&who, Some(&after)).await.unwrap_err();
    // They cost much less than they might have: there is room for four now, and for no more.
    for (id, reservation) in open {
        node.close(&who, id, reservation, Amount::from_nanos(1));
    }
    let mut more = Vec::new();
    while let Ok(admitted) = node.admit(&who, Some(&after)).await {
        more.push(admitted);
        assert!(more.len() < 5);
    }
    assert_eq!(more.len(), 4);
    for (id, reservation) in more {
        node.close(&who, id, reservation, whole(1));
    }
    node.stop().await;
    let sum = whole(4).nanos() + 10;
    assert_eq!(books(&at.core, &who).await, (14, [sum; 3]));
}

async fn a_changed_budget_counts_for_the_next_call(at: &Installation) {
    let who = CallSource::new();
    let node = Node::start(at, |_| {}).await;
    for _ in 0..3 {
        let (id, reservation) = node.admit(&who, Some(&total(80))).await.unwrap();
        node.close(&who, id, reservation, whole(1));
    }
    // The slice has room for more, but the budget has not.
    let refused = node.admit(&who, Some(&total(3))).await.unwrap_err();
    assert_eq!(
        refused,
        AdmissionError::Budget {
            of_workspace: false,
            budget: total(3),
            resets_at: None
        }
    );
    let (id, reservation) = node.admit(&who, Some(&total(4))).await.unwrap();
    node.close(&who, id, reservation, whole(1));
    node.admit(&who, Some(&total(4))).await.unwrap_err();
    assert_eq!(
        node.admit(&who, None).await.unwrap().1,
        BudgetReservation::NONE
    );
    node.stop().await;
}

async fn who_stops_waiting_gives_back_what_was_set_aside(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(5));
    let node = Node::start(at, |_| {}).await;
    for wait in 0..40_u64 {
        let call = id();
        let admitted = node.admit_as(call, &who, Some(&budget));
        let admitted = timeout(Duration::from_micros(wait * 100), admitted).await;
        // The gateway writes down a client that leaves as well, whatever the ledger did of it.
        let reservation =
            admitted.map_or(BudgetReservation::UNCONFIRMED, |admitted| admitted.unwrap());
        node.close(&who, call, reservation, Amount::ZERO);
    }
    node.ledger.flush().await;
    assert_eq!(kept(&at.core).await, 40, "each of them once");
    let mut reservations = Vec::new();
    for _ in 0..5 {
        reservations.push(node.admit(&who, Some(&budget)).await.unwrap());
    }
    node.admit(&who, Some(&budget)).await.unwrap_err();
    for (id, reservation) in reservations {
        node.close(&who, id, reservation, whole(1));
    }
    node.stop().await;
    assert_eq!(books(&at.core, &who).await.1, [whole(5).nanos(); 3]);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await,
        0
    );
}
