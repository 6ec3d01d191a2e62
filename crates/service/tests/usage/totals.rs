//! The sums that pages read are those of the rows, whatever has happened to these.

use crate::node::{CallSource, Node, bury_all, call, id, id_at, total, whole, workspace};
use crate::support::{Installation, on_both_backends};
use estrade_ledger::retention;
use estrade_model::call::{BudgetReservation, Span};
use estrade_model::{KeyId, OwnerId, Timestamp};
use estrade_service::ai::usage::{UsageFilter, UsageSum, ledger_context};
use estrade_service::{Core, Settings};
use estrade_store::{Record, Row, StoreError, Tx, usage};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    totals_follow_concurrent_writers
    totals_follow_a_call_that_is_closed_again
    totals_follow_retention
    existing_rows_are_summed_up_by_the_migration
    the_dearest_keys_come_first
}

/// Workspace, span, its beginning, and a key or model.
type SumKey = (String, String, i64, String);
type Sums = BTreeMap<SumKey, [i64; 4]>;

struct Total(SumKey, [i64; 4]);

impl Record for Total {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let place = (row.take()?, row.take()?, row.take()?, row.take()?);
        let sums = [row.take()?, row.take()?, row.take()?, row.take()?];
        Ok(Self(place, sums))
    }
}

/// A row of hours or days: workspace, `hour` or `day`, its beginning, key, model, sums.
struct Source {
    workspace: String,
    table: String,
    at: Timestamp,
    key: String,
    model: String,
    sums: [i64; 4],
}

impl Record for Source {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: row.take()?,
            table: row.take()?,
            at: row.take()?,
            key: row.take()?,
            model: row.take()?,
            sums: [row.take()?, row.take()?, row.take()?, row.take()?],
        })
    }
}

const SOURCES: &str = "
    SELECT workspace_id, 'hour', at, key_id, model, requests, prompt_tokens, completion_tokens, cost_nanos
    FROM usage_hours
    UNION ALL
    SELECT workspace_id, 'day', at, key_id, model, requests, prompt_tokens, completion_tokens, cost_nanos
    FROM usage_days";
const MODELS: &str = "
    SELECT workspace_id, span, at, model, requests, prompt_tokens, completion_tokens, cost_nanos FROM usage_models";
const KEYS: &str = "
    SELECT workspace_id, span, at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos FROM usage_keys";

fn add(sums: &mut Sums, source: &Source, span: Span, subject: &str) {
    let at = span.start(source.at).millis();
    let place = (
        source.workspace.clone(),
        span.as_str().to_owned(),
        at,
        subject.to_owned(),
    );
    let sum = sums.entry(place).or_default();
    for (sum, more) in sum.iter_mut().zip(source.sums) {
        *sum = sum.saturating_add(more);
    }
}

async fn all<T: Record>(tx: &mut Tx, sql: &'static str) -> Result<Vec<T>, StoreError> {
    tx.query(sql).fetch_all().await
}

/// Compares the sums with those of the rows, all as of one moment. Returns how many rows there are.
pub(crate) async fn assert_in_step(core: &Core) -> usize {
    let read = core.db.transact(|tx| {
        Box::pin(async move {
            Ok((
                all::<Source>(tx, SOURCES).await?,
                all::<Total>(tx, MODELS).await?,
                all::<Total>(tx, KEYS).await?,
            ))
        })
    });
    let read: Result<_, StoreError> = read.await;
    let (sources, models, keys) = read.unwrap();
    let (mut of_models, mut of_keys) = (Sums::new(), Sums::new());
    for source in &sources {
        add(&mut of_models, source, Span::Day, &source.model);
        add(&mut of_keys, source, Span::Month, &source.key);
        if source.table == "hour" {
            add(&mut of_models, source, Span::Hour, &source.model);
            add(&mut of_keys, source, Span::Day, &source.key);
            add(&mut of_keys, source, Span::Week, &source.key);
        }
    }
    // A week goes with the first of its days that has no hours any more.
    let merged = sources.iter().filter(|source| source.table == "day");
    let merged = merged.map(|source| (source.workspace.clone(), source.at.start_of_week()));
    let merged: Vec<_> = merged.collect();
    let is_compared = |place: &SumKey| {
        let week = (place.0.clone(), Timestamp::from_millis(place.2));
        place.1 != "week" || !merged.contains(&week)
    };
    let map = |totals: Vec<Total>| -> Sums {
        let pairs = totals.into_iter().map(|Total(place, sums)| (place, sums));
        pairs.filter(|(place, _)| is_compared(place)).collect()
    };
    of_keys.retain(|place, _| is_compared(place));
    assert_eq!(map(models), of_models);
    assert_eq!(map(keys), of_keys);
    sources.len()
}

/// Closes a call of each hour that is named, as if it had begun so many hours ago.
fn close_at(node: &Node, who: &CallSource, model: &str, hours: impl IntoIterator<Item = u64>) {
    for hours in hours {
        let created = node.core.now().before(Duration::from_hours(hours));
        let call = call(who, id_at(created), created, model, whole(1));
        drop(node.ledger.close(BudgetReservation::NONE, call));
    }
}

async fn prune(node: &Node) {
    let context = ledger_context(&node.core);
    let pruned = retention::prune(&context, &CancellationToken::new()).await;
    pruned.unwrap();
}

async fn totals_follow_concurrent_writers(at: &Installation) {
    let workspace = CallSource::new().workspace;
    let people: Vec<CallSource> = (0..8)
        .map(|_| CallSource {
            workspace,
            ..CallSource::new()
        })
        .collect();
    let budget = total(1_000);
    let nodes = [
        Node::start(at, |_| {}).await,
        Node::start(at, |_| {}).await,
        Node::start(at, |usage| usage.strict = true).await,
    ];
    let spend = async |node: &Node| {
        for round in 0..5 {
            for who in &people {
                let (id, reservation) = node.admit(who, Some(&budget)).await.unwrap();
                node.close(who, id, reservation, whole(1));
                close_at(node, who, "other", [0, round * 20, 24 * 45]);
            }
            node.ledger.flush().await;
            assert_in_step(&node.core).await;
        }
    };
    tokio::join!(spend(&nodes[0]), spend(&nodes[1]), spend(&nodes[2]));
    for node in nodes {
        node.stop().await;
    }
    assert!(assert_in_step(&at.core).await > 8);
    let calls = "SELECT CAST(SUM(requests) AS BIGINT) FROM usage_models WHERE span = 'day'";
    let calls: i64 = at.core.db.read(calls).fetch_one().await.unwrap();
    assert_eq!(calls, 3 * 5 * 8 * 4, "three servers, five rounds");
}

/// What another server closed at its reservation is taken back when its own server closes it after all.
async fn totals_follow_a_call_that_is_closed_again(at: &Installation) {
    let (who, budget) = (CallSource::new(), total(10));
    let node = Node::start(at, |_| {}).await;
    let (id, reservation) = node.admit(&who, Some(&budget)).await.unwrap();
    bury_all(&at.core).await;
    assert_eq!(assert_in_step(&at.core).await, 1);
    node.close(&who, id, reservation, whole(3));
    node.stop().await;
    assert_in_step(&at.core).await;
    let cost = "SELECT cost_nanos FROM usage_keys WHERE span = 'month' AND requests = 1";
    let cost: i64 = at.core.db.read(cost).fetch_one().await.unwrap();
    assert_eq!(cost, whole(3).nanos());
}

async fn totals_follow_retention(at: &Installation) {
    let (scope, workspace) = workspace(at, "ada").await;
    let owner = scope.caller.account.cast();
    let node = Node::start(at, |usage| usage.keep_calls = 20).await;
    let keys: [CallSource; 3] = std::array::from_fn(|_| CallSource {
        workspace,
        key: id(),
    });
    // Every fifth hour of four months and some of a year ago.
    for (number, who) in keys.iter().enumerate() {
        let model = ["a", "b", "a"][number];
        close_at(&node, who, model, (0..2880).step_by(5 + 7 * number));
        close_at(&node, who, model, [300 * 24, 301 * 24]);
    }
    node.ledger.flush().await;
    let before = assert_in_step(&at.core).await;
    let now = node.core.now();
    let shown = shown_everywhere(&node.core, owner, now).await;
    for _ in 0..2 {
        prune(&node).await;
        assert!(assert_in_step(&at.core).await < before);
        assert_eq!(shown_everywhere(&node.core, owner, now).await, shown);
    }
    let old = "SELECT COUNT(*) FROM usage_keys WHERE span IN ('day', 'week') AND at < $1";
    let long_ago = now.before(Duration::from_hours(91 * 24));
    let old: i64 = node
        .core
        .db
        .read(old)
        .bind(long_ago)
        .fetch_one()
        .await
        .unwrap();
    assert_eq!(old, 0);
    // A call that is written so late changes what is shown of months, and goes on to be removed.
    close_at(&node, &keys[0], "a", [100 * 24]);
    node.ledger.flush().await;
    prune(&node).await;
    assert_in_step(&at.core).await;
    node.stop().await;
}

type Shown = (
    String,
    Vec<(Timestamp, String, UsageSum)>,
    Vec<(KeyId, UsageSum)>,
);

/// What the pages show, by every span; checked against one another.
async fn shown_everywhere(core: &Core, owner: OwnerId, now: Timestamp) -> Vec<Shown> {
    let mut all = Vec::new();
    for span in [Span::Hour, Span::Day, Span::Week, Span::Month] {
        let filter = UsageFilter::shown(span, now);
        let by_model = usage::owner_usage(&core.db, owner, filter).await.unwrap();
        let by_key = usage::usage_by_key(&core.db, owner, filter, 20)
            .await
            .unwrap();
        let (mut models, mut keys) = (UsageSum::default(), UsageSum::default());
        let mut spans: BTreeMap<(Timestamp, String), UsageSum> = BTreeMap::new();
        for row in by_model {
            models.add(row.used);
            let sum = spans.entry((span.start(row.at), row.model)).or_default();
            sum.add(row.used);
        }
        for row in &by_key {
            keys.add(row.used);
            // The same of this key alone, which is read from the rows.
            let filter = UsageFilter {
                key: Some(row.key),
                ..filter
            };
            let mut alone = UsageSum::default();
            for row in usage::owner_usage(&core.db, owner, filter).await.unwrap() {
                alone.add(row.used);
            }
            let one = usage::usage_by_key(&core.db, owner, filter, 20)
                .await
                .unwrap();
            assert_eq!((alone, one.len()), (row.used, 1), "{span:?}");
            assert_eq!(one[0].used, row.used);
        }
        assert_eq!(models, keys, "{span:?}");
        assert!(models.requests > 0);
        // With the name of a model the rows are read.
        let mut of_models = UsageSum::default();
        for model in ["a", "b"] {
            let filter = UsageFilter {
                model: Some(model),
                ..filter
            };
            for row in usage::usage_by_key(&core.db, owner, filter, 20)
                .await
                .unwrap()
            {
                of_models.add(row.used);
            }
        }
        assert_eq!(of_models, models, "{span:?}");
        let spans = spans
            .into_iter()
            .map(|((at, model), used)| (at, model, used));
        let by_key = by_key.into_iter().map(|row| (row.key, row.used));
        all.push((span.as_str().to_owned(), spans.collect(), by_key.collect()));
    }
    all
}

async fn existing_rows_are_summed_up_by_the_migration(at: &Installation) {
    let node = Node::start(at, |_| {}).await;
    for (number, who) in [CallSource::new(), CallSource::new()].iter().enumerate() {
        close_at(&node, who, "a", (0..3000).step_by(7 + number));
        close_at(&node, who, "b", (0..9000).step_by(501));
    }
    node.ledger.flush().await;
    prune(&node).await;
    node.stop().await;
    let rows = assert_in_step(&at.core).await;
    let undone = at.core.db.transact(|tx| {
        Box::pin(async move {
            for sql in [
                "DROP TABLE usage_models",
                "DROP TABLE usage_keys",
                "DROP INDEX usage_hours_by_key",
                "DROP INDEX usage_days_by_key",
                "DROP INDEX team_members_by_time",
                "DROP INDEX audit_by_account",
                "DROP INDEX audit_by_action",
                "DROP INDEX projects_by_owner_and_name",
                "DROP INDEX audit_by_kind_and_account",
                "DROP INDEX audit_by_subject_and_account",
                "DROP INDEX project_traffic_by_step",
                "CREATE INDEX projects_by_owner ON projects (owner_id, id)",
                "CREATE INDEX audit_by_kind ON audit (owner_id, kind, id)",
                "CREATE INDEX audit_by_subject ON audit (owner_id, subject, id)",
                "DELETE FROM schema_versions WHERE version = 22",
            ] {
                tx.query(sql).execute().await?;
            }
            Ok(())
        })
    });
    let undone: Result<(), StoreError> = undone.await;
    undone.unwrap();
    let core = at.another_core(Settings::default()).await;
    assert_eq!(assert_in_step(&core).await, rows);
}

/// The dearest keys come first, and nobody sees those of others.
async fn the_dearest_keys_come_first(at: &Installation) {
    let (ada, workspace_of_ada) = workspace(at, "ada").await;
    let (bob, _) = workspace(at, "bob").await;
    let node = Node::start(at, |_| {}).await;
    let people: Vec<CallSource> = (0..50)
        .map(|_| CallSource {
            workspace: workspace_of_ada,
            key: id(),
        })
        .collect();
    for (number, who) in people.iter().enumerate() {
        close_at(&node, who, "a", (0..=number as u64).map(|day| day * 24));
    }
    node.ledger.flush().await;
    let now = node.core.now();
    for span in [Span::Day, Span::Week] {
        let filter = UsageFilter::shown(span, now);
        let owner = ada.caller.account.cast();
        let top = usage::usage_by_key(&node.core.db, owner, filter, 3)
            .await
            .unwrap();
        let kept = |days: u64| {
            let shown = |day: &u64| now.before(Duration::from_hours(day * 24)) >= filter.since;
            (0..=days).filter(shown).count() as u64
        };
        let expected = [kept(49), kept(48), kept(47)];
        let requests: Vec<_> = top.iter().map(|row| row.used.requests).collect();
        assert_eq!(requests, expected, "{span:?}");
        let foreign = bob.caller.account.cast();
        let filter = UsageFilter {
            key: Some(people[9].key),
            ..filter
        };
        let of_key = usage::owner_usage(&node.core.db, owner, filter)
            .await
            .unwrap();
        assert_eq!(of_key.iter().map(|row| row.used.requests).sum::<u64>(), 10);
        for filter in [filter, UsageFilter::shown(span, now)] {
            let rows = usage::owner_usage(&node.core.db, foreign, filter)
                .await
                .unwrap();
            let keys = usage::usage_by_key(&node.core.db, foreign, filter, 9)
                .await
                .unwrap();
            assert_eq!((rows.len(), keys.len()), (0, 0));
        }
    }
    node.stop().await;
}
