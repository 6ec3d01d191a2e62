//! How a project runs: instances, plan, switches, restart, and its end.

use super::parts::{Problem, project_path};
use crate::form::NoFields;
use crate::format::{self, filters};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Check, Question, WRONG_NAME};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::Timestamp;
use estrade_model::plan::Plans;
use estrade_model::platform::Platform;
use estrade_model::project::ProjectDetail;
use estrade_model::team::Role;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::projects::{self, Switch};
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/projects/{name}/settings", get(show_settings))
        .route("/panel/projects/{name}/settings/scale", post(set_scale))
        .route("/panel/projects/{name}/settings/plan", post(set_plan))
        .route("/panel/projects/{name}/settings/switch", post(set_switch))
        .route("/panel/projects/{name}/settings/off", get(confirm_off))
        .route("/panel/projects/{name}/restart", post(restart))
        .route(
            "/panel/projects/{name}/delete",
            get(confirm_delete).post(delete_project),
        )
}

struct PlanRow {
    id: String,
    memory: String,
    cpus: u64,
    disk_gb: u64,
    hourly_price: u64,
    is_current: bool,
}

fn plan_rows(plans: &Plans, current: &str) -> Vec<PlanRow> {
    let mut all: Vec<_> = plans.all().iter().collect();
    all.sort_by_key(|(_, plan)| (plan.memory_mb, plan.cpus, plan.disk_gb));
    let row = |(id, plan): (&String, &estrade_model::plan::Plan)| PlanRow {
        id: id.clone(),
        memory: format::memory(plan.memory_mb),
        cpus: plan.cpus,
        disk_gb: plan.disk_gb,
        hourly_price: plan.hourly_price,
        is_current: id == current,
    };
    all.into_iter().map(row).collect()
}

struct SwitchRow {
    /// As the form names it.
    id: &'static str,
    label: &'static str,
    text: &'static str,
    is_on: bool,
}

fn switch_rows(detail: &ProjectDetail) -> Vec<SwitchRow> {
    let mut rows = vec![SwitchRow {
        id: "default-subdomain",
        label: "Default subdomain",
        text: "Serves the project at its address under the installation's domain, besides its own domains.",
        is_on: detail.default_subdomain,
    }];
    if detail.project.platform != Platform::Static {
        rows.push(SwitchRow {
            id: "zero-downtime",
            label: "Zero downtime",
            text: "A new release is healthy before the old one ends. Without it the old one ends first, so that two never run at once.",
            is_on: detail.zero_downtime,
        });
        rows.push(SwitchRow {
            id: "read-only",
            label: "Read-only file system",
            text: "Instances can write to their disks and to /tmp only. Running instances are replaced one after the other.",
            is_on: detail.read_only_root_filesystem,
        });
    }
    rows
}

fn find_switch(id: &str) -> Option<(Switch, &'static str)> {
    match id {
        "zero-downtime" => Some((Switch::ZeroDowntime, "Zero downtime")),
        "default-subdomain" => Some((Switch::DefaultSubdomain, "Default subdomain")),
        "read-only" => Some((Switch::ReadOnlyRoot, "Read-only file system")),
        _ => None,
    }
}

#[derive(Template)]
#[template(path = "projects/settings.html")]
struct SettingsPage {
    layout: Layout,
    tabs: ProjectTabs,
    id: String,
    platform: &'static str,
    network: String,
    networks_href: String,
    created_at: Timestamp,
    scale: u32,
    max_scale: u32,
    is_static: bool,
    plans: Vec<PlanRow>,
    has_prices: bool,
    switches: Vec<SwitchRow>,
    scale_href: String,
    plan_href: String,
    switch_href: String,
    off_href: String,
    delete_href: String,
    token_href: String,
    problem: Option<String>,
}

async fn show_settings(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    render(&settings_page(&app, &visit, &name, None).await?)
}

async fn settings_page(
    app: &AppState,
    visit: &Visit,
    name: &str,
    problem: Option<String>,
) -> Result<SettingsPage, PanelError> {
    let (detail, _) = projects::read_project(&app.core, &visit.scope, name).await?;
    let settings = &app.core.settings;
    let project = &detail.project;
    let plans = plan_rows(&settings.plans, &project.plan_id);
    let at = |rest: &str| visit.href(&project_path(&project.project_id, rest));
    Ok(SettingsPage {
        layout: visit.layout(
            format!("Settings of {}", project.project_id),
            Section::Projects,
        ),
        tabs: ProjectTabs::new(visit, project, ProjectTab::Settings),
        id: project.id.to_string(),
        platform: project.platform.as_str(),
        network: project
            .network
            .as_ref()
            .map_or_else(String::new, |it| it.name.clone()),
        networks_href: visit.href("/panel/networks"),
        created_at: project.created_at,
        scale: project.scale,
        max_scale: settings.max_instances,
        is_static: project.platform == Platform::Static,
        has_prices: plans.iter().any(|plan| plan.hourly_price > 0),
        plans,
        switches: switch_rows(&detail),
        scale_href: at("/settings/scale"),
        plan_href: at("/settings/plan"),
        switch_href: at("/settings/switch"),
        off_href: at("/settings/off"),
        delete_href: at("/delete"),
        token_href: visit.href(&format!("/panel/tokens/new?project={name}")),
        problem,
    })
}

/// Says what happened, or shows the settings with what is wrong.
async fn finish(
    app: &AppState,
    visit: &Visit,
    name: &str,
    result: estrade_service::Result<()>,
    text: &str,
) -> Result<Response, PanelError> {
    match result {
        Ok(()) => Ok(visit.done(text, &project_path(name, "/settings"))),
        Err(error) => {
            let problem = Problem::of(error)?;
            let page = settings_page(app, visit, name, Some(problem.text)).await?;
            render_with(problem.status, &page)
        }
    }
}

#[derive(Deserialize)]
struct ScaleForm {
    scale: String,
}

async fn set_scale(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<ScaleForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let Ok(scale) = form.scale.trim().parse::<u32>() else {
        let error = Error::invalid("Instances: must be a whole number");
        return finish(&app, &visit, &name, Err(error), "").await;
    };
    let text = match scale {
        0 => format!("{name} is switched off"),
        1 => format!("{name} runs with one instance"),
        _ => format!("{name} runs with {scale} instances"),
    };
    let scaled = projects::scale_project(&app.core, &visit.scope, &name, scale).await;
    finish(&app, &visit, &name, scaled, &text).await
}

async fn confirm_off(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    let name = &detail.project.project_id;
    let question = Question {
        title: format!("Switch {name} off?"),
        text: "It serves nothing until you switch it on again. Releases, variables, domains and disks stay.".into(),
        label: "Switch off".into(),
        action: project_path(name, "/settings/scale"),
    };
    let tabs = ProjectTabs::new(&visit, &detail.project, ProjectTab::Settings);
    let layout = visit.layout(format!("Switch {name} off"), Section::Projects);
    AskPage::new(layout, question)
        .in_project(tabs)
        .below("Settings", project_path(name, "/settings"))
        .with_field("scale", "0")
        .respond()
}

#[derive(Deserialize)]
struct PlanForm {
    plan: String,
}

async fn set_plan(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<PlanForm>,
) -> Result<Response, PanelError> {
    let resized = projects::resize_project(&app.core, &visit.scope, &name, &form.plan).await;
    let text = format!("{name} is on the plan {}", form.plan);
    finish(&app, &visit, &name, resized, &text).await
}

#[derive(Deserialize)]
struct SwitchForm {
    switch: String,
    on: String,
}

async fn set_switch(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<SwitchForm>,
) -> Result<Response, PanelError> {
    let Some((switch, label)) = find_switch(&form.switch) else {
        return Err(Error::invalid("switch: there is no such switch").into());
    };
    let on = form.on == "true";
    let switched = projects::switch_project(&app.core, &visit.scope, &name, (switch, on)).await;
    let text = format!("{label} is {}", if on { "on" } else { "off" });
    finish(&app, &visit, &name, switched, &text).await
}

async fn restart(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    match app
        .services
        .fleet
        .restart_project(&visit.scope, &name)
        .await
    {
        Ok(()) => Ok(visit.done(format!("{name} restarts"), &project_path(&name, ""))),
        Err(error) => finish(&app, &visit, &name, Err(error), "").await,
    }
}

fn delete_page(visit: &Visit, detail: &ProjectDetail, form: &DeleteForm) -> AskPage {
    let name = &detail.project.project_id;
    let stops = if detail.project.is_deployed {
        "It stops serving at once. "
    } else {
        ""
    };
    let disks = match detail.disks.len() {
        0 => " and logs".to_owned(),
        1 => ", logs and its disk".to_owned(),
        disks => format!(", logs and {disks} disks"),
    };
    let question = Question {
        title: format!("Delete {name}?"),
        text: format!(
            "{stops}Its releases, variables, domains{disks} are removed and cannot be brought back."
        ),
        label: "Delete project".into(),
        action: project_path(name, "/delete"),
    };
    let tabs = ProjectTabs::new(visit, &detail.project, ProjectTab::Settings);
    let layout = visit.layout(format!("Delete {name}"), Section::Projects);
    AskPage::new(layout, question)
        .in_project(tabs)
        .below("Settings", project_path(name, "/settings"))
        .with_name(name, &form.name)
        .with_check(Check {
            name: "purge",
            label: "Free the name at once",
            hint: "Otherwise it stays reserved for you for 30 days, so that nobody else gets visitors meant for you.",
            checked: form.purge.is_some(),
        })
}

async fn confirm_delete(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    delete_page(&visit, &detail, &DeleteForm::default()).respond()
}

#[derive(Default, Deserialize)]
struct DeleteForm {
    /// The name, typed by the person.
    name: String,
    /// Present: anybody may have the name at once.
    purge: Option<String>,
}

async fn delete_project(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<DeleteForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    let project = &detail.project;
    let page = delete_page(&visit, &detail, &form);
    if page.typed_name().is_none() {
        let page = page.refused(WRONG_NAME.to_owned());
        return page.respond_with(StatusCode::BAD_REQUEST);
    }
    // By its id: a project of the same name that was made meanwhile is another one.
    let id = project.id.to_string();
    if form.purge.is_some() {
        projects::purge_project(&app.core, &visit.scope, &id, None).await?;
    } else {
        projects::delete_project(&app.core, &visit.scope, &id, None).await?;
    }
    let text = format!("{} was deleted", project.project_id);
    Ok(visit.done(&text, "/panel/projects"))
}
