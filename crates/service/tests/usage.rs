//! The ledger: nothing is lost, counted twice or overspent, also when a server dies.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::amount::Amount;
use estrade_model::call::{Call, CallId, Operation, Span, Ticket, Tokens};
use estrade_model::key::{Budget, Period};
use estrade_model::{Id, KeyId, Timestamp, WorkspaceId};
use estrade_service::access::{Scope, scope_of};
use estrade_service::usage::{
    Admission, Ledger, Refused, UsageSettings, Wanted, activity, list_calls, read_call, retention,
};
use estrade_service::{Core, Settings, workspaces};
use estrade_store::StoreError;
use estrade_store::budgets::{Account, list_nodes, position, settle_node};
use estrade_store::calls::{self, CallFilter, CallPage, CallRow, Slices, write_calls};
use std::sync::Arc;
use std::time::Duration;
use support::{Installation, on_both_engines};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

on_both_engines! {
    five_hundred_at_once_never_spend_more_than_the_budget
    two_servers_share_a_budget
    what_a_dead_server_left_is_settled_from_the_ledger
    a_server_that_was_taken_for_dead_goes_on
    a_changed_budget_counts_for_the_next_call
    who_stops_waiting_gives_back_what_was_set_aside
    a_batch_that_is_written_twice_counts_once
    a_row_that_cannot_be_written_costs_no_other
    no_sum_is_too_large
    in_strict_mode_a_call_is_on_disk_before_its_end
    activity_and_logs_show_what_was_used
    a_search_ends_when_it_has_looked_at_enough
    old_calls_go_and_their_sums_stay
    no_workspace_pushes_out_the_calls_of_another
    calls_wait_for_a_ledger_that_is_full
}

/// A server's ledger, running.
struct Node {
    core: Arc<Core>,
    ledger: Arc<Ledger>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Node {
    async fn start(at: &Installation, change: impl FnOnce(&mut UsageSettings)) -> Self {
        let mut settings = Settings::default();
        settings.usage.deadline = Duration::from_millis(600);
        settings.usage.idle = Duration::from_millis(100);
        change(&mut settings.usage);
        let core = at.another_core(settings).await;
        let ledger = Ledger::new(&core).unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(Arc::clone(&ledger).run(stop.clone()));
        Self {
            core,
            ledger,
            stop,
            tasks,
        }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// As `kill -9` would.
    async fn die(mut self) {
        self.tasks.shutdown().await;
    }

    /// Asks for a call that may cost one.
    async fn admit(&self, who: &Who, budget: Option<&Budget>) -> Result<(CallId, Ticket), Refused> {
        let (id, model) = (id(), Arc::from("model"));
        let wanted = Wanted {
            id,
            workspace: who.workspace,
            key: who.key,
            created_at: self.core.now(),
            operation: Operation::Chat,
            model: &model,
            streamed: false,
            most: whole(1),
            key_budget: budget,
            workspace_budget: None,
        };
        let ticket = match self.ledger.admit(&wanted) {
            Admission::Ready(ticket) => ticket,
            Admission::Wait(wait) => wait.await?,
            Admission::Refused(refused) => return Err(refused),
        };
        Ok((id, ticket))
    }

    fn close(&self, who: &Who, id: CallId, ticket: Ticket, cost: Amount) {
        let call = call(who, id, self.core.now(), "model", cost);
        drop(self.ledger.close(ticket, call));
    }
}

#[derive(Clone, Copy)]
struct Who {
    workspace: WorkspaceId,
    key: KeyId,
}

impl Who {
    fn new() -> Self {
        Self {
            workspace: id(),
            key: id(),
        }
    }

    fn account(&self) -> Account {
        Account {
            subject: *self.key.as_bytes(),
            period: Period::Total,
            start: Timestamp::from_millis(0),
        }
    }
}

fn id<T>() -> Id<T> {
    Id::generate(1_790_000_000_000, 7)
}

/// An id that was made at a moment, also one in the past: in a process they only rise.
fn id_at(moment: Timestamp) -> CallId {
    let fresh: CallId = id();
    let text = format!("{:012x}{}", moment.millis(), &fresh.to_string()[12..]);
    text.parse().unwrap()
}

fn whole(amount: i64) -> Amount {
    Amount::from_nanos(amount * 1_000_000_000)
}

fn total(amount: i64) -> Budget {
    Budget {
        amount: whole(amount),
        period: Period::Total,
    }
}

fn call(who: &Who, id: CallId, at: Timestamp, model: &str, cost: Amount) -> Call {
    Call {
        id,
        workspace: who.workspace,
        key: who.key,
        created_at: at,
        operation: Operation::Chat,
        model: model.into(),
        provider: "local".into(),
        status: 200,
        streamed: false,
        partial: false,
        estimated: false,
        cached: false,
        tokens: Tokens {
            prompt: 10,
            completion: 5,
        },
        cost,
        latency_us: 1500,
        ttfb_us: 900,
        attempts: 1,
    }
}

async fn number(core: &Core, sql: &'static str) -> i64 {
    core.db.read(sql).fetch_one().await.unwrap()
}

/// Calls, and the sums of costs in the ledger, in the hours and in the budget.
async fn books(core: &Core, who: &Who) -> (i64, [i64; 3]) {
    let ledger = "SELECT CAST(COALESCE(SUM(cost_nanos), 0) AS BIGINT) FROM calls WHERE NOT open";
    let hours = "SELECT CAST(COALESCE(SUM(cost_nanos), 0) AS BIGINT) FROM usage_hours";
    let (spent, slices) = position(&core.db, who.account()).await.unwrap();
    let settled: i64 = slices.iter().map(|(_, settled)| settled).sum();
    let sums = [
        number(core, ledger).await,
        number(core, hours).await,
        spent + settled,
    ];
    (number(core, "SELECT COUNT(*) FROM calls").await, sums)
}

/// Asks for many calls at once; each that is let in costs one. Returns how many were.
async fn rush(node: &Arc<Node>, who: Who, budget: &Budget, calls: usize) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let (node, budget) = (Arc::clone(node), budget.clone());
        tasks.spawn(async move {
            match node.admit(&who, Some(&budget)).await {
                Ok((id, ticket)) => {
                    node.close(&who, id, ticket, whole(1));
                    true
                }
                Err(Refused::Budget { of_workspace, .. }) => {
                    assert!(!of_workspace);
                    false
                }
                Err(Refused::Unavailable) => panic!("the ledger is there"),
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

async fn five_hundred_at_once_never_spend_more_than_the_budget(at: &Installation) {
    let (who, budget) = (Who::new(), total(100));
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
    let (who, budget) = (Who::new(), total(60));
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
    sleep(Duration::from_millis(700)).await;
    let rest = rush(&nodes[0], who, &budget, 100).await;
    assert_eq!(a + b + rest, 60);
    for node in nodes {
        Arc::into_inner(node).unwrap().stop().await;
    }
    assert_eq!(books(&at.core, &who).await.1, [whole(60).nanos(); 3]);
}

async fn what_a_dead_server_left_is_settled_from_the_ledger(at: &Installation) {
    let (who, budget) = (Who::new(), total(50));
    let node = Node::start(at, |_| {}).await;
    let mut tickets = Vec::new();
    for _ in 0..20 {
        tickets.push(node.admit(&who, Some(&budget)).await.unwrap());
    }
    let quarter = Amount::from_nanos(250_000_000);
    for (id, ticket) in tickets.drain(..5) {
        node.close(&who, id, ticket, quarter);
    }
    node.ledger.flush().await;
    node.die().await;
    let heir = Node::start(at, |_| {}).await;
    // Until the deadline all that the dead one had leased counts as spent.
    let mut before = 0;
    while let Ok((id, ticket)) = heir.admit(&who, Some(&budget)).await {
        heir.close(&who, id, ticket, whole(1));
        before += 1;
    }
    assert!(before <= 30, "{before}");
    let settled = async {
        while number(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), settled).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    // 15 calls may have reached the provider: they cost what was set aside. Five cost a quarter.
    let mut after = 0;
    while let Ok((id, ticket)) = heir.admit(&who, Some(&budget)).await {
        heir.close(&who, id, ticket, whole(1));
        after += 1;
    }
    assert_eq!(before + after, 50 - 15 - 2, "{before} + {after}");
    heir.stop().await;
    let sum = whole(33 + 15 + 1).nanos() + quarter.nanos();
    assert_eq!(books(&at.core, &who).await.1, [sum; 3]);
}

async fn a_server_that_was_taken_for_dead_goes_on(at: &Installation) {
    let (who, budget) = (Who::new(), total(10));
    let node = Node::start(at, |usage| usage.idle = Duration::from_mins(1)).await;
    let (held, ticket) = node.admit(&who, Some(&budget)).await.unwrap();
    bury_all(&at.core).await;
    assert_eq!(books(&at.core, &who).await, (1, [whole(1).nanos(); 3]));
    let (id, second) = node.admit(&who, Some(&budget)).await.unwrap();
    node.close(&who, id, second, whole(1));
    // It was settled at what it might have cost. Its end corrects that, once.
    let quarter = Amount::from_nanos(250_000_000);
    for _ in 0..2 {
        let late = Ticket {
            recorded: true,
            ..ticket
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

/// Settles every server, as another one does that takes them for dead.
async fn bury_all(core: &Core) {
    let now = core.now().after(Duration::from_hours(1));
    while number(core, "SELECT COUNT(*) FROM ledger_nodes").await > 0 {
        for node in list_nodes(&core.db).await.unwrap() {
            let settled = core
                .db
                .transact(move |tx| Box::pin(async move { settle_node(tx, node, now, 5).await }));
            let _: bool = Result::<_, StoreError>::unwrap(settled.await);
        }
    }
}

/// Nobody could renew while the database was away, so nobody is dead because of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_makes_nobody_dead() {
    let at = Installation::on_postgres().await;
    let (who, budget) = (Who::new(), total(10));
    let node = Node::start(&at, |usage| usage.idle = Duration::from_mins(1)).await;
    let other = Node::start(&at, |_| {}).await;
    let (held, ticket) = node.admit(&who, Some(&budget)).await.unwrap();
    at.database().set_read_only(true).await;
    sleep(Duration::from_millis(1500)).await;
    at.database().set_read_only(false).await;
    sleep(Duration::from_secs(2)).await;
    let open = "SELECT COUNT(*) FROM calls WHERE open";
    assert_eq!(number(&at.core, open).await, 1);
    let quarter = Amount::from_nanos(250_000_000);
    node.close(&who, held, ticket, quarter);
    node.stop().await;
    other.stop().await;
    assert_eq!(books(&at.core, &who).await, (1, [quarter.nanos(); 3]));
    at.remove().await;
}

async fn a_changed_budget_counts_for_the_next_call(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |_| {}).await;
    for _ in 0..3 {
        let (id, ticket) = node.admit(&who, Some(&total(80))).await.unwrap();
        node.close(&who, id, ticket, whole(1));
    }
    // The slice has room for more, but the budget has not.
    let refused = node.admit(&who, Some(&total(3))).await.unwrap_err();
    assert_eq!(
        refused,
        Refused::Budget {
            of_workspace: false,
            budget: total(3),
            resets_at: None
        }
    );
    let (id, ticket) = node.admit(&who, Some(&total(4))).await.unwrap();
    node.close(&who, id, ticket, whole(1));
    node.admit(&who, Some(&total(4))).await.unwrap_err();
    assert_eq!(node.admit(&who, None).await.unwrap().1, Ticket::NONE);
    node.stop().await;
}

async fn who_stops_waiting_gives_back_what_was_set_aside(at: &Installation) {
    let (who, budget) = (Who::new(), total(5));
    let node = Node::start(at, |_| {}).await;
    for wait in 0..40_u64 {
        let admitted = node.admit(&who, Some(&budget));
        if let Ok(Ok((id, ticket))) = timeout(Duration::from_micros(wait * 100), admitted).await {
            node.close(&who, id, ticket, Amount::ZERO);
        }
    }
    node.ledger.flush().await;
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.push(node.admit(&who, Some(&budget)).await.unwrap());
    }
    node.admit(&who, Some(&budget)).await.unwrap_err();
    for (id, ticket) in tickets {
        node.close(&who, id, ticket, whole(1));
    }
    node.stop().await;
    assert_eq!(books(&at.core, &who).await.1, [whole(5).nanos(); 3]);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await,
        0
    );
}

async fn a_batch_that_is_written_twice_counts_once(at: &Installation) {
    let who = Who::new();
    let row = |_| CallRow {
        call: call(&who, id(), at.core.now(), "model", whole(1)),
        slices: Slices::default(),
        recorded: false,
    };
    let rows: Arc<Vec<_>> = Arc::new((0..50).map(row).collect());
    for fresh in [true, false] {
        let rows = Arc::clone(&rows);
        let written = at.core.db.transact(move |tx| {
            let rows = Arc::clone(&rows);
            Box::pin(async move { write_calls(tx, id(), &[], &rows).await })
        });
        let written: Result<_, StoreError> = written.await;
        assert_eq!(written.unwrap().closed, [fresh; 50]);
    }
    let (calls, [ledger, hours, _]) = books(&at.core, &who).await;
    assert_eq!(
        (calls, ledger, hours),
        (50, whole(50).nanos(), whole(50).nanos())
    );
}

async fn a_row_that_cannot_be_written_costs_no_other(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |_| {}).await;
    for number in 0..9 {
        let mut call = call(&who, id(), at.core.now(), "mo\0del", whole(1));
        if number == 4 {
            call.latency_us = u64::MAX;
            call.provider = "\0".into();
        }
        drop(node.ledger.close(Ticket::NONE, call));
    }
    node.stop().await;
    let written = number(
        &at.core,
        "SELECT COUNT(*) FROM calls WHERE model = 'model' AND provider = 'local'",
    );
    assert_eq!(written.await, 8);
}

async fn no_sum_is_too_large(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |_| {}).await;
    let row = |sql| {
        at.core
            .db
            .transact(move |tx| Box::pin(tx.query(sql).execute()))
    };
    node.close(&who, id(), Ticket::NONE, whole(1));
    node.ledger.flush().await;
    let nearly = "UPDATE usage_hours SET cost_nanos = 9223372036854775800";
    let changed: Result<u64, StoreError> = row(nearly).await;
    assert_eq!(changed.unwrap(), 1);
    node.close(&who, id(), Ticket::NONE, whole(1));
    node.stop().await;
    let (calls, [_, hours, _]) = books(&at.core, &who).await;
    assert_eq!((calls, hours), (2, i64::MAX));
}

/// As after a failover to a server that still follows another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_costs_no_call() {
    let at = Installation::on_postgres().await;
    let (who, budget) = (Who::new(), total(10));
    let node = Node::start(&at, |_| {}).await;
    let (paid, ticket) = node.admit(&who, Some(&budget)).await.unwrap();
    at.database().set_read_only(true).await;
    node.close(&who, paid, ticket, whole(1));
    node.close(&who, id(), Ticket::NONE, whole(1));
    sleep(Duration::from_millis(500)).await;
    at.database().set_read_only(false).await;
    let written = timeout(Duration::from_secs(10), node.ledger.flush());
    written.await.unwrap();
    node.stop().await;
    let (calls, [ledger, hours, spent]) = books(&at.core, &who).await;
    assert_eq!(
        (calls, ledger, hours, spent),
        (2, whole(2).nanos(), whole(2).nanos(), whole(1).nanos())
    );
    at.remove().await;
}

async fn in_strict_mode_a_call_is_on_disk_before_its_end(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |usage| usage.strict = true).await;
    let (id, ticket) = node.admit(&who, None).await.unwrap();
    assert!(ticket.recorded);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE open").await,
        1
    );
    let call = call(&who, id, at.core.now(), "model", whole(1));
    node.ledger.close(ticket, call).unwrap().await;
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM calls WHERE NOT open").await,
        1
    );
    // What is open when the server dies is closed by another.
    node.admit(&who, None).await.unwrap();
    node.die().await;
    let heir = Node::start(at, |_| {}).await;
    let settled = async {
        while number(&at.core, "SELECT COUNT(*) FROM ledger_nodes").await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), settled).await.unwrap();
    heir.stop().await;
    assert_eq!(
        number(
            &at.core,
            "SELECT COUNT(*) FROM calls WHERE status = 500 AND partial"
        )
        .await,
        1
    );
}

async fn workspace(at: &Installation, name: &str) -> (Scope, WorkspaceId) {
    let scope = scope_of(&at.core, at.person(name).await, None)
        .await
        .unwrap();
    let name = "main".parse().unwrap();
    let made = workspaces::create_workspace(&at.core, &scope, name).await;
    (scope, made.unwrap().id)
}

async fn activity_and_logs_show_what_was_used(at: &Installation) {
    let (scope, workspace_id) = workspace(at, "ada").await;
    let (other, _) = workspace(at, "bob").await;
    let node = Node::start(at, |_| {}).await;
    let now = at.core.now();
    let keys: [KeyId; 2] = [id(), id()];
    let mut ids = Vec::new();
    for number in 0..12_i64 {
        let back = Duration::from_hours(if number < 6 { 0 } else { 24 * 40 });
        let created = now.before(back);
        let who = Who {
            workspace: workspace_id,
            key: keys[usize::from(number % 2 == 1)],
        };
        let model = if number % 3 == 0 { "a" } else { "b" };
        let id = id_at(created);
        let mut call = call(&who, id, created, model, whole(1));
        call.status = if number == 5 { 502 } else { 200 };
        drop(node.ledger.close(Ticket::NONE, call));
        ids.push(id);
    }
    let ledger = &node.ledger;
    let shown = activity(ledger, &scope, workspace_id, Span::Hour, None)
        .await
        .unwrap();
    let sums: Vec<_> = shown.iter().flat_map(|hour| &hour.data).collect();
    assert_eq!(shown.len(), 1);
    let numbers = |index: usize| {
        let sum = sums[index];
        (
            sum.model.as_str(),
            sum.request_count,
            sum.total_tokens,
            sum.total_cost,
        )
    };
    assert_eq!(numbers(0), ("a", 2, 30, whole(2)));
    assert_eq!(numbers(1), ("b", 4, 60, whole(4)));
    let of_key = activity(ledger, &scope, workspace_id, Span::Week, Some(keys[0]))
        .await
        .unwrap();
    let requests = of_key
        .iter()
        .flat_map(|week| &week.data)
        .map(|sum| sum.request_count);
    assert_eq!(requests.sum::<u64>(), 6);
    let list = async |filter: CallFilter, count, skip| {
        list_calls(ledger, &scope, workspace_id, &filter, count, skip)
            .await
            .unwrap()
    };
    let page = list(CallFilter::default(), 5, 5).await;
    assert_eq!((page.logs.len(), page.count), (5, 12));
    assert!(page.logs.windows(2).all(|pair| pair[0].id > pair[1].id));
    let filter = CallFilter {
        from: Some(now),
        key: Some(keys[1]),
        model: Some("b".into()),
        ..CallFilter::default()
    };
    assert_eq!(list(filter, 100, 0).await.count, 2);
    let filter = CallFilter {
        to: Some(now.before(Duration::from_hours(1))),
        ..CallFilter::default()
    };
    assert_eq!(list(filter, 100, 0).await.count, 6);
    let filter = CallFilter {
        status: Some(502),
        ..CallFilter::default()
    };
    let failed = list(filter, 100, 0).await;
    assert_eq!(failed.logs.len(), 1);
    let read = read_call(ledger, &scope, workspace_id, ids[5])
        .await
        .unwrap();
    assert_eq!(failed.logs[0], read);
    assert_eq!(
        (read.latency_ms, read.url, read.key),
        (2, "chat/completions", keys[1])
    );
    // Others see nothing of it.
    read_call(ledger, &other, workspace_id, ids[5])
        .await
        .unwrap_err();
    list_calls(ledger, &other, workspace_id, &CallFilter::default(), 9, 0)
        .await
        .unwrap_err();
    activity(ledger, &other, workspace_id, Span::Day, None)
        .await
        .unwrap_err();
    node.stop().await;
}

async fn a_search_ends_when_it_has_looked_at_enough(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let who = Who {
        workspace,
        key: id(),
    };
    for model in ["old", "new", "new", "new"] {
        let call = call(&who, id(), at.core.now(), model, whole(1));
        drop(node.ledger.close(Ticket::NONE, call));
    }
    node.stop().await;
    let filter = CallFilter {
        model: Some("old".into()),
        ..CallFilter::default()
    };
    for (within, found) in [(1, 0), (3, 0), (4, 1), (9, 1)] {
        let page = CallPage {
            count: 100,
            skip: 0,
            within,
        };
        let page = calls::list_calls(&at.core.db, scope.owner, workspace, &filter, page);
        let (logs, count) = page.await.unwrap();
        assert_eq!((logs.len(), count), (found, found as u64), "{within}");
    }
}

async fn old_calls_go_and_their_sums_stay(at: &Installation) {
    let (scope, workspace_id) = workspace(at, "ada").await;
    let node = Node::start(at, |usage| usage.keep_calls = 30).await;
    let now = node.core.now().start_of_day();
    let key = id();
    // Twenty calls each: today, 29 days ago, 31 days ago, 100 days ago at two hours.
    for hours in [0_u64, 29 * 24, 31 * 24, 100 * 24, 100 * 24 + 1] {
        for _ in 0..20 {
            let who = Who {
                workspace: workspace_id,
                key,
            };
            let created = now.before(Duration::from_hours(hours));
            let id = id_at(created);
            drop(
                node.ledger
                    .close(Ticket::NONE, call(&who, id, created, "model", whole(1))),
            );
        }
    }
    node.ledger.flush().await;
    retention::prune(&node.core, &CancellationToken::new())
        .await
        .unwrap();
    let left = number(&at.core, "SELECT COUNT(*) FROM calls").await;
    assert!((20..=30).contains(&left), "{left}");
    assert_eq!(number(&at.core, "SELECT COUNT(*) FROM usage_days").await, 2);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM usage_hours").await,
        3
    );
    let shown = activity(&node.ledger, &scope, workspace_id, Span::Month, None)
        .await
        .unwrap();
    let requests = shown
        .iter()
        .flat_map(|month| &month.data)
        .map(|sum| sum.request_count);
    assert_eq!(requests.sum::<u64>(), 100);
    // Again, and nothing is counted twice.
    retention::prune(&node.core, &CancellationToken::new())
        .await
        .unwrap();
    let again = activity(&node.ledger, &scope, workspace_id, Span::Month, None)
        .await
        .unwrap();
    assert_eq!(again, shown);
    node.stop().await;
}

async fn no_workspace_pushes_out_the_calls_of_another(at: &Installation) {
    let node = Node::start(at, |usage| usage.keep_calls = 30).await;
    let now = node.core.now().start_of_day();
    let (busy, quiet) = (Who::new(), Who::new());
    let calls = |who: Who, hours: u64, count: usize| {
        let created = now.before(Duration::from_hours(hours));
        for _ in 0..count {
            let call = call(&who, id_at(created), created, "model", whole(1));
            drop(node.ledger.close(Ticket::NONE, call));
        }
    };
    calls(quiet, 10, 5);
    (0..5).for_each(|hours| calls(busy, hours, 10));
    node.ledger.flush().await;
    retention::prune(&node.core, &CancellationToken::new())
        .await
        .unwrap();
    let left = async |who: &Who| -> i64 {
        let sql = "SELECT COUNT(*) FROM calls WHERE workspace_id = $1";
        let query = at.core.db.read(sql).bind(who.workspace);
        query.fetch_one().await.unwrap()
    };
    assert_eq!((left(&quiet).await, left(&busy).await), (5, 20));
    node.stop().await;
}

async fn calls_wait_for_a_ledger_that_is_full(at: &Installation) {
    let who = Who::new();
    let node = Node::start(at, |usage| {
        usage.queue = 3;
        usage.batch = Duration::from_hours(1);
    })
    .await;
    for _ in 0..3 {
        let (id, ticket) = node.admit(&who, None).await.unwrap();
        node.close(&who, id, ticket, whole(1));
    }
    assert_eq!(node.admit(&who, None).await, Err(Refused::Unavailable));
    // Refusals come without end, and none of them costs anything.
    for _ in 0..5 {
        node.close(&who, id(), Ticket::NONE, Amount::ZERO);
    }
    assert_eq!((node.ledger.unwritten(), node.ledger.unrecorded()), (3, 5));
    node.close(&who, id(), Ticket::NONE, whole(1));
    assert_eq!(node.ledger.unwritten(), 4);
    node.ledger.flush().await;
    node.admit(&who, None).await.unwrap();
    node.close(&who, id(), Ticket::NONE, Amount::ZERO);
    node.stop().await;
    assert_eq!(number(&at.core, "SELECT COUNT(*) FROM calls").await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_database_that_says_nothing() {
    let at = Installation::on_postgres().await;
    let (who, budget) = (Who::new(), total(10));
    let node = Node::start(&at, |usage| usage.strict = true).await;
    let silence = "DO $$ BEGIN LOCK TABLE ledger_nodes; PERFORM pg_sleep(8); END $$";
    let asks = async {
        sleep(Duration::from_millis(300)).await;
        let refused = timeout(Duration::from_secs(7), node.admit(&who, Some(&budget))).await;
        assert_eq!(refused.unwrap().unwrap_err(), Refused::Unavailable);
        // Refusals do not even wait in strict mode.
        let refused = call(&who, id(), at.core.now(), "model", Amount::ZERO);
        assert!(node.ledger.close(Ticket::NONE, refused).is_none());
    };
    tokio::join!(at.database().query(silence), asks);
    let (id, ticket) = node.admit(&who, Some(&budget)).await.unwrap();
    node.close(&who, id, ticket, whole(1));
    node.stop().await;
    assert_eq!(books(&at.core, &who).await.1, [whole(1).nanos(); 3]);
    at.remove().await;
}
