//! Rate limits that the nodes of an installation share: one leaky bucket per unit of a key or workspace.
//!
//! Each exchange is one statement for all buckets that a node has used, in a transaction of its own under READ COMMITTED:
//! rows are locked in the order of their names, read as they are then, and written once. Nothing waits for a flush, since
//! the table is not logged. Time is the database's: nodes whose clocks differ would leak too much or not at all.

use crate::db::Backend;
use crate::{Db, StoreError};
use estrade_model::Timestamp;
use estrade_model::rate::{RATE_ONE, RateReply, RateReport, RateUnit};
use std::collections::HashMap;
use tokio_postgres::types::ToSql;

/// Leaks, adds what is reported, and grants what there is room for: all that is asked for, as far as it fits, but nothing
/// when the first call does not. A call that is larger than the bucket gets it when it is empty. No debt is longer than a day: a grant may be lost.
/// $7 is one unit.
const EXCHANGE: &str = "
WITH report AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
        AS r (bucket, rate, change, own, first_call, all_calls)
), locked AS (
    SELECT r.*, b.used, b.at, b.rate AS rate_before,
        CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS now
    FROM report r JOIN rate_buckets b ON b.bucket = r.bucket ORDER BY b.bucket FOR UPDATE OF b
), filled AS (
    SELECT l.*, CAST(rate AS NUMERIC) * $7::bigint AS size, GREATEST(
        GREATEST(used - CAST(GREATEST(now - at, 0) AS NUMERIC) * rate_before, 0) + change, own, 0) AS total
    FROM locked l
), decided AS (
    SELECT f.*, CASE
        WHEN first_call = 0 THEN 0
        WHEN total = 0 THEN GREATEST(first_call, LEAST(all_calls, size))
        WHEN total + first_call <= size THEN LEAST(all_calls, FLOOR((size - total) / $7::bigint) * $7::bigint)
        ELSE 0 END AS granted
    FROM filled f
)
UPDATE rate_buckets b
SET used = LEAST(d.total + d.granted, 1440 * d.size, 9223372036854775807), rate = d.rate, at = GREATEST(d.at, d.now)
FROM decided d WHERE b.bucket = d.bucket
RETURNING b.bucket, b.used, CAST(d.granted AS BIGINT)";

/// They are as of now: an old one would be removed before it is used.
const CREATE: &str = "
INSERT INTO rate_buckets (bucket, used, rate, at)
SELECT bucket, 0, rate, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)
FROM unnest($1::text[], $2::bigint[]) AS r (bucket, rate) ORDER BY bucket
ON CONFLICT (bucket) DO NOTHING";

/// A bucket that is locked is in use. Skipping it, the removal waits for no exchange, and so cannot form a deadlock with
/// one. A day's worth has not leaked after an hour: such a debt is kept until it has.
const PRUNE: &str = "
WITH old AS MATERIALIZED (
    SELECT bucket FROM rate_buckets WHERE at / 1000 < $1 AND used / rate <= CAST(3600000000 AS BIGINT)
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM rate_buckets b USING old WHERE b.bucket = old.bucket RETURNING 1";

/// Takes reports of buckets, each at most once, and returns a reply to each, in order. PostgreSQL only.
pub async fn exchange(db: &Db, reports: &[RateReport]) -> Result<Vec<RateReply>, StoreError> {
    let mut replies = HashMap::new();
    exchange_present(db, reports, &mut replies).await?;
    let is_missing = |report: &&RateReport| !replies.contains_key(&name(report));
    let missing: Vec<_> = reports.iter().filter(is_missing).copied().collect();
    if !missing.is_empty() {
        create(db, &missing).await?;
        exchange_present(db, &missing, &mut replies).await?;
    }
    let reply = |report| replies.get(&name(report)).copied();
    let replies: Option<Vec<_>> = reports.iter().map(reply).collect();
    replies.ok_or_else(|| StoreError::bug("a rate bucket was removed as soon as it was made"))
}

async fn exchange_present(
    db: &Db,
    reports: &[RateReport],
    replies: &mut HashMap<String, RateReply>,
) -> Result<(), StoreError> {
    let column = |of: fn(&RateReport) -> i64| reports.iter().map(of).collect::<Vec<_>>();
    let names: Vec<_> = reports.iter().map(name).collect();
    let rates = column(|report| report.limit.get().into());
    let changes = column(|report| report.change);
    let own = column(|report| report.own);
    let first = column(|report| report.first);
    let all = column(|report| report.all);
    let one = i64::try_from(RATE_ONE).unwrap_or(i64::MAX);
    let values: [&(dyn ToSql + Sync); 7] = [&names, &rates, &changes, &own, &first, &all, &one];
    for row in run(db, EXCHANGE, &values).await? {
        let reply = RateReply {
            used: row.try_get(1)?,
            granted: row.try_get(2)?,
        };
        replies.insert(row.try_get(0)?, reply);
    }
    Ok(())
}

async fn create(db: &Db, reports: &[RateReport]) -> Result<(), StoreError> {
    let names: Vec<_> = reports.iter().map(name).collect();
    let rates: Vec<i64> = reports
        .iter()
        .map(|report| report.limit.get().into())
        .collect();
    run(db, CREATE, &[&names, &rates]).await.map(drop)
}

async fn run(
    db: &Db,
    sql: &'static str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    match db.backend() {
        Backend::Postgres(postgres) => postgres.run_alone(sql, values).await,
        Backend::Sqlite(_) => Err(StoreError::bug("with SQLite there is one node")),
    }
}

/// Removes up to `limit` buckets that were last used before a moment and are empty by now.
pub async fn prune_rate_buckets(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    if matches!(db.backend(), Backend::Sqlite(_)) {
        return Ok(0);
    }
    let values: [&(dyn ToSql + Sync); 2] = [&before.millis(), &i64::from(limit)];
    let removed = run(db, PRUNE, &values).await?.len();
    Ok(u64::try_from(removed).unwrap_or(u64::MAX))
}

fn name(report: &RateReport) -> String {
    let unit = match report.unit {
        RateUnit::Requests => "requests",
        RateUnit::Tokens => "tokens",
    };
    format!("{} {unit}", hex::encode(report.subject))
}
