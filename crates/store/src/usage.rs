//! Sums of calls by workspace, hour, key and model; old hours are merged into days.

mod totals;

use crate::{Db, Record, Row, Statement, StoreError, Tx, Value};
use estrade_model::amount::Amount;
use estrade_model::call::{Call, HOUR_MS, Span};
use estrade_model::{KeyId, OwnerId, Timestamp, WorkspaceId};
use std::collections::BTreeMap;
use std::time::Duration;

const DAY_MS: i64 = 24 * HOUR_MS;

/// The key of the row of `usage_hours` in which a call is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HourKey<'c> {
    workspace: WorkspaceId,
    hour: i64,
    key: KeyId,
    model: &'c str,
}

impl<'c> HourKey<'c> {
    pub(crate) fn of(call: &'c Call) -> Self {
        let at = call.created_at.millis();
        Self {
            workspace: call.workspace,
            hour: at - at.rem_euclid(HOUR_MS),
            key: call.key,
            // Without a provider the model is arbitrary text of the client: it must not create rows.
            model: if call.provider.is_empty() {
                ""
            } else {
                &call.model
            },
        }
    }

    /// For a call that was left open: its provider is unknown, but its model was validated.
    pub(crate) fn of_left(call: &'c Call) -> Self {
        Self {
            model: &call.model,
            ..Self::of(call)
        }
    }
}

/// What calls add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// How many there were.
    pub requests: i64,
    /// Tokens that were sent.
    pub prompt: i64,
    /// Tokens that came back.
    pub completion: i64,
    pub cost: i64,
}

impl Sums {
    pub(crate) fn of(call: &Call) -> Self {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            requests: 1,
            prompt: count(call.tokens.prompt),
            completion: count(call.tokens.completion),
            cost: call.cost.nanos(),
        }
    }

    /// What takes these back.
    pub(crate) fn negative(self) -> Self {
        Self {
            requests: -self.requests,
            prompt: -self.prompt,
            completion: -self.completion,
            cost: -self.cost,
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        add(&mut self.requests, more.requests);
        add(&mut self.prompt, more.prompt);
        add(&mut self.completion, more.completion);
        add(&mut self.cost, more.cost);
    }
}

/// What `$to` is after `$more` was added in SQL; a sum that fits no more stays at the largest number,
/// because a sum that failed would cost the call. `$more` may be negative.
macro_rules! sum {
    ($to:literal, $more:literal) => {
        concat!(
            "CASE WHEN ",
            $more,
            " <= 0 THEN ",
            $to,
            " + ",
            $more,
            " WHEN ",
            $to,
            " > 9223372036854775807 - ",
            $more,
            " THEN 9223372036854775807 ELSE ",
            $to,
            " + ",
            $more,
            " END"
        )
    };
}
pub(crate) use sum;

/// The whole units and the billionths of an amount, summed up apart: neither sum can overflow, where the
/// sum of the amounts themselves can. Joined by `join`, or by `joined!` in SQL.
macro_rules! apart {
    ($column:literal) => {
        concat!(
            "CAST(SUM(",
            $column,
            " / 1000000000) AS BIGINT), CAST(SUM(",
            $column,
            " % 1000000000) AS BIGINT)"
        )
    };
}

/// The sum of amounts in SQL; what fits no more is the largest number.
macro_rules! joined {
    ($column:literal) => {
        concat!(
            "CASE WHEN CAST(SUM(",
            $column,
            " / 1000000000) AS BIGINT) + CAST(SUM(",
            $column,
            " % 1000000000) AS BIGINT) / 1000000000 >= 9223372036 THEN 9223372036854775807
              ELSE CAST(SUM(",
            $column,
            " / 1000000000) AS BIGINT) * 1000000000 + CAST(SUM(",
            $column,
            " % 1000000000) AS BIGINT) END"
        )
    };
}

/// An amount of so many whole units and billionths; what fits no more is the largest number.
fn join(units: i64, nanos: i64) -> Amount {
    let whole = units.saturating_mul(1_000_000_000);
    Amount::from_nanos(whole.saturating_add(nanos))
}

pub(crate) async fn add_to_hours(
    tx: &mut Tx,
    hours: &BTreeMap<HourKey<'_>, Sums>,
) -> Result<(), StoreError> {
    const ADD: &str = concat!(
        "INSERT INTO usage_hours AS sums (workspace_id, at, key_id, model, requests, prompt_tokens,
                                          completion_tokens, cost_nanos)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (workspace_id, at, key_id, model) DO UPDATE SET
             requests = sums.requests + excluded.requests,
             prompt_tokens = sums.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = sums.completion_tokens + excluded.completion_tokens,
             cost_nanos = ",
        sum!("sums.cost_nanos", "excluded.cost_nanos")
    );
    let row = |(key, sums): (&HourKey<'_>, &Sums)| {
        vec![
            Value::from(key.workspace),
            Value::from(key.hour),
            Value::from(key.key),
            Value::from(key.model),
            Value::from(sums.requests),
            Value::from(sums.prompt),
            Value::from(sums.completion),
            Value::from(sums.cost),
        ]
    };
    let [models, keys] = totals::additions(hours);
    let hours = Statement {
        sql: ADD,
        rows: hours.iter().map(row).collect(),
    };
    tx.execute_together(&[hours, models, keys]).await.map(drop)
}

/// Which of an owner's usage to sum up.
#[derive(Debug, Clone, Copy)]
pub struct UsageFilter<'f> {
    pub workspace: Option<WorkspaceId>,
    pub key: Option<KeyId>,
    pub model: Option<&'f str>,
    /// What it is shown by; an hour or a day is as long as what is returned.
    pub span: Span,
    /// The beginning of one of these.
    pub since: Timestamp,
}

impl UsageFilter<'_> {
    /// The spans that are shown at a moment.
    pub fn shown(span: Span, now: Timestamp) -> Self {
        Self {
            workspace: None,
            key: None,
            model: None,
            span,
            since: span.first(now),
        }
    }
}

/// What an owner used of a model in an hour or on a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerUsage {
    pub at: Timestamp,
    /// The model; empty for calls that reached no provider.
    pub model: String,
    pub used: UsageSum,
}

/// What calls add up to, for displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageSum {
    pub requests: u64,
    pub prompt: u64,
    pub completion: u64,
    pub cost: Amount,
}

impl UsageSum {
    pub fn add(&mut self, more: Self) {
        let cost = self.cost.nanos().saturating_add(more.cost.nanos());
        self.requests = self.requests.saturating_add(more.requests);
        self.prompt = self.prompt.saturating_add(more.prompt);
        self.completion = self.completion.saturating_add(more.completion);
        self.cost = Amount::from_nanos(cost);
    }

    pub fn tokens(&self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

impl Record for UsageSum {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            requests: row.take()?,
            prompt: row.take()?,
            completion: row.take()?,
            cost: join(row.take()?, row.take()?),
        })
    }
}

impl Record for OwnerUsage {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            at: row.take()?,
            model: row.take()?,
            used: UsageSum::from_row(row)?,
        })
    }
}

/// The rows of a table that an owner has: `$1` owner, `$2` since, `$3` workspace, `$4` model.
macro_rules! of_owner {
    ($table:literal) => {
        concat!(
            " FROM workspaces w JOIN ",
            $table,
            " u ON u.workspace_id = w.id
              WHERE w.owner_id = $1 AND u.at >= $2 AND (CAST($3 AS TEXT) IS NULL OR w.id = $3)
                AND (CAST($4 AS TEXT) IS NULL OR u.model = $4) "
        )
    };
}

/// Those of a key, `$5`. SQLite keeps to the order of a cross join: the key's rows first, by the index that they have.
macro_rules! of_key {
    ($table:literal) => {
        concat!(
            " FROM ",
            $table,
            " u CROSS JOIN workspaces w
              WHERE w.id = u.workspace_id AND u.key_id = $5 AND u.at >= $2
                AND w.owner_id = $1 AND (CAST($3 AS TEXT) IS NULL OR w.id = $3)
                AND (CAST($4 AS TEXT) IS NULL OR u.model = $4) "
        )
    };
}

macro_rules! sums {
    () => {
        concat!(
            "CAST(SUM(u.requests) AS BIGINT), CAST(SUM(u.prompt_tokens) AS BIGINT),
             CAST(SUM(u.completion_tokens) AS BIGINT), ",
            apart!("u.cost_nanos")
        )
    };
}

macro_rules! by_model {
    ($rows:expr) => {
        concat!(
            "SELECT u.at, u.model, ",
            sums!(),
            $rows,
            "GROUP BY u.at, u.model ORDER BY u.at, u.model"
        )
    };
}

/// What an owner used since a moment, by hour or day, and model.
pub async fn owner_usage(
    db: &Db,
    owner: OwnerId,
    filter: UsageFilter<'_>,
) -> Result<Vec<OwnerUsage>, StoreError> {
    if let Some(key) = filter.key {
        return usage_of_key(db, owner, key, filter).await;
    }
    let span = match filter.span {
        Span::Hour => Span::Hour,
        Span::Day | Span::Week | Span::Month => Span::Day,
    };
    db.read(by_model!(concat!(
        of_owner!("usage_models"),
        "AND u.span = $5 "
    )))
    .bind(owner)
    .bind(filter.since)
    .bind(filter.workspace)
    .bind(filter.model)
    .bind(span.as_str())
    .fetch_all()
    .await
}

/// The same of one key: by hour, or day when it is old.
async fn usage_of_key(
    db: &Db,
    owner: OwnerId,
    key: KeyId,
    filter: UsageFilter<'_>,
) -> Result<Vec<OwnerUsage>, StoreError> {
    const DAYS: &str = by_model!(of_key!("usage_days"));
    const HOURS: &str = by_model!(of_key!("usage_hours"));
    let mut rows = Vec::new();
    for sql in [DAYS, HOURS] {
        let query = db.read(sql).bind(owner).bind(filter.since);
        let query = query.bind(filter.workspace).bind(filter.model).bind(key);
        rows.extend(query.fetch_all::<OwnerUsage>().await?);
    }
    Ok(rows)
}

/// What was used with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUsage {
    pub key: KeyId,
    pub used: UsageSum,
}

impl Record for KeyUsage {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            key: row.take()?,
            used: UsageSum::from_row(row)?,
        })
    }
}

macro_rules! by_key {
    ($rows:expr, $limit:literal) => {
        concat!(
            "SELECT u.key_id, ",
            sums!(),
            " FROM (",
            $rows,
            ") u GROUP BY u.key_id
             ORDER BY SUM(u.cost_nanos / 1000000) DESC, SUM(u.requests) DESC, u.key_id LIMIT ",
            $limit
        )
    };
}

/// The columns that [`by_key`] sums up.
macro_rules! key_rows {
    ($rows:expr) => {
        concat!(
            "SELECT u.key_id, u.requests, u.prompt_tokens, u.completion_tokens, u.cost_nanos",
            $rows
        )
    };
}

macro_rules! totals_of_owner {
    ($condition:literal) => {
        key_rows!(concat!(
            " FROM workspaces w JOIN usage_keys u ON u.workspace_id = w.id
              WHERE w.owner_id = $1 AND (CAST($2 AS TEXT) IS NULL OR w.id = $2) AND ",
            $condition
        ))
    };
}

/// The keys that cost an owner most since a moment, and then those with most calls.
pub async fn usage_by_key(
    db: &Db,
    owner: OwnerId,
    filter: UsageFilter<'_>,
    count: u32,
) -> Result<Vec<KeyUsage>, StoreError> {
    const OF_KEY: &str = by_key!(
        concat!(
            key_rows!(of_key!("usage_hours")),
            "UNION ALL ",
            key_rows!(of_key!("usage_days"))
        ),
        "$6"
    );
    const OF_OWNER: &str = by_key!(
        concat!(
            key_rows!(of_owner!("usage_hours")),
            "UNION ALL ",
            key_rows!(of_owner!("usage_days"))
        ),
        "$5"
    );
    if filter.key.is_none() && filter.model.is_none() && filter.span != Span::Hour {
        return total_by_key(db, owner, filter, count).await;
    }
    let sql = if filter.key.is_some() {
        OF_KEY
    } else {
        OF_OWNER
    };
    let mut query = db.read(sql).bind(owner).bind(filter.since);
    query = query.bind(filter.workspace).bind(filter.model);
    if let Some(key) = filter.key {
        query = query.bind(key);
    }
    query.bind(count).fetch_all().await
}

/// Of all keys and models: days until the first week begins, and weeks from then on; or months.
async fn total_by_key(
    db: &Db,
    owner: OwnerId,
    filter: UsageFilter<'_>,
    count: u32,
) -> Result<Vec<KeyUsage>, StoreError> {
    let (long, from) = match filter.span {
        Span::Month => (Span::Month, filter.since),
        Span::Hour | Span::Day | Span::Week => (Span::Week, first_week(filter.since)),
    };
    db.read(by_key!(
        concat!(
            totals_of_owner!("u.span = 'day' AND u.at >= $3 AND u.at < $4 "),
            "UNION ALL ",
            totals_of_owner!("u.span = $5 AND u.at >= $4")
        ),
        "$6"
    ))
    .bind(owner)
    .bind(filter.workspace)
    .bind(filter.since)
    .bind(from)
    .bind(long.as_str())
    .bind(count)
    .fetch_all()
    .await
}

/// When the first week begins that is not before a moment.
fn first_week(since: Timestamp) -> Timestamp {
    let week = since.start_of_week();
    if week == since {
        since
    } else {
        week.after(Duration::from_hours(7 * 24))
    }
}

struct Hour(Timestamp, u64);
impl Record for Hour {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self(row.take()?, row.take()?))
    }
}

/// How many calls there were in each workspace since a moment, in no order.
pub async fn calls_by_workspace(db: &Db, since: Timestamp) -> Result<Vec<u64>, StoreError> {
    db.read(
        "SELECT CAST(SUM(requests) AS BIGINT) FROM usage_hours WHERE at >= $1
         GROUP BY workspace_id",
    )
    .bind(since)
    .fetch_all()
    .await
}

/// How many calls there were in each hour of a workspace since a moment, newest first.
pub async fn calls_by_hour(
    db: &Db,
    workspace: WorkspaceId,
    since: Timestamp,
) -> Result<Vec<(Timestamp, u64)>, StoreError> {
    let hours: Vec<Hour> = db
        .read(
            "SELECT at, CAST(SUM(requests) AS BIGINT) FROM usage_hours
             WHERE workspace_id = $1 AND at >= $2 GROUP BY at ORDER BY at DESC",
        )
        .bind(workspace)
        .bind(since)
        .fetch_all()
        .await?;
    Ok(hours
        .into_iter()
        .map(|Hour(at, calls)| (at, calls))
        .collect())
}

struct Oldest {
    workspace: WorkspaceId,
    at: i64,
}
impl Record for Oldest {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            workspace: row.take()?,
            at: row.take()?,
        })
    }
}

/// Turns the hours of one day of one workspace from before a moment into a day; false when there
/// are none left.
pub async fn roll_up_day(db: &Db, before: Timestamp) -> Result<bool, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            let oldest: Option<Oldest> = tx
                .query("SELECT workspace_id, at FROM usage_hours WHERE at < $1 ORDER BY at LIMIT 1")
                .bind(before)
                .fetch_optional()
                .await?;
            let Some(Oldest { workspace, at }) = oldest else {
                return Ok(false);
            };
            let day = at - at.rem_euclid(DAY_MS);
            tx.query(concat!(
                "INSERT INTO usage_days AS sums (workspace_id, at, key_id, model, requests, prompt_tokens,
                                                 completion_tokens, cost_nanos)
                 SELECT workspace_id, CAST($2 AS BIGINT), key_id, model, CAST(SUM(requests) AS BIGINT),
                        CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(completion_tokens) AS BIGINT),
                        ",
                joined!("cost_nanos"),
                " FROM usage_hours WHERE workspace_id = $1 AND at >= $2 AND at < $3
                 GROUP BY workspace_id, key_id, model
                 ON CONFLICT (workspace_id, at, key_id, model) DO UPDATE SET
                     requests = sums.requests + excluded.requests,
                     prompt_tokens = sums.prompt_tokens + excluded.prompt_tokens,
                     completion_tokens = sums.completion_tokens + excluded.completion_tokens,
                     cost_nanos = ",
                sum!("sums.cost_nanos", "excluded.cost_nanos")
            ))
            .bind(workspace)
            .bind(day)
            .bind(day + DAY_MS)
            .execute()
            .await?;
            tx.query("DELETE FROM usage_hours WHERE workspace_id = $1 AND at >= $2 AND at < $3")
                .bind(workspace)
                .bind(day)
                .bind(day + DAY_MS)
                .execute()
                .await?;
            totals::remove_day(tx, workspace, day).await?;
            Ok(true)
        })
    })
    .await
}
