//! The list of projects.

use crate::chart::{Sparkline, sparkline};
use crate::format;
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::pages::project_tabs::ProjectBadge;
use crate::{Layout, PanelError, Section, Visit, render};
use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use estrade_model::Timestamp;
use estrade_server::app::AppState;
use estrade_service::platform::projects::{self, PageOfProjects, ProjectSummary};
use estrade_service::platform::traffic::SPARKLINE_STEPS;
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Debug, Default, Deserialize)]
pub(super) struct ProjectsQuery {
    before: Option<String>,
    /// Only projects with this in their name.
    #[serde(default)]
    q: String,
}

#[derive(Template)]
#[template(path = "projects/list.html")]
struct ProjectsPage {
    layout: Layout,
    search: String,
    total: u64,
    is_first: bool,
    rows: Vec<Row>,
    next: Option<String>,
    /// The address of this list without its page.
    list_href: String,
}

struct Row {
    name: String,
    href: String,
    url: String,
    host: String,
    badge: ProjectBadge,
    requests: u64,
    requests_text: String,
    sparkline: Sparkline,
    platform: &'static str,
    plan: String,
    release: Option<RowRelease>,
}

struct RowRelease {
    tag: String,
    href: String,
    created_at: Timestamp,
}

pub(super) async fn list_projects(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<ProjectsQuery>,
) -> Result<Response, PanelError> {
    let search = query.q.trim().to_lowercase();
    let list = ListQuery {
        before: query.before,
    };
    let page = PageOfProjects {
        before: list.before()?,
        search: (!search.is_empty()).then(|| search.clone()),
        count: PAGE_SIZE + 1,
    };
    let total = projects::count_projects(&app.core, &visit.scope).await?;
    let mut found = projects::list_summaries(&app.core, &visit.scope, &page).await?;
    let next = split_page(&mut found, |it| it.project.id);
    let mut sparklines = HashMap::new();
    if !found.is_empty() {
        sparklines = app.services.traffic.list_sparklines(&found).await?;
    }
    let rows = found.into_iter().map(|it| {
        let steps = sparklines.remove(&it.project.id);
        row(&visit, it, &steps.unwrap_or([0; SPARKLINE_STEPS]))
    });
    let list_href = if search.is_empty() {
        "/panel/projects".to_owned()
    } else {
        format!("/panel/projects?q={}", percent_encode(&search))
    };
    render(&ProjectsPage {
        rows: rows.collect(),
        total,
        is_first: page.before.is_none(),
        next,
        list_href: visit.href(&list_href),
        layout: visit.layout("Projects", Section::Projects),
        search,
    })
}

fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "a sparkline has no scale")]
fn row(visit: &Visit, summary: ProjectSummary, steps: &[u64; SPARKLINE_STEPS]) -> Row {
    let project = summary.project;
    let requests: u64 = steps.iter().sum();
    let path = format!("/panel/projects/{}", project.project_id);
    let values: Vec<f64> = steps.iter().map(|count| *count as f64).collect();
    let label = format!("{requests} requests in the last 24 hours");
    Row {
        href: visit.href(&path),
        badge: ProjectBadge::of(&project),
        host: project
            .url
            .split_once("://")
            .map_or("", |(_, host)| host)
            .to_owned(),
        url: project.url,
        requests,
        requests_text: format::compact(requests as f64),
        sparkline: sparkline(values, label),
        platform: project.platform.as_str(),
        plan: project.plan_id,
        release: summary.release.map(|release| RowRelease {
            tag: format!("v{}", release.number),
            href: visit.href(&format!("{path}/releases/{}", release.id)),
            created_at: release.created_at,
        }),
        name: project.project_id,
    }
}
