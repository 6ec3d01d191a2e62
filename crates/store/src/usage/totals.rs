//! Sums of `usage_hours` that pages read: `usage_models` without the keys, `usage_keys` without the models.
//!
//! Invariant: every transaction that adds to `usage_hours` adds the same here, so the sum over a span that begins where
//! days begin is the same in each of the tables. Rows of hours, and of days and weeks of keys, go when the hours of
//! their day are merged into a day; nothing that is shown reaches back that far.

use super::{DAY_MS, HourKey, Sums, sum};
use crate::{Statement, StoreError, Tx, Value};
use estrade_model::call::Span;
use estrade_model::{Timestamp, WorkspaceId};
use std::collections::BTreeMap;

const MODEL_SPANS: [Span; 2] = [Span::Hour, Span::Day];
const KEY_SPANS: [Span; 3] = [Span::Day, Span::Week, Span::Month];

macro_rules! add_sums {
    ($table:literal, $subject:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " AS sums (workspace_id, span, at, ",
            $subject,
            ", requests, prompt_tokens, completion_tokens, cost_nanos)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (workspace_id, span, at, ",
            $subject,
            ") DO UPDATE SET
                 requests = sums.requests + excluded.requests,
                 prompt_tokens = sums.prompt_tokens + excluded.prompt_tokens,
                 completion_tokens = sums.completion_tokens + excluded.completion_tokens,
                 cost_nanos = ",
            sum!("sums.cost_nanos", "excluded.cost_nanos")
        )
    };
}

/// Sums by workspace, span, its beginning, and the model or key.
type SumsBy<S> = BTreeMap<(WorkspaceId, &'static str, Timestamp, S), Sums>;

/// The statements that add what is added to `usage_hours`, each with its rows.
pub(super) fn additions(hours: &BTreeMap<HourKey<'_>, Sums>) -> [Statement; 2] {
    let (mut models, mut keys) = (SumsBy::new(), SumsBy::new());
    for (hour, sums) in hours {
        let at = Timestamp::from_millis(hour.hour);
        for span in MODEL_SPANS {
            let row = (hour.workspace, span.as_str(), span.start(at), hour.model);
            models.entry(row).or_default().add(*sums);
        }
        for span in KEY_SPANS {
            let row = (hour.workspace, span.as_str(), span.start(at), hour.key);
            keys.entry(row).or_default().add(*sums);
        }
    }
    [
        Statement {
            sql: add_sums!("usage_models", "model"),
            rows: rows(models),
        },
        Statement {
            sql: add_sums!("usage_keys", "key_id"),
            rows: rows(keys),
        },
    ]
}

fn rows<S: Into<Value>>(sums: SumsBy<S>) -> Vec<Vec<Value>> {
    let sums = sums.into_iter();
    sums.map(|((workspace, span, at, subject), sums)| {
        vec![
            workspace.into(),
            span.into(),
            at.into(),
            subject.into(),
            sums.requests.into(),
            sums.prompt.into(),
            sums.completion.into(),
            sums.cost.into(),
        ]
    })
    .collect()
}

/// Removes what has the hours of a day in it. Its week goes as a whole: when its first day is that old, it is shown no
/// more.
pub(super) async fn remove_day(
    tx: &mut Tx,
    workspace: WorkspaceId,
    day: i64,
) -> Result<(), StoreError> {
    const REMOVE_HOURS: &str = "DELETE FROM usage_models
        WHERE workspace_id = $1 AND span = 'hour' AND at >= $2 AND at < $3";
    const REMOVE_DAYS: &str = "DELETE FROM usage_keys
        WHERE workspace_id = $1 AND span = 'day' AND at >= $2 AND at < $3";
    for sql in [REMOVE_HOURS, REMOVE_DAYS] {
        tx.query(sql)
            .bind(workspace)
            .bind(day)
            .bind(day + DAY_MS)
            .execute()
            .await?;
    }
    tx.query("DELETE FROM usage_keys WHERE workspace_id = $1 AND span = 'week' AND at <= $2")
        .bind(workspace)
        .bind(Timestamp::from_millis(day).start_of_week())
        .execute()
        .await
        .map(drop)
}
