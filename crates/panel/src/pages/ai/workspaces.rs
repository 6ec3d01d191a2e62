//! Workspaces: listed, made, renamed, limited, deleted.

use super::budget::{self, BudgetBar, parse_budget, parse_rate, refused};
use super::choices::Choice;
use super::snippets::{Snippets, example_model};
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::names::WorkspaceName;
use estrade_model::provider::Preference;
use estrade_model::serde_rules::Patch;
use estrade_model::team::Role;
use estrade_model::workspace::{UpdateWorkspace, WorkspaceDetail};
use estrade_model::{Invalid, Timestamp, WorkspaceId};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::ai::workspaces::{self, MAX_COUNTED_KEYS, WorkspaceOverview};
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/workspaces",
            get(list_workspaces).post(create_workspace),
        )
        .route(
            "/panel/workspaces/{id}",
            get(show_workspace).post(update_workspace),
        )
        .route(
            "/panel/workspaces/{id}/delete",
            get(ask_deletion).post(delete_workspace),
        )
}

/// Calls are counted by the hour.
const HOUR: Duration = Duration::from_hours(1);

struct WorkspaceRow {
    id: WorkspaceId,
    name: String,
    keys: String,
    budget: Option<BudgetBar>,
    /// The hour of its last call.
    last_call: Option<Timestamp>,
    /// That hour is not over yet.
    is_called_now: bool,
    created_at: Timestamp,
}

impl WorkspaceRow {
    fn new(found: &WorkspaceOverview, budget: Option<BudgetBar>, now: Timestamp) -> Self {
        let workspace = &found.detail.workspace;
        Self {
            id: workspace.id,
            name: workspace.name.clone(),
            keys: match found.keys {
                MAX_COUNTED_KEYS.. => format!("{MAX_COUNTED_KEYS} or more"),
                few => few.to_string(),
            },
            budget,
            last_call: found.last_call,
            is_called_now: found.last_call.is_some_and(|hour| hour > now.before(HOUR)),
            created_at: workspace.created_at,
        }
    }
}

#[derive(Template)]
#[template(path = "ai/workspaces.html")]
struct WorkspacesPage {
    layout: Layout,
    workspaces: Vec<WorkspaceRow>,
    is_first: bool,
    next: Option<String>,
    name: String,
    problem: String,
}

impl WorkspacesPage {
    async fn load(
        app: &AppState,
        visit: &Visit,
        before: Option<WorkspaceId>,
    ) -> Result<Self, PanelError> {
        let mut found =
            workspaces::list_overviews(&app.core, &visit.scope, before, PAGE_SIZE + 1).await?;
        let next = split_page(&mut found, |found| found.detail.workspace.id);
        let budgets = found.iter().map(|found| {
            let WorkspaceDetail {
                workspace,
                settings,
            } = &found.detail;
            (workspace.id, settings.budget.clone())
        });
        let mut bars = budget::bars(app, budgets).await?;
        let now = app.core.now();
        let row = |found: &WorkspaceOverview| {
            WorkspaceRow::new(found, bars.remove(&found.detail.workspace.id), now)
        };
        Ok(Self {
            layout: visit.layout("Workspaces", Section::Workspaces),
            workspaces: found.iter().map(row).collect(),
            is_first: before.is_none(),
            next,
            name: String::new(),
            problem: String::new(),
        })
    }
}

async fn list_workspaces(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    render(&WorkspacesPage::load(&app, &visit, list.before()?).await?)
}

#[derive(Deserialize)]
struct NewWorkspaceForm {
    name: String,
}

fn parse_name(name: &str) -> Result<WorkspaceName, Error> {
    let name = name.trim().parse();
    name.map_err(|Invalid(reason)| refused("Name", &reason))
}

async fn create_workspace(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NewWorkspaceForm>,
) -> Result<Response, PanelError> {
    let created = async {
        let name = parse_name(&form.name)?;
        workspaces::create_workspace(&app.core, &visit.scope, name).await
    };
    match created.await {
        Ok(workspace) => {
            let path = format!("/panel/workspaces/{}", workspace.id);
            Ok(visit.done(format!("Workspace {} was created", workspace.name), &path))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = WorkspacesPage::load(&app, &visit, None).await?;
            let page = WorkspacesPage {
                name: form.name,
                problem,
                ..page
            };
            render_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

/// What a person typed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WorkspaceForm {
    name: String,
    rpm: String,
    tpm: String,
    budget: String,
    period: String,
    preference: String,
}

const PREFERENCES: [(Preference, &str); 4] = [
    (Preference::Order, "As configured"),
    (Preference::Price, "Lowest price"),
    (Preference::Latency, "Shortest time to the first byte"),
    (Preference::Throughput, "Most tokens per second"),
];

impl WorkspaceForm {
    fn of(detail: &WorkspaceDetail) -> Self {
        let settings = &detail.settings;
        let text = |number: Option<NonZeroU32>| {
            number.map_or_else(String::new, |number| number.to_string())
        };
        let budget = settings.budget.as_ref();
        Self {
            name: detail.workspace.name.clone(),
            rpm: text(settings.rpm),
            tpm: text(settings.tpm),
            budget: budget.map_or_else(String::new, |budget| budget.amount.to_string()),
            period: budget
                .map_or("monthly", |budget| budget.period.as_str())
                .to_owned(),
            preference: settings.preference.as_str().to_owned(),
        }
    }

    /// The request; a name that is as it was is not checked again, because keys may have made it.
    fn update(&self, present: &WorkspaceDetail) -> Result<UpdateWorkspace, Error> {
        let renamed = self.name.trim() != present.workspace.name;
        let preference = PREFERENCES
            .iter()
            .find(|(known, _)| known.as_str() == self.preference);
        Ok(UpdateWorkspace {
            name: renamed.then(|| parse_name(&self.name)).transpose()?,
            rpm: parse_rate("Requests per minute", &self.rpm)?,
            tpm: parse_rate("Tokens per minute", &self.tpm)?,
            budget: parse_budget(&self.budget, &self.period)?,
            preference: preference.map_or(Patch::Keep, |(known, _)| Patch::Set(*known)),
        })
    }

    fn periods(&self) -> [Choice; 3] {
        [
            ("daily", "each day"),
            ("monthly", "each month"),
            ("total", "in total"),
        ]
        .map(|(value, label)| Choice {
            value: value.to_owned(),
            label: label.to_owned(),
            selected: self.period == value,
        })
    }

    fn preferences(&self) -> [Choice; 4] {
        PREFERENCES.map(|(preference, label)| Choice {
            value: preference.as_str().to_owned(),
            label: label.to_owned(),
            selected: self.preference == preference.as_str(),
        })
    }
}

#[derive(Template)]
#[template(path = "ai/workspace.html")]
struct WorkspacePage {
    layout: Layout,
    id: WorkspaceId,
    name: String,
    created_at: Timestamp,
    budget: Option<BudgetBar>,
    snippets: Snippets,
    form: WorkspaceForm,
    periods: [Choice; 3],
    preferences: [Choice; 4],
    problem: String,
}

impl WorkspacePage {
    async fn load(
        app: &AppState,
        visit: &Visit,
        detail: &WorkspaceDetail,
        form: WorkspaceForm,
        problem: String,
    ) -> Result<Self, PanelError> {
        let workspace = &detail.workspace;
        let budgets = [(workspace.id, detail.settings.budget.clone())];
        let budget = budget::bars(app, budgets).await?.remove(&workspace.id);
        Ok(Self {
            layout: visit.layout(&workspace.name, Section::Workspaces),
            id: workspace.id,
            name: workspace.name.clone(),
            created_at: workspace.created_at,
            budget,
            snippets: Snippets::new(app, workspace.id, &example_model(app, None)),
            periods: form.periods(),
            preferences: form.preferences(),
            form,
            problem,
        })
    }
}

async fn show_workspace(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<WorkspaceId>,
) -> Result<Response, PanelError> {
    let (detail, _) = workspaces::read_workspace(&app.core, &visit.scope, id).await?;
    let form = WorkspaceForm::of(&detail);
    render(&WorkspacePage::load(&app, &visit, &detail, form, String::new()).await?)
}

async fn update_workspace(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<WorkspaceId>,
    SignedForm(form): SignedForm<WorkspaceForm>,
) -> Result<Response, PanelError> {
    let (detail, _) = workspaces::read_workspace(&app.core, &visit.scope, id).await?;
    let updated = async {
        let update = form.update(&detail)?;
        workspaces::update_workspace(&app.core, &visit.scope, id, update, None).await
    };
    match updated.await {
        Ok(updated) => {
            let said = format!("Workspace {} was saved", updated.workspace.name);
            Ok(visit.done(said, &format!("/panel/workspaces/{id}")))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = WorkspacePage::load(&app, &visit, &detail, form, problem).await?;
            render_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

fn deletion_page(visit: &Visit, detail: &WorkspaceDetail) -> AskPage {
    let (id, name) = (detail.workspace.id, &detail.workspace.name);
    let path = format!("/panel/workspaces/{id}");
    let question = Question {
        title: format!("Delete workspace {name}?"),
        text: "Its base URL stops working. Keys that are for it have to be deleted or changed before. This cannot be undone."
            .into(),
        label: "Delete workspace".into(),
        action: format!("{path}/delete"),
    };
    let layout = visit.layout(format!("Delete {name}"), Section::Workspaces);
    AskPage::new(layout, question)
        .below("Workspaces", "/panel/workspaces")
        .below(name, path)
}

async fn ask_deletion(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<WorkspaceId>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, _) = workspaces::read_workspace(&app.core, &visit.scope, id).await?;
    deletion_page(&visit, &detail).respond()
}

async fn delete_workspace(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<WorkspaceId>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (detail, _) = workspaces::read_workspace(&app.core, &visit.scope, id).await?;
    match workspaces::delete_workspace(&app.core, &visit.scope, id, None).await {
        Ok(()) => {
            let said = format!("Workspace {} was deleted", detail.workspace.name);
            Ok(visit.done(said, "/panel/workspaces"))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = deletion_page(&visit, &detail).refused(problem);
            page.respond_with(StatusCode::CONFLICT)
        }
    }
}
