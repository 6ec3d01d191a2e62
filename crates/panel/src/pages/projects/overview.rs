//! One project at a glance: what visitors got, what instances used, the last releases.

use super::release_row::ReleaseRow;
use crate::chart::{Plot, Series, Unit};
use crate::format;
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, Visit, render};
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use estrade_model::metrics::MetricSummary;
use estrade_model::platform::Platform;
use estrade_model::{Timestamp, project::Project};
use estrade_server::app::AppState;
use estrade_service::platform::traffic::{
    MAX_MEASURED_LATENCY, TrafficPoint, TrafficRange, TrafficSeries,
};
use estrade_service::platform::{projects, releases};
use serde::Deserialize;
use std::time::Duration;

/// Releases that the overview shows.
const RECENT_RELEASES: u32 = 5;

#[derive(Debug, Default, Deserialize)]
pub(super) struct OverviewQuery {
    #[serde(default)]
    range: RangeName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum RangeName {
    #[default]
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "7d")]
    Week,
}

impl RangeName {
    const ALL: [(Self, &'static str, &'static str, TrafficRange); 3] = [
        (Self::Hour, "1h", "last hour", TrafficRange::Hour),
        (Self::Day, "24h", "last 24 hours", TrafficRange::Day),
        (Self::Week, "7d", "last 7 days", TrafficRange::Week),
    ];
}

struct RangeLink {
    name: &'static str,
    label: &'static str,
    href: String,
    is_current: bool,
}

struct Card {
    title: &'static str,
    note: String,
    value: String,
    detail: String,
    plot: Plot,
}

#[derive(Template)]
#[template(path = "projects/overview.html")]
struct OverviewPage {
    layout: Layout,
    tabs: ProjectTabs,
    is_deployed: bool,
    ranges: Vec<RangeLink>,
    cards: Vec<Card>,
    facts: Vec<(&'static str, String)>,
    created_at: Timestamp,
    releases: Vec<ReleaseRow>,
    releases_href: String,
    total_releases: u64,
    deploy_href: String,
    fail_reason: String,
}

pub(super) async fn show_project(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
    Query(query): Query<OverviewQuery>,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let overview = projects::read_overview(core, scope, &project).await?;
    let project = overview.project;
    let name = &project.project_id;
    let range = RangeName::ALL
        .into_iter()
        .find(|(it, ..)| *it == query.range);
    let (_, _, span, traffic_range) = range.unwrap_or(RangeName::ALL[0]);
    let series = app
        .services
        .traffic
        .read_series(scope, name, traffic_range)
        .await?;
    let summary = app.services.meter.read_summary(scope, name).await?;
    let recent = releases::list_authored(core, scope, name, None, RECENT_RELEASES).await?;
    let at = |rest: &str| visit.href(&format!("/panel/projects/{name}{rest}"));
    let links = RangeName::ALL
        .into_iter()
        .map(|(it, name, label, _)| RangeLink {
            name,
            label,
            href: at(&format!("?range={name}")),
            is_current: it == query.range,
        });
    let rows = recent
        .into_iter()
        .map(|it| ReleaseRow::new(&visit, name, it));
    render(&OverviewPage {
        is_deployed: project.is_deployed,
        ranges: links.collect(),
        cards: cards(&project, &series, &summary, span),
        facts: facts(&project),
        created_at: project.created_at,
        releases: rows.collect(),
        releases_href: at("/releases"),
        total_releases: overview.releases,
        deploy_href: at("/deploy"),
        fail_reason: overview.fail_reason.unwrap_or_default(),
        tabs: ProjectTabs::new(&visit, &project, ProjectTab::Overview),
        layout: visit.layout(name.clone(), Section::Projects),
    })
}

fn facts(project: &Project) -> Vec<(&'static str, String)> {
    let network = project.network.as_ref().map(|network| network.name.clone());
    let mut facts = vec![
        ("Platform", project.platform.as_str().to_owned()),
        ("Plan", project.plan_id.clone()),
    ];
    if project.platform != Platform::Static {
        facts.push(("Instances", project.scale.to_string()));
    }
    facts.push(("Network", network.unwrap_or_else(|| "none".to_owned())));
    facts.push(("Id", project.id.to_string()));
    facts
}

fn cards(
    project: &Project,
    series: &TrafficSeries,
    summary: &MetricSummary,
    span: &str,
) -> Vec<Card> {
    let mut cards = vec![requests_card(series, span), latency_card(series, span)];
    if project.platform != Platform::Static {
        cards.push(cpu_card(series, summary));
        cards.push(memory_card(series, summary));
    }
    cards
}

fn times(series: &TrafficSeries) -> Vec<Timestamp> {
    series.points.iter().map(|point| point.at).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn requests_card(series: &TrafficSeries, span: &str) -> Card {
    let good = series
        .points
        .iter()
        .map(|it| it.requests.saturating_sub(it.errors) as f64);
    let bad = series.points.iter().map(|it| it.errors as f64);
    let mut drawn = vec![Series::new("answered", good)];
    if series.errors > 0 {
        drawn.push(Series::new("failed", bad));
    }
    let detail = match (series.requests, series.errors) {
        (0, _) => "no visitor yet".to_owned(),
        (_, 0) => format!("none failed, {} sent", format::bytes(series.bytes)),
        (all, failed) => {
            let share = failed as f64 / all as f64 * 100.0;
            format!(
                "{} failed ({share:.2} %), {} sent",
                format::number(failed),
                format::bytes(series.bytes)
            )
        }
    };
    Card {
        title: "Requests",
        note: span.to_owned(),
        value: format::compact(series.requests as f64),
        detail,
        plot: Plot::bars("Requests", Unit::Count("requests"), times(series), drawn),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn latency_card(series: &TrafficSeries, span: &str) -> Card {
    let of = |pick: fn(&TrafficPoint) -> Option<Duration>| {
        series
            .points
            .iter()
            .map(move |point| pick(point).map(millis))
            .collect()
    };
    let p50 = Series {
        name: "p50".to_owned(),
        values: of(|point| point.latency.map(|it| it.p50)),
    };
    let p99 = Series {
        name: "p99".to_owned(),
        values: of(|point| point.latency.map(|it| it.p99)),
    };
    let is_beyond = |time: Duration| time >= MAX_MEASURED_LATENCY;
    let show = |time: Duration| {
        if is_beyond(time) {
            format!("over {} s", MAX_MEASURED_LATENCY.as_secs())
        } else {
            Unit::Milliseconds.show(millis(time))
        }
    };
    let value = series.latency.map_or_else(
        || "–".to_owned(),
        |it| format!("{} · {}", show(it.p50), show(it.p99)),
    );
    let mut points = series.points.iter().filter_map(|point| point.latency);
    let detail = if points.any(|it| is_beyond(it.p99)) {
        "until the response was sent; what takes longer than 1 s counts as 1 s"
    } else {
        "until the response was sent"
    };
    Card {
        title: "Latency",
        note: format!("p50 · p99, {span}"),
        value,
        detail: detail.to_owned(),
        plot: Plot::lines("Latency", Unit::Milliseconds, times(series), vec![p50, p99]),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn cpu_card(series: &TrafficSeries, summary: &MetricSummary) -> Card {
    let values = series
        .points
        .iter()
        .map(|point| point.used.map(|(cpu, _)| cpu));
    let drawn = Series {
        name: "CPU".to_owned(),
        values: values.collect(),
    };
    let instances = match summary.instances {
        1 => "1 instance runs on this node".to_owned(),
        count => format!("{count} instances run on this node"),
    };
    let mut plot = Plot::lines("CPU", Unit::Cores, times(series), vec![drawn]);
    plot.min_top = (summary.cpu.limit as f64).min(1.0);
    Card {
        title: "CPU",
        note: format!("of {} cores", summary.cpu.limit),
        value: format!("{:.2}", summary.cpu.used),
        detail: instances,
        plot,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows three digits")]
fn memory_card(series: &TrafficSeries, summary: &MetricSummary) -> Card {
    let values = series
        .points
        .iter()
        .map(|point| point.used.map(|(_, memory)| memory as f64));
    let drawn = Series {
        name: "memory".to_owned(),
        values: values.collect(),
    };
    Card {
        title: "Memory",
        note: format!("of {}", format::bytes(summary.memory.limit)),
        value: format::bytes(summary.memory.used),
        detail: "all instances of this node together".to_owned(),
        plot: Plot::lines("Memory", Unit::Bytes, times(series), vec![drawn]),
    }
}
