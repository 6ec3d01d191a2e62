//! What people read of the ledger, and for how long.

use crate::node::{CallSource, Node, call, id, id_at, kept, number, whole, workspace};
use crate::support::{Installation, on_both_backends};
use estrade_ledger::retention;
use estrade_model::call::{BudgetReservation, CallId, RowState, Span};
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_service::Scope;
use estrade_service::ai::usage::{activity, ledger_context, list_calls, read_call};
use estrade_store::StoreError;
use estrade_store::calls::{self, CallFilter, CallPage};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    activity_and_logs_show_what_was_used
    a_search_ends_when_it_has_looked_at_enough
    what_is_behind_a_full_page_is_counted_by_the_filter
    a_search_for_failed_calls_looks_at_no_others
    old_calls_go_and_their_sums_stay
    sums_that_fit_no_more_are_still_shown_and_kept
    no_workspace_pushes_out_the_calls_of_another
    calls_are_found_wherever_they_are_kept
}

async fn activity_and_logs_show_what_was_used(at: &Installation) {
    let (scope, workspace_id) = workspace(at, "ada").await;
    let (other, _) = workspace(at, "bob").await;
    let node = Node::start(at, |_| {}).await;
    let now = at.core.now();
    let keys: [KeyId; 2] = [id(), id()];
    let ids = close_twelve_calls(&node, workspace_id, keys, now);
    let ledger = &node.ledger;
    let shown = activity(&node.core, ledger, &scope, workspace_id, Span::Hour, None)
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
    let of_key = activity(
        &node.core,
        ledger,
        &scope,
        workspace_id,
        Span::Week,
        Some(keys[0]),
    )
    .await
    .unwrap();
    let requests = of_key
        .iter()
        .flat_map(|week| &week.data)
        .map(|sum| sum.request_count);
    assert_eq!(requests.sum::<u64>(), 6);
    let list = async |filter: CallFilter, count, skip| {
        list_calls(
            &node.core,
            ledger,
            &scope,
            workspace_id,
            &filter,
            count,
            skip,
        )
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
    let read = read_call(&node.core, ledger, &scope, workspace_id, ids[5])
        .await
        .unwrap();
    assert_eq!(failed.logs[0], read);
    assert_eq!(
        (read.latency_ms, read.url, read.key),
        (2, "chat/completions", keys[1])
    );
    // Others see nothing of it.
    read_call(&node.core, ledger, &other, workspace_id, ids[5])
        .await
        .unwrap_err();
    list_calls(
        &node.core,
        ledger,
        &other,
        workspace_id,
        &CallFilter::default(),
        9,
        0,
    )
    .await
    .unwrap_err();
    activity(&node.core, ledger, &other, workspace_id, Span::Day, None)
        .await
        .unwrap_err();
    node.stop().await;
}

/// Six calls of this hour and six of forty days ago, in turn by one of two keys; the sixth failed.
fn close_twelve_calls(
    node: &Node,
    workspace: WorkspaceId,
    keys: [KeyId; 2],
    now: Timestamp,
) -> Vec<CallId> {
    let mut ids = Vec::new();
    for number in 0..12_i64 {
        let back = Duration::from_hours(if number < 6 { 0 } else { 24 * 40 });
        let created = now.before(back);
        let who = CallSource {
            workspace,
            key: keys[usize::from(number % 2 == 1)],
        };
        let model = if number % 3 == 0 { "a" } else { "b" };
        let id = id_at(created);
        let mut call = call(&who, id, created, model, whole(1));
        call.status = if number == 5 { 502 } else { 200 };
        drop(node.ledger.close(BudgetReservation::NONE, call));
        ids.push(id);
    }
    ids
}

async fn a_search_ends_when_it_has_looked_at_enough(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let who = CallSource {
        workspace,
        key: id(),
    };
    for model in ["old", "new", "new", "new"] {
        let call = call(&who, id(), at.core.now(), model, whole(1));
        drop(node.ledger.close(BudgetReservation::NONE, call));
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
        let page = calls::list_calls(
            &at.core.db,
            scope.caller.account.cast(),
            workspace,
            &filter,
            page,
        );
        let page = page.await.unwrap();
        let (count, is_partial) = (page.matching, page.stopped_at.is_some());
        assert_eq!((page.calls.len(), count), (found, found as u64), "{within}");
        assert_eq!(is_partial, within < 4, "{within}");
        assert_eq!(page.next, page.stopped_at.map(|(id, _)| id), "{within}");
    }
}

/// Of calls that no page has room for, only what the filter looks at is read.
async fn what_is_behind_a_full_page_is_counted_by_the_filter(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let keys: [KeyId; 2] = [id(), id()];
    let now = at.core.now();
    for number in 0..600_u64 {
        let created = now.before(Duration::from_secs(900 - number));
        let who = CallSource {
            workspace,
            key: keys[usize::from(number % 3 == 0)],
        };
        let model = if number % 4 == 0 { "small" } else { "large" };
        let mut call = call(&who, id_at(created), created, model, whole(1));
        call.status = if number % 5 == 0 { 404 } else { 200 };
        // Most are rows, some are in blocks.
        let row_state = match number % 8 {
            7 => RowState::Absent,
            _ => RowState::Open,
        };
        let reservation = BudgetReservation {
            row_state,
            ..BudgetReservation::NONE
        };
        drop(node.ledger.close(reservation, call));
    }
    node.stop().await;
    let search = async |change: fn(&mut CallFilter, [KeyId; 2])| {
        let mut filter = CallFilter::default();
        change(&mut filter, keys);
        let page = CallPage {
            count: 1,
            skip: 0,
            within: 1_000,
        };
        let (db, owner) = (&at.core.db, scope.caller.account.cast());
        let found = calls::list_calls(db, owner, workspace, &filter, page).await;
        let found = found.unwrap();
        assert_eq!(found.calls.len(), 1);
        found.matching
    };
    assert_eq!(search(|_, _| {}).await, 600);
    assert_eq!(search(|filter, keys| filter.key = Some(keys[1])).await, 200);
    let by_model = search(|filter, _| filter.model = Some("small".into()));
    assert_eq!(by_model.await, 150);
    assert_eq!(search(|filter, _| filter.status = Some(404)).await, 120);
    assert_eq!(search(|filter, _| filter.status = Some(200)).await, 480);
    let by_all = search(|filter, keys| {
        filter.key = Some(keys[1]);
        filter.model = Some("small".into());
        filter.status = Some(404);
    });
    assert_eq!(by_all.await, 10);
}

/// Failed calls from behind a hundred others are found within as many calls as there are, in rows and in blocks.
async fn a_search_for_failed_calls_looks_at_no_others(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let who = CallSource {
        workspace,
        key: id(),
    };
    let now = at.core.now();
    let mut failed = Vec::new();
    for number in 0..100_u64 {
        let created = now.before(Duration::from_secs(200 - number));
        let mut call = call(&who, id_at(created), created, "model", whole(1));
        call.status = match number {
            2 | 3 | 60 | 61 => 500,
            4 | 5 => 404,
            _ => 200,
        };
        if call.status == 500 {
            failed.push(call.id);
        }
        let row_state = match number % 2 {
            0 => RowState::Open,
            _ => RowState::Absent,
        };
        let reservation = BudgetReservation {
            row_state,
            ..BudgetReservation::NONE
        };
        drop(node.ledger.close(reservation, call));
    }
    node.stop().await;
    failed.reverse();
    let search = async |from: Option<Timestamp>, count| {
        let filter = CallFilter {
            from,
            status: Some(500),
            ..CallFilter::default()
        };
        let page = CallPage {
            count,
            skip: 0,
            within: 6,
        };
        let owner = scope.caller.account.cast();
        let page = calls::list_calls(&at.core.db, owner, workspace, &filter, page).await;
        let page = page.unwrap();
        let found: Vec<_> = page.calls.iter().map(|call| call.id).collect();
        (found, page.matching, page.stopped_at.is_some())
    };
    assert_eq!(search(None, 100).await, (failed.clone(), 4, false));
    assert_eq!(search(None, 2).await, (failed[..2].to_vec(), 4, false));
    let late = Some(now.before(Duration::from_secs(150)));
    assert_eq!(search(late, 100).await, (failed[..2].to_vec(), 2, false));
}

async fn old_calls_go_and_their_sums_stay(at: &Installation) {
    let (scope, workspace_id) = workspace(at, "ada").await;
    let node = Node::start(at, |usage| usage.keep_calls = 30).await;
    let now = node.core.now().start_of_day();
    let key = id();
    // Twenty calls each: today, 29 days ago, 31 days ago, 100 days ago at two hours.
    for hours in [0_u64, 29 * 24, 31 * 24, 100 * 24, 100 * 24 + 1] {
        for _ in 0..20 {
            let who = CallSource {
                workspace: workspace_id,
                key,
            };
            let created = now.before(Duration::from_hours(hours));
            let id = id_at(created);
            drop(node.ledger.close(
                BudgetReservation::NONE,
                call(&who, id, created, "model", whole(1)),
            ));
        }
    }
    node.ledger.flush().await;
    retention::prune(&ledger_context(&node.core), &CancellationToken::new())
        .await
        .unwrap();
    let left = kept(&at.core).await;
    assert!((20..=30).contains(&left), "{left}");
    assert_eq!(number(&at.core, "SELECT COUNT(*) FROM usage_days").await, 2);
    assert_eq!(
        number(&at.core, "SELECT COUNT(*) FROM usage_hours").await,
        3
    );
    let shown = activity(
        &node.core,
        &node.ledger,
        &scope,
        workspace_id,
        Span::Month,
        None,
    )
    .await
    .unwrap();
    let requests = shown
        .iter()
        .flat_map(|month| &month.data)
        .map(|sum| sum.request_count);
    assert_eq!(requests.sum::<u64>(), 100);
    // Again, and nothing is counted twice.
    retention::prune(&ledger_context(&node.core), &CancellationToken::new())
        .await
        .unwrap();
    let again = activity(
        &node.core,
        &node.ledger,
        &scope,
        workspace_id,
        Span::Month,
        None,
    )
    .await
    .unwrap();
    assert_eq!(again, shown);
    node.stop().await;
}

async fn sums_that_fit_no_more_are_still_shown_and_kept(at: &Installation) {
    let (scope, workspace_id) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let now = node.core.now().start_of_day();
    let keys: [KeyId; 2] = [id(), id()];
    for (key, hours) in [0, 1, 2400, 2401].map(|it| (keys[it % 2], it as u64)) {
        let created = now.before(Duration::from_hours(hours));
        for key in [key, keys[0]] {
            let who = CallSource {
                workspace: workspace_id,
                key,
            };
            let call = call(&who, id_at(created), created, "model", whole(1));
            drop(node.ledger.close(BudgetReservation::NONE, call));
        }
    }
    node.ledger.flush().await;
    let largest = at.core.db.transact(|tx| {
        Box::pin(async move {
            tx.query("UPDATE usage_hours SET cost_nanos = 9223372036854775807")
                .execute()
                .await?;
            tx.query("UPDATE usage_models SET cost_nanos = 9223372036854775807")
                .execute()
                .await
        })
    });
    let largest: Result<u64, StoreError> = largest.await;
    assert!(largest.unwrap() > 4);
    for _ in 0..2 {
        let shown = activity(
            &node.core,
            &node.ledger,
            &scope,
            workspace_id,
            Span::Month,
            None,
        )
        .await;
        let shown = shown.unwrap();
        let sums: Vec<_> = shown.iter().flat_map(|month| &month.data).collect();
        assert!(sums.len() >= 2);
        for sum in sums {
            assert_eq!(sum.total_cost.nanos(), i64::MAX);
        }
        retention::prune(&ledger_context(&node.core), &CancellationToken::new())
            .await
            .unwrap();
    }
    assert!(number(&at.core, "SELECT COUNT(*) FROM usage_days").await > 0);
    // What fits is exact, in billionths.
    let exact = at.core.db.transact(|tx| {
        Box::pin(async move {
            tx.query("UPDATE usage_hours SET cost_nanos = 1999999999")
                .execute()
                .await
        })
    });
    let exact: Result<u64, StoreError> = exact.await;
    let rows = i64::try_from(exact.unwrap()).unwrap();
    let mut sum = 0;
    for key in keys {
        let shown = activity(
            &node.core,
            &node.ledger,
            &scope,
            workspace_id,
            Span::Day,
            Some(key),
        );
        let shown = shown.await.unwrap();
        let of_days = shown.iter().flat_map(|day| &day.data);
        sum += of_days.map(|sum| sum.total_cost.nanos()).sum::<i64>();
    }
    assert_eq!(sum, rows * 1_999_999_999);
    node.stop().await;
}

async fn no_workspace_pushes_out_the_calls_of_another(at: &Installation) {
    let node = Node::start(at, |usage| usage.keep_calls = 30).await;
    let now = node.core.now().start_of_day();
    let (busy, quiet) = (CallSource::new(), CallSource::new());
    let calls = |who: CallSource, hours: u64, count: usize| {
        let created = now.before(Duration::from_hours(hours));
        for _ in 0..count {
            let call = call(&who, id_at(created), created, "model", whole(1));
            drop(node.ledger.close(BudgetReservation::NONE, call));
        }
    };
    calls(quiet, 10, 5);
    (0..5).for_each(|hours| calls(busy, hours, 10));
    node.ledger.flush().await;
    retention::prune(&ledger_context(&node.core), &CancellationToken::new())
        .await
        .unwrap();
    let left = async |who: &CallSource| -> i64 {
        let sql = "SELECT CAST(SUM(calls) AS BIGINT) FROM call_blocks WHERE workspace_id = $1";
        let query = at.core.db.read(sql).bind(who.workspace);
        query.fetch_one().await.unwrap()
    };
    assert_eq!((left(&quiet).await, left(&busy).await), (5, 20));
    node.stop().await;
}

/// Some calls have rows, most are in blocks that overlap: to a reader they are one list.
async fn calls_are_found_wherever_they_are_kept(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let node = Node::start(at, |_| {}).await;
    let who = CallSource {
        workspace,
        key: id(),
    };
    let now = at.core.now();
    let mut made = Vec::new();
    for round in 0..40_u64 {
        for number in 0..60_u64 {
            // Within a round they began up to three minutes ago.
            let back = (number * 7919 + round * 31) % 180_000;
            let created = now.before(Duration::from_millis(back));
            let mut call = call(&who, id_at(created), created, "model", whole(1));
            call.attempts = u32::try_from(made.len()).unwrap();
            let recorded = number % 20 == 0;
            if call.attempts % 401 == 7 {
                call.status = 404;
            }
            made.push((call.id, call.attempts));
            let ticket = BudgetReservation {
                row_state: if recorded {
                    RowState::Open
                } else {
                    RowState::Absent
                },
                ..BudgetReservation::NONE
            };
            drop(node.ledger.close(ticket, call));
        }
        node.ledger.flush().await;
    }
    let blocks = number(&at.core, "SELECT COUNT(*) FROM call_blocks").await;
    let rows = number(&at.core, "SELECT COUNT(*) FROM calls").await;
    assert!(
        (120..400).contains(&blocks) && rows == 120,
        "{blocks}, {rows}"
    );
    made.sort_unstable();
    made.reverse();
    let all = CallFilter::default();
    let mut listed = Vec::new();
    for page in 0..25 {
        let page = list_calls(
            &node.core,
            &node.ledger,
            &scope,
            workspace,
            &all,
            100,
            page * 100,
        )
        .await;
        let page = page.unwrap();
        assert_eq!(page.count, 2400);
        listed.extend(page.logs.into_iter().map(|call| (call.id, call.attempts)));
    }
    assert_eq!(listed, made);
    assert_eq!(follow_pages(at, &scope, workspace, None).await, made);
    let rare = Some(404);
    let found: Vec<_> = made
        .iter()
        .filter(|(_, attempts)| attempts % 401 == 7)
        .copied()
        .collect();
    assert_eq!(follow_pages(at, &scope, workspace, rare).await, found);
    for (id, attempts) in made.iter().step_by(37) {
        let read = read_call(&node.core, &node.ledger, &scope, workspace, *id)
            .await
            .unwrap();
        assert_eq!(read.attempts, *attempts);
    }
    let unknown = read_call(&node.core, &node.ledger, &scope, workspace, id_at(now)).await;
    unknown.unwrap_err();
    let (from, to) = (150_000, 30_000);
    let middle = CallFilter {
        from: Some(now.before(Duration::from_millis(from))),
        to: Some(now.before(Duration::from_millis(to))),
        ..CallFilter::default()
    };
    let page = list_calls(&node.core, &node.ledger, &scope, workspace, &middle, 1, 0).await;
    let wanted =
        now.millis() - i64::try_from(from).unwrap()..=now.millis() - i64::try_from(to).unwrap();
    let count = made.iter().filter(|(id, _)| wanted.contains(&id.millis()));
    assert_eq!(page.unwrap().count, count.count() as u64);
    node.stop().await;
}

/// Everything that has a status, found by following `next` with requests that look at few calls each.
async fn follow_pages(
    at: &Installation,
    scope: &Scope,
    workspace: WorkspaceId,
    status: Option<u16>,
) -> Vec<(CallId, u32)> {
    let page = CallPage {
        count: 7,
        skip: 0,
        within: 50,
    };
    let (mut found, mut before) = (Vec::new(), None);
    for _ in 0..2400 {
        let filter = CallFilter {
            status,
            before,
            ..CallFilter::default()
        };
        let page = calls::list_calls(
            &at.core.db,
            scope.caller.account.cast(),
            workspace,
            &filter,
            page,
        );
        let page = page.await.unwrap();
        let is_counted = before.is_none() || page.matching == page.calls.len() as u64;
        assert!(is_counted, "{}", page.matching);
        found.extend(page.calls.into_iter().map(|call| (call.id, call.attempts)));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(before, None);
    found
}
