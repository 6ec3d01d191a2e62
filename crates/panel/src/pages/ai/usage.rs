//! What was used and what it cost: sums, plots and tables, and the same as CSV.

use super::budget::{self, BudgetBar};
use super::choices::{self, Choice, optional_id};
use super::csv::Csv;
use crate::chart::{Plot, Series, Unit};
use crate::error::PanelError;
use crate::format::{money, number, strftime};
use crate::layout::{Layout, Section};
use crate::page::render;
use crate::session::Visit;
use crate::share::Share;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::call::Span;
use estrade_model::{Invalid, KeyId, Timestamp, WorkspaceId};
use estrade_server::app::AppState;
use estrade_service::ai::usage::{self, OwnerUsage, UsageFilter, UsageSum};
use estrade_service::ai::{keys as service_keys, workspaces};
use estrade_service::{Error, Scope};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Keys of the table of keys.
const MAX_KEYS: u32 = 20;
/// Models with a colour of their own; the rest is summed up.
const MAX_SERIES: usize = 5;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/usage", get(show_usage))
        .route("/panel/usage.csv", get(export_usage))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageQuery {
    by: String,
    workspace: Option<String>,
    key: Option<String>,
    model: String,
}

/// A query that was understood.
struct Selection {
    span: Span,
    span_name: &'static str,
    workspace: Option<WorkspaceId>,
    key: Option<KeyId>,
    model: Option<String>,
}

const SPANS: [(&str, &str); 4] = [
    ("hour", "Hour"),
    ("day", "Day"),
    ("week", "Week"),
    ("month", "Month"),
];

impl UsageQuery {
    fn select(self) -> Result<Selection, Error> {
        let name = if self.by.is_empty() { "day" } else { &self.by };
        let span = name
            .parse::<Span>()
            .map_err(|Invalid(reason)| Error::invalid(format!("by: {reason}")))?;
        let span_name = SPANS
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("day", |(known, _)| known);
        Ok(Selection {
            span,
            span_name,
            workspace: optional_id("workspace", self.workspace.as_deref())?,
            key: optional_id("key", self.key.as_deref())?,
            model: Some(self.model).filter(|model| !model.is_empty()),
        })
    }
}

impl Selection {
    fn filter(&self, now: Timestamp) -> UsageFilter<'_> {
        UsageFilter {
            workspace: self.workspace,
            key: self.key,
            model: self.model.as_deref(),
            ..UsageFilter::shown(self.span, now)
        }
    }

    /// The same page by another span.
    fn link(&self, path: &str, by: &str) -> String {
        let mut link = format!("{path}?by={by}");
        let workspace = self.workspace.map(|id| id.to_string());
        let key = self.key.map(|id| id.to_string());
        let fields = [
            ("workspace", workspace),
            ("key", key),
            ("model", self.model.clone()),
        ];
        for (name, value) in fields {
            let Some(value) = value else { continue };
            link.extend(["&", name, "="]);
            link.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
        }
        link
    }

    /// When each of the spans that are shown began.
    fn times(&self, now: Timestamp) -> Vec<Timestamp> {
        let mut times = Vec::new();
        let mut at = self.span.first(now);
        while at <= now {
            times.push(at);
            at = match self.span {
                Span::Hour => at.after(Duration::from_hours(1)),
                Span::Day => at.after(Duration::from_hours(24)),
                Span::Week => at.after(Duration::from_hours(7 * 24)),
                Span::Month => at.start_of_month(1),
            };
        }
        times
    }
}

/// Sums by span and model.
struct Sums {
    by_span: BTreeMap<Timestamp, BTreeMap<String, UsageSum>>,
    /// The model that costs most first, then the one that is called most.
    by_model: Vec<(String, UsageSum)>,
    total: UsageSum,
}

impl Sums {
    async fn load(
        app: &AppState,
        scope: &Scope,
        selection: &Selection,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let rows = usage::owner_usage(&app.core, &app.ledger, scope, selection.filter(now)).await?;
        Ok(Self::of(rows, selection.span))
    }

    fn of(rows: Vec<OwnerUsage>, span: Span) -> Self {
        let mut by_span: BTreeMap<Timestamp, BTreeMap<String, UsageSum>> = BTreeMap::new();
        let mut by_model: BTreeMap<String, UsageSum> = BTreeMap::new();
        let mut total = UsageSum::default();
        for row in rows {
            total.add(row.used);
            by_model.entry(row.model.clone()).or_default().add(row.used);
            let models = by_span.entry(span.start(row.at)).or_default();
            models.entry(row.model).or_default().add(row.used);
        }
        let mut by_model: Vec<_> = by_model.into_iter().collect();
        by_model.sort_by_key(|(_, used)| std::cmp::Reverse((used.cost, used.requests)));
        Self {
            by_span,
            by_model,
            total,
        }
    }

    /// A value of each span, of some models.
    fn values(
        &self,
        times: &[Timestamp],
        is_counted: impl Fn(&str) -> bool,
        value: impl Fn(&UsageSum) -> f64,
    ) -> Vec<f64> {
        let of_span = |at: &Timestamp| {
            let models = self.by_span.get(at).into_iter().flatten();
            models
                .filter(|(model, _)| is_counted(model))
                .map(|(_, used)| value(used))
                .sum()
        };
        times.iter().map(of_span).collect()
    }

    /// A series per model; those that are used least are one.
    fn series(&self, times: &[Timestamp], value: impl Fn(&UsageSum) -> f64 + Copy) -> Vec<Series> {
        let own: Vec<&str> = self
            .by_model
            .iter()
            .take(MAX_SERIES)
            .map(|(model, _)| model.as_str())
            .collect();
        let of_model = |model: &&str| {
            Series::new(
                model_label(model),
                self.values(times, |it| it == *model, value),
            )
        };
        let mut series: Vec<_> = own.iter().map(of_model).collect();
        if self.by_model.len() > MAX_SERIES {
            series.push(Series::new(
                "other models",
                self.values(times, |model| !own.contains(&model), value),
            ));
        }
        series
    }
}

/// Calls that were refused before a provider was asked have no model.
fn model_label(model: &str) -> String {
    if model.is_empty() {
        "refused".to_owned()
    } else {
        model.to_owned()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn requests(used: &UsageSum) -> f64 {
    used.requests as f64
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn cost(used: &UsageSum) -> f64 {
    used.cost.nanos() as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn prompt(used: &UsageSum) -> f64 {
    used.prompt as f64
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn completion(used: &UsageSum) -> f64 {
    used.completion as f64
}

/// The part of a sum that is one key's: of what was spent, or of the calls while nothing costs anything.
fn share_of(used: &UsageSum, total: &UsageSum) -> Share {
    let of_cost = total.cost.nanos() > 0;
    let value = if of_cost { cost } else { requests };
    let what = if of_cost { "cost" } else { "calls" };
    Share::new(value(used), value(total), what)
}

/// A row of the tables.
struct UsageRow {
    name: String,
    href: Option<String>,
    calls: String,
    prompt: String,
    completion: String,
    cost: String,
}

impl UsageRow {
    fn new(name: String, href: Option<String>, used: &UsageSum) -> Self {
        Self {
            name,
            href,
            calls: number(used.requests),
            prompt: number(used.prompt),
            completion: number(used.completion),
            cost: money(used.cost),
        }
    }
}

/// A row of the table of keys.
struct KeyRow {
    row: UsageRow,
    share: Share,
}

#[derive(Template)]
#[template(path = "ai/usage.html")]
struct UsagePage {
    layout: Layout,
    by: &'static str,
    spans: Vec<(bool, &'static str, String)>,
    workspaces: Vec<Choice>,
    keys: Vec<Choice>,
    models: Vec<Choice>,
    csv: String,
    period: &'static str,
    calls: String,
    tokens: String,
    cost: String,
    budget: Option<BudgetBar>,
    is_empty: bool,
    calls_plot: Plot,
    cost_plot: Plot,
    tokens_plot: Plot,
    has_cost: bool,
    by_model: Vec<UsageRow>,
    by_key: Vec<KeyRow>,
    more_keys: bool,
}

async fn show_usage(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<UsageQuery>,
) -> Result<Response, PanelError> {
    let selection = query.select()?;
    let (scope, now) = (&visit.scope, app.core.now());
    let budget = budget_of(&app, scope, &selection).await?;
    let spaces = choices::workspaces(&app, scope, selection.workspace).await?;
    let keys = choices::key_choices(&app, scope, selection.key).await?;
    let sums = Sums::load(&app, scope, &selection, now).await?;
    let by_key = usage::usage_by_key(&app.core, scope, selection.filter(now), MAX_KEYS + 1).await?;
    let ids: Vec<_> = by_key.iter().map(|found| found.key).collect();
    let names = service_keys::key_names(&app.core, scope, &ids).await?;
    let times = selection.times(now);
    let span = |(name, label): &(&'static str, &'static str)| {
        (
            *name == selection.span_name,
            *label,
            visit.href(&selection.link("/panel/usage", name)),
        )
    };
    let key_row = |found: &usage::KeyUsage| {
        let name = names.get(&found.key);
        let href = name.map(|_| visit.href(&format!("/panel/keys/{}", found.key)));
        let deleted = || format!("deleted key {}", found.key);
        UsageRow::new(name.cloned().unwrap_or_else(deleted), href, &found.used)
    };
    let key_row = |found: &usage::KeyUsage| KeyRow {
        share: share_of(&found.used, &sums.total),
        row: key_row(found),
    };
    let all = |_: &str| true;
    render(&UsagePage {
        by: selection.span_name,
        spans: SPANS.iter().map(span).collect(),
        workspaces: choices::workspace_choices(&spaces, selection.workspace),
        models: model_choices(&app, &sums, selection.model.as_deref()),
        csv: visit.href(&selection.link("/panel/usage.csv", selection.span_name)),
        period: period(selection.span),
        calls: number(sums.total.requests),
        tokens: number(sums.total.tokens()),
        cost: money(sums.total.cost),
        budget,
        is_empty: sums.total.requests == 0,
        calls_plot: Plot::bars(
            "Calls by model",
            Unit::Count("calls"),
            times.clone(),
            sums.series(&times, requests),
        ),
        cost_plot: Plot::bars(
            "Cost by model",
            Unit::Money,
            times.clone(),
            sums.series(&times, cost),
        ),
        tokens_plot: Plot::bars(
            "Tokens",
            Unit::Count("tokens"),
            times.clone(),
            vec![
                Series::new("prompt", sums.values(&times, all, prompt)),
                Series::new("completion", sums.values(&times, all, completion)),
            ],
        ),
        has_cost: sums.total.cost.nanos() > 0,
        by_model: sums
            .by_model
            .iter()
            .map(|(model, used)| UsageRow::new(model_label(model), None, used))
            .collect(),
        more_keys: by_key.len() > MAX_KEYS as usize,
        by_key: by_key.iter().take(MAX_KEYS as usize).map(key_row).collect(),
        keys,
        layout: visit.layout("Usage", Section::Usage),
    })
}

/// The budget of what was selected: of a key, else of a workspace.
async fn budget_of(
    app: &AppState,
    scope: &Scope,
    selection: &Selection,
) -> Result<Option<BudgetBar>, Error> {
    if let Some(id) = selection.key {
        return match service_keys::read_key(&app.core, scope, id).await {
            Ok((key, _)) => Ok(budget::bars(app, [(id, key.limits.budget)])
                .await?
                .remove(&id)),
            // It was deleted: what it used is still there.
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        };
    }
    let Some(id) = selection.workspace else {
        return Ok(None);
    };
    let (detail, _) = workspaces::read_workspace(&app.core, scope, id).await?;
    Ok(budget::bars(app, [(id, detail.settings.budget)])
        .await?
        .remove(&id))
}

fn model_choices(app: &AppState, sums: &Sums, chosen: Option<&str>) -> Vec<Choice> {
    /// Most entries of the select field.
    const MAX_MODELS: usize = 200;
    let listed = app.gateway.listed_models(None);
    let listed = listed.iter().map(|model| model.id.to_string());
    let used = sums.by_model.iter().map(|(model, _)| model.clone());
    let all: BTreeSet<String> = used
        .chain(listed)
        .filter(|model| !model.is_empty())
        .take(MAX_MODELS)
        .collect();
    let chosen_one = chosen.map(str::to_owned).into_iter();
    let all: BTreeSet<String> = all.into_iter().chain(chosen_one).collect();
    let choice = |model: String| Choice {
        selected: chosen == Some(model.as_str()),
        label: model.clone(),
        value: model,
    };
    all.into_iter().map(choice).collect()
}

fn period(span: Span) -> &'static str {
    match span {
        Span::Hour => "last 24 hours",
        Span::Day => "last 30 days",
        Span::Week => "last 12 weeks",
        Span::Month => "last 12 months",
    }
}

async fn export_usage(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<UsageQuery>,
) -> Result<Response, PanelError> {
    let selection = query.select()?;
    let now = app.core.now();
    let sums = Sums::load(&app, &visit.scope, &selection, now).await?;
    let mut csv = Csv::new(&[
        "from",
        "model",
        "calls",
        "prompt_tokens",
        "completion_tokens",
        "cost",
    ]);
    for (at, models) in &sums.by_span {
        for (model, used) in models {
            let cells = [
                at.to_string(),
                model.clone(),
                used.requests.to_string(),
                used.prompt.to_string(),
                used.completion.to_string(),
                used.cost.to_string(),
            ];
            csv.push(cells);
        }
    }
    let name = format!(
        "usage-{}-{}.csv",
        selection.span_name,
        strftime(now, "%Y-%m-%d")
    );
    Ok(csv.into_download(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: &str, model: &str, requests: u64) -> OwnerUsage {
        OwnerUsage {
            at: at.parse().unwrap(),
            model: model.into(),
            used: UsageSum {
                requests,
                ..UsageSum::default()
            },
        }
    }

    #[test]
    fn hours_and_days_add_up_to_the_spans_that_are_shown() {
        let rows = vec![
            row("2026-11-17T00:00:00Z", "a", 1),
            row("2026-11-17T23:00:00Z", "a", 2),
            row("2026-11-18T01:00:00Z", "b", 4),
            row("2026-11-18T01:00:00Z", "", 8),
        ];
        let sums = Sums::of(rows, Span::Day);
        let now = "2026-11-18T12:00:00Z".parse().unwrap();
        let selection = UsageQuery::default().select().unwrap();
        let times = selection.times(now);
        assert_eq!((times.len(), times[29]), (30, now.start_of_day()));
        let calls = sums.values(&times, |_| true, requests);
        assert_eq!(calls[28..], [3.0, 12.0]);
        assert_eq!(sums.total.requests, 15);
        assert_eq!(sums.by_model[0].0, "");
    }

    #[test]
    fn every_span_ends_now() {
        let now: Timestamp = "2026-03-31T23:30:00Z".parse().unwrap();
        for (by, count) in [("hour", 24), ("day", 30), ("week", 12), ("month", 12)] {
            let query = UsageQuery {
                by: by.into(),
                ..UsageQuery::default()
            };
            let selection = query.select().unwrap();
            let times = selection.times(now);
            assert_eq!(times.len(), count, "{by}");
            assert_eq!(times.last(), Some(&selection.span.start(now)));
        }
        assert!(
            UsageQuery {
                by: "year".into(),
                ..UsageQuery::default()
            }
            .select()
            .is_err()
        );
    }

    #[test]
    fn many_models_share_the_last_series() {
        let rows = (0..9)
            .map(|n| row("2026-11-18T01:00:00Z", &format!("m{n}"), n + 1))
            .collect();
        let sums = Sums::of(rows, Span::Day);
        let times = ["2026-11-18T00:00:00Z".parse().unwrap()];
        let series = sums.series(&times, requests);
        assert_eq!(series.len(), MAX_SERIES + 1);
        let total: f64 = series.iter().filter_map(|series| series.values[0]).sum();
        assert!((total - 45.0).abs() < 1e-9);
    }
}
