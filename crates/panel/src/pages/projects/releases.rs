//! The releases of a project.

use super::release_row::ReleaseRow;
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, Visit, render};
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use estrade_server::app::AppState;
use estrade_service::platform::{projects, releases};

#[derive(Template)]
#[template(path = "projects/releases.html")]
struct ReleasesPage {
    layout: Layout,
    tabs: ProjectTabs,
    releases: Vec<ReleaseRow>,
    total: u64,
    is_first: bool,
    next: Option<String>,
    list_href: String,
}

pub(super) async fn list_releases(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    let overview = projects::read_overview(&app.core, &visit.scope, &project).await?;
    let project = overview.project;
    let (before, name) = (list.before()?, &project.project_id);
    let mut found =
        releases::list_authored(&app.core, &visit.scope, name, before, PAGE_SIZE + 1).await?;
    let next = split_page(&mut found, |it| it.release.id);
    let rows = found
        .into_iter()
        .map(|it| ReleaseRow::new(&visit, name, it));
    render(&ReleasesPage {
        releases: rows.collect(),
        total: overview.releases,
        is_first: before.is_none(),
        next,
        list_href: visit.href(&format!("/panel/projects/{name}/releases")),
        tabs: ProjectTabs::new(&visit, &project, ProjectTab::Releases),
        layout: visit.layout(format!("Releases of {name}"), Section::Projects),
    })
}
