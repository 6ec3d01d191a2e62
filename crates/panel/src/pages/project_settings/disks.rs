//! The disks of a project: made, made larger, deleted, and where they are mounted.

use super::parts::{Problem, project_path};
use crate::form::NoFields;
use crate::format::{self, filters};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::Timestamp;
use estrade_model::disk::{CreateDisk, Disk, DiskSize};
use estrade_model::platform::Platform;
use estrade_model::project::ProjectDetail;
use estrade_model::team::Role;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::{disks, projects};
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/projects/{name}/disks",
            get(list_disks).post(create_disk),
        )
        .route(
            "/panel/projects/{name}/disks/{disk}/resize",
            post(resize_disk),
        )
        .route(
            "/panel/projects/{name}/disks/{disk}/delete",
            get(confirm_delete).post(delete_disk),
        )
}

struct DiskRow {
    name: String,
    size: u64,
    /// How much of it is used, and how many percent that is, where this node knows.
    used: Option<(String, u64)>,
    /// The largest size that the plan leaves for it.
    max: u64,
    created_at: Timestamp,
    /// Where the live release has it.
    mounted_at: Option<String>,
    resize_href: String,
    delete_href: String,
}

#[derive(Template)]
#[template(path = "projects/disks.html")]
struct DisksPage {
    layout: Layout,
    tabs: ProjectTabs,
    rows: Vec<DiskRow>,
    plan: String,
    reserved: u64,
    total: u64,
    is_static: bool,
    create_href: String,
    settings_href: String,
    problem: Option<String>,
    /// What was typed.
    draft: DiskForm,
}

impl DisksPage {
    fn free(&self) -> u64 {
        self.total.saturating_sub(self.reserved)
    }
}

#[derive(Default, Deserialize)]
struct DiskForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    size: String,
}

impl DiskForm {
    fn size(&self) -> Result<DiskSize, Error> {
        let size = self.size.trim().parse().ok().filter(|&size| size > 0);
        let size =
            size.ok_or_else(|| Error::invalid("Size: must be a whole number of GB, 1 or more"))?;
        Ok(DiskSize(size))
    }
}

async fn list_disks(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    render(&disks_page(&app, &visit, &name, None, DiskForm::default()).await?)
}

async fn disks_page(
    app: &AppState,
    visit: &Visit,
    name: &str,
    problem: Option<String>,
    draft: DiskForm,
) -> Result<DisksPage, PanelError> {
    let (detail, _) = projects::read_project(&app.core, &visit.scope, name).await?;
    let mounts = disks::list_mounts(&app.core, &visit.scope, name).await?;
    let plan = app.core.settings.plans.get(&detail.project.plan_id);
    let total = plan.map_or(0, |plan| plan.disk_gb);
    let free = total.saturating_sub(detail.reserved_disk_space);
    let used = disks::used_space(&app.core, &visit.scope, detail.project.id, &detail.disks).await?;
    let row = |(disk, used): (Disk, Option<u64>)| {
        let at =
            |rest: &str| visit.href(&project_path(name, &format!("/disks/{}{rest}", disk.name)));
        let mount = mounts.iter().find(|(mounted, _)| *mounted == disk.name);
        DiskRow {
            max: disk.size.saturating_add(free),
            mounted_at: mount.map(|(_, path)| path.clone()),
            resize_href: at("/resize"),
            delete_href: at("/delete"),
            size: disk.size,
            used: used.map(|used| (format::bytes(used), percent(used, disk.size))),
            created_at: disk.created_at,
            name: disk.name,
        }
    };
    Ok(DisksPage {
        layout: visit.layout(format!("Disks of {name}"), Section::Projects),
        tabs: ProjectTabs::new(visit, &detail.project, ProjectTab::Disks),
        rows: detail.disks.into_iter().zip(used).map(row).collect(),
        plan: detail.project.plan_id,
        reserved: detail.reserved_disk_space,
        total,
        is_static: detail.project.platform == Platform::Static,
        create_href: visit.href(&project_path(name, "/disks")),
        settings_href: visit.href(&project_path(name, "/settings")),
        problem,
        draft,
    })
}

/// How many percent of a disk are used; its file system is a little smaller than its size in GB.
fn percent(used: u64, size_gb: u64) -> u64 {
    let size = size_gb.saturating_mul(1 << 30).max(1);
    (used.saturating_mul(100) / size).min(100)
}

async fn create_disk(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<DiskForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let made = match form.size() {
        Ok(size) => {
            let disk = form.name.trim().to_owned();
            let new = CreateDisk { name: disk, size };
            disks::create_disk(&app.core, &visit.scope, &name, new).await
        }
        Err(error) => Err(error),
    };
    finish(&app, &visit, &name, made, "was created", form).await
}

async fn resize_disk(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, disk)): Path<(String, String)>,
    SignedForm(form): SignedForm<DiskForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let slot = &app.services.resize_slot;
    let resized = match form.size() {
        Ok(size) => disks::resize_disk(&app.core, slot, &visit.scope, &name, &disk, size).await,
        Err(error) => Err(error),
    };
    finish(
        &app,
        &visit,
        &name,
        resized,
        "was made larger",
        DiskForm::default(),
    )
    .await
}

/// Says what happened to a disk, or shows the page with what is wrong.
async fn finish(
    app: &AppState,
    visit: &Visit,
    name: &str,
    result: estrade_service::Result<Disk>,
    done: &str,
    draft: DiskForm,
) -> Result<Response, PanelError> {
    match result {
        Ok(disk) => {
            let text = format!("Disk {} {done}: {} GB", disk.name, disk.size);
            Ok(visit.done(&text, &project_path(name, "/disks")))
        }
        Err(error) => {
            let problem = Problem::of(error)?;
            let page = disks_page(app, visit, name, Some(problem.text), draft).await?;
            render_with(problem.status, &page)
        }
    }
}

async fn confirm_delete(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, disk)): Path<(String, String)>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    let disk = disks::read_disk(&app.core, &visit.scope, &name, &disk).await?;
    delete_page(&visit, &detail, &disk).respond()
}

fn delete_page(visit: &Visit, detail: &ProjectDetail, disk: &Disk) -> AskPage {
    let page = project_path(&detail.project.project_id, "/disks");
    let question = Question {
        title: format!("Delete the disk {}?", disk.name),
        text: format!(
            "Everything on it, up to {} GB, is removed and cannot be brought back. A release that mounts it cannot be \
             rolled back to.",
            disk.size
        ),
        label: "Delete disk".into(),
        action: format!("{page}/{}/delete", disk.name),
    };
    let tabs = ProjectTabs::new(visit, &detail.project, ProjectTab::Disks);
    let layout = visit.layout(format!("Delete disk {}", disk.name), Section::Projects);
    AskPage::new(layout, question)
        .in_project(tabs)
        .below("Disks", page)
}

async fn delete_disk(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, disk)): Path<(String, String)>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    match disks::delete_disk(&app.core, &visit.scope, &name, &disk).await {
        Ok(()) => {
            let text = format!("Disk {disk} was deleted");
            Ok(visit.done(&text, &project_path(&name, "/disks")))
        }
        Err(error) => {
            let problem = Problem::of(error)?;
            let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
            let disk = disks::read_disk(&app.core, &visit.scope, &name, &disk).await?;
            let page = delete_page(&visit, &detail, &disk).refused(problem.text);
            page.respond_with(problem.status)
        }
    }
}
