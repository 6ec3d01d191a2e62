//! The variables of a project: values are hidden until one is asked for, and every change is shown before it is saved.

use super::env_diff::{self, EnvChange, EnvDiff};
use super::parts::{Problem, project_path};
use crate::page::{render, render_with};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::project::{EnvVar, MAX_ENVS, ProjectDetail};
use estrade_model::team::Role;
use estrade_model::{Invalid, names::EnvKey};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::{envs, projects};
use serde::Deserialize;

/// Most bytes of the changes on the review page: the form that brings them back, where a byte may take three, must not
/// be larger than a form can be.
const MAX_CHANGES_BYTES: usize = 256 * 1024;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/projects/{name}/environment",
            get(show_environment).post(save_changes),
        )
        .route(
            "/panel/projects/{name}/environment/review",
            post(review_changes),
        )
}

#[derive(Template)]
#[template(path = "projects/environment.html")]
struct EnvironmentPage {
    layout: Layout,
    tabs: ProjectTabs,
    rows: Vec<VariableRow>,
    max: usize,
    review_href: String,
    /// What is wrong with what was sent, and what was sent.
    problems: Vec<String>,
    draft: ReviewForm,
}

struct VariableRow {
    key: String,
    /// The value, if it was asked for.
    shown: Option<String>,
    show_href: String,
    hide_href: String,
}

impl VariableRow {
    fn new(visit: &Visit, name: &str, env: EnvVar, show: Option<&str>) -> Self {
        let key = env.key.to_string();
        let is_shown = visit.scope.role >= Role::Developer && show == Some(&*key);
        let page = project_path(name, "/environment");
        Self {
            // Nothing in a name needs to be encoded.
            show_href: visit.href(&format!("{page}?show={key}#{key}")),
            hide_href: visit.href(&page),
            shown: is_shown.then_some(env.value),
            key,
        }
    }

    /// Enough lines for the value, within reason.
    fn lines(&self) -> usize {
        let lines = self.shown.as_deref().map_or(1, |it| it.lines().count());
        lines.clamp(1, 12)
    }
}

#[derive(Deserialize)]
struct ShowQuery {
    /// The one variable whose value is shown.
    show: Option<String>,
}

async fn show_environment(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    Query(query): Query<ShowQuery>,
) -> Result<Response, PanelError> {
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    let page = environment_page(
        &visit,
        detail,
        query.show.as_deref(),
        Vec::new(),
        ReviewForm::default(),
    );
    render(&page)
}

fn environment_page(
    visit: &Visit,
    detail: ProjectDetail,
    show: Option<&str>,
    problems: Vec<String>,
    draft: ReviewForm,
) -> EnvironmentPage {
    let name = detail.project.project_id.clone();
    let row = |env| VariableRow::new(visit, &name, env, show);
    EnvironmentPage {
        layout: visit.layout(format!("Environment of {name}"), Section::Projects),
        tabs: ProjectTabs::new(visit, &detail.project, ProjectTab::Environment),
        rows: detail.envs.into_iter().map(row).collect(),
        max: MAX_ENVS,
        review_href: visit.href(&project_path(&name, "/environment/review")),
        problems,
        draft,
    }
}

/// What a person wants to change: one variable, or what the text of a `.env` file says.
#[derive(Default, Deserialize)]
struct ReviewForm {
    #[serde(default)]
    change: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    text: String,
    /// Present: variables that the text does not name are removed.
    replace: Option<String>,
}

impl ReviewForm {
    fn changes(&self, current: &[EnvVar]) -> Result<Vec<EnvChange>, Vec<String>> {
        if self.change == "paste" {
            let line = |error: estrade_model::dotenv::LineError| {
                format!("Line {}: {}.", error.line, error.message)
            };
            return env_diff::from_text(&self.text, self.replace.is_some(), current)
                .map_err(|errors| errors.into_iter().map(line).collect());
        }
        let key = self.key.trim().parse::<EnvKey>();
        let key = key.map_err(|Invalid(reason)| vec![format!("Name: {reason}.")])?;
        // Forms send every line end as CR LF.
        let value = self.value.replace("\r\n", "\n");
        let value = (self.change != "remove").then_some(value);
        Ok(vec![EnvChange { key, value }])
    }
}

#[derive(Template)]
#[template(path = "projects/environment_review.html")]
struct ReviewPage {
    layout: Layout,
    tabs: ProjectTabs,
    diff: EnvDiff,
    /// The changes as JSON, and the state of the variables that they were compared with.
    changes: String,
    state: String,
    /// Whether the variables were changed by somebody else since the last comparison.
    is_conflict: bool,
    is_deployed: bool,
    save_href: String,
    back_href: String,
}

async fn review_changes(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<ReviewForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    match form.changes(&detail.envs) {
        Ok(changes) => {
            let page = review_page(&visit, &detail, &changes, false)?;
            if page.changes.len() > MAX_CHANGES_BYTES {
                let problem = format!(
                    "This is more than {} KiB at once: set fewer variables at a time.",
                    MAX_CHANGES_BYTES / 1024
                );
                let page = environment_page(&visit, detail, None, vec![problem], form);
                return render_with(StatusCode::PAYLOAD_TOO_LARGE, &page);
            }
            render(&page)
        }
        Err(problems) => {
            let page = environment_page(&visit, detail, None, problems, form);
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

fn review_page(
    visit: &Visit,
    detail: &ProjectDetail,
    changes: &[EnvChange],
    is_conflict: bool,
) -> Result<ReviewPage, PanelError> {
    let name = &detail.project.project_id;
    let page = visit.href(&project_path(name, "/environment"));
    Ok(ReviewPage {
        layout: visit.layout(format!("Review changes of {name}"), Section::Projects),
        tabs: ProjectTabs::new(visit, &detail.project, ProjectTab::Environment),
        diff: EnvDiff::new(&detail.envs, changes),
        changes: serde_json::to_string(changes).map_err(Error::internal)?,
        state: env_diff::state_of(&detail.envs),
        is_conflict,
        is_deployed: detail.project.is_deployed,
        save_href: page.clone(),
        back_href: page,
    })
}

#[derive(Deserialize)]
struct SaveForm {
    changes: String,
    state: String,
}

async fn save_changes(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<SaveForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let changes: Vec<EnvChange> = serde_json::from_str(&form.changes).map_err(|_| {
        Error::invalid("changes: are not what the review page sent; go back and repeat")
    })?;
    let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
    if env_diff::state_of(&detail.envs) != form.state {
        return conflict(&visit, &detail, &changes);
    }
    let summary = EnvDiff::new(&detail.envs, &changes).summary();
    let (expected, is_deployed) = (env_diff::ids_of(&detail.envs), detail.project.is_deployed);
    let variables = env_diff::apply(detail.envs, changes.clone());
    let saved =
        envs::update_envs_if_unchanged(&app.core, &visit.scope, &name, variables, expected).await;
    match saved {
        Ok(_) => {
            let note = if is_deployed {
                "; a release with them is on its way"
            } else {
                ""
            };
            let text = format!("Environment saved: {summary}{note}");
            Ok(visit.done(&text, &project_path(&name, "/environment")))
        }
        Err(Error::PreconditionFailed) => {
            let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
            conflict(&visit, &detail, &changes)
        }
        Err(error) => {
            let problem = Problem::of(error)?;
            let (detail, _) = projects::read_project(&app.core, &visit.scope, &name).await?;
            let draft = ReviewForm::default();
            let page = environment_page(&visit, detail, None, vec![problem.text], draft);
            render_with(problem.status, &page)
        }
    }
}

/// Shows the same changes against what is there now.
fn conflict(
    visit: &Visit,
    detail: &ProjectDetail,
    changes: &[EnvChange],
) -> Result<Response, PanelError> {
    let page = review_page(visit, detail, changes, true)?;
    render_with(StatusCode::CONFLICT, &page)
}
