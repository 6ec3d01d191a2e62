//! A new project.

use crate::format;
use crate::page::render_with;
use crate::{Layout, PanelError, Section, SignedForm, Visit, render};
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use estrade_model::names::ProjectName;
use estrade_model::platform::Platform;
use estrade_model::project::CreateProject;
use estrade_model::team::Role;
use estrade_server::api_error::ApiError;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::{networks, projects};
use serde::Deserialize;

/// Networks that the form offers.
const MAX_NETWORKS: u32 = 100;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct NewProjectForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    platform: String,
    #[serde(default)]
    plan: String,
    #[serde(default)]
    network: String,
}

impl Default for NewProjectForm {
    fn default() -> Self {
        Self {
            name: String::new(),
            platform: Platform::Static.as_str().to_owned(),
            plan: String::new(),
            network: "default".to_owned(),
        }
    }
}

struct Choice {
    value: String,
    label: String,
    hint: String,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "projects/new.html")]
struct NewProjectPage {
    layout: Layout,
    name: String,
    /// What is wrong with the name, or "".
    name_problem: String,
    /// What is wrong with the rest, or "".
    problem: String,
    host: String,
    platforms: Vec<Choice>,
    plans: Vec<Choice>,
    networks: Vec<Choice>,
}

pub(super) async fn new_project(
    State(app): State<AppState>,
    visit: Visit,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    render(&page(&app, &visit, &NewProjectForm::default()).await?)
}

async fn page(
    app: &AppState,
    visit: &Visit,
    form: &NewProjectForm,
) -> Result<NewProjectPage, PanelError> {
    let networks = networks::list_networks(&app.core, &visit.scope, None, MAX_NETWORKS, 0).await?;
    let settings = &app.core.settings;
    let mut plans: Vec<_> = settings.plans.all().iter().collect();
    plans.sort_by_key(|(_, plan)| (plan.memory_mb, plan.cpus));
    let plans = plans.into_iter().enumerate().map(|(index, (id, plan))| {
        let memory = format::memory(plan.memory_mb);
        let cores = if plan.cpus == 1 { "core" } else { "cores" };
        Choice {
            chosen: form.plan == *id || (form.plan.is_empty() && index == 0),
            label: id.to_owned(),
            hint: format!(
                "{memory} memory, {} {cores}, {} GB disk",
                plan.cpus, plan.disk_gb
            ),
            value: id.to_owned(),
        }
    });
    let networks = networks.into_iter().map(|network| Choice {
        chosen: form.network == network.name,
        label: network.name.clone(),
        hint: String::new(),
        value: network.name,
    });
    let platforms = Platform::ALL.into_iter().map(|(platform, name)| Choice {
        chosen: form.platform == name,
        value: name.to_owned(),
        label: platform_label(platform).to_owned(),
        hint: platform_hint(platform).to_owned(),
    });
    let url = settings.project_url("");
    Ok(NewProjectPage {
        layout: visit.layout("New project", Section::Projects),
        name: form.name.clone(),
        name_problem: String::new(),
        problem: String::new(),
        host: url
            .split_once("://")
            .map_or("", |(_, host)| host)
            .to_owned(),
        platforms: platforms.collect(),
        plans: plans.collect(),
        networks: networks.collect(),
    })
}

fn platform_label(platform: Platform) -> &'static str {
    match platform {
        Platform::Static => "Static site",
        Platform::Docker => "Docker",
        Platform::Node => "Node.js",
        Platform::Next => "Next.js",
        Platform::React => "React",
        Platform::Vue => "Vue",
        Platform::Angular => "Angular",
        Platform::Python => "Python",
        Platform::Django => "Django",
        Platform::Flask => "Flask",
        Platform::Php => "PHP",
        Platform::Laravel => "Laravel",
        Platform::Go => "Go",
        Platform::Dotnet => ".NET",
        Platform::Auto => "Automatic",
    }
}

fn platform_hint(platform: Platform) -> &'static str {
    match platform {
        Platform::Static => "HTML, CSS and files, served as they are",
        Platform::Docker => "a Dockerfile, or an image of a registry",
        Platform::Node => "package.json with a start script",
        Platform::Next => "built and started with next",
        Platform::React | Platform::Vue | Platform::Angular => {
            "built, then served as a static site"
        }
        Platform::Python => "a Procfile or main.py",
        Platform::Django | Platform::Flask => "served by gunicorn",
        Platform::Php => "index.php",
        Platform::Laravel => "composer.json and artisan",
        Platform::Go => "go.mod",
        Platform::Dotnet => "a .csproj",
        Platform::Auto => "each release is built as what its sources are",
    }
}

pub(super) async fn create_project(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NewProjectForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let made = match read(&form) {
        Ok(new) => projects::create_project(&app.core, &visit.scope, new).await,
        Err(refused) => Err(refused),
    };
    let error = match made {
        Ok(project) => {
            let name = &project.project_id;
            let path = format!("/panel/projects/{name}/deploy");
            return Ok(visit.done(
                format!("Project {name} is ready for its first release"),
                &path,
            ));
        }
        Err(error) => error,
    };
    let is_about_name = match &error {
        Error::Conflict { .. } => true,
        Error::Invalid { code, .. } => *code == NAME,
        _ => false,
    };
    let status = ApiError::from(error);
    let code = status.status();
    let message = PanelError::from(status).correctable()?;
    let mut page = page(&app, &visit, &form).await?;
    if is_about_name {
        page.name_problem = message;
    } else {
        page.problem = message;
    }
    render_with(code.max(StatusCode::BAD_REQUEST), &page)
}

/// The code of a name that no project can have.
const NAME: &str = "name";

fn read(form: &NewProjectForm) -> Result<CreateProject, Error> {
    let name: Result<ProjectName, _> = form.name.trim().parse();
    let name = name.map_err(|invalid| Error::Invalid {
        code: NAME,
        message: invalid.0,
    })?;
    Ok(CreateProject {
        name,
        platform: form.platform.parse()?,
        plan_id: form.plan.clone(),
        bundle_plan_id: None,
        network: Some(form.network.clone()).filter(|network| !network.is_empty()),
        read_only_root: None,
    })
}
