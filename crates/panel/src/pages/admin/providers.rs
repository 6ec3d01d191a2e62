//! Providers of inference, for administrators.

use super::provider_form::{ModelRow, ProviderForm};
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
use estrade_model::Timestamp;
use estrade_model::provider::{ProviderId, ProviderInfo};
use estrade_server::app::AppState;
use estrade_server::provider_sync::ProviderSync;
use estrade_service::Error;
use estrade_service::ai::providers;

const LIST: &str = "/panel/admin/providers";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/admin/providers", get(list_providers))
        .route(
            "/panel/admin/providers/new",
            get(new_provider).post(create_provider),
        )
        .route(
            "/panel/admin/providers/{id}",
            get(show_provider).post(update_provider),
        )
        .route(
            "/panel/admin/providers/{id}/test",
            get(show_provider).post(test_provider),
        )
        .route(
            "/panel/admin/providers/{id}/delete",
            get(ask_delete).post(delete_provider),
        )
}

struct ProviderRow {
    id: String,
    name: String,
    base_url: String,
    models: usize,
    has_key: bool,
    created_at: Timestamp,
}

impl ProviderRow {
    fn new(provider: ProviderInfo) -> Self {
        Self {
            id: provider.id.to_string(),
            models: provider.settings.models.0.len(),
            has_key: provider.has_key,
            created_at: provider.created_at,
            base_url: provider.settings.base_url.into(),
            name: provider.name.into(),
        }
    }
}

#[derive(Template)]
#[template(path = "admin/providers.html")]
struct ProvidersPage {
    layout: Layout,
    rows: Vec<ProviderRow>,
    next: Option<String>,
}

async fn list_providers(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let found =
        providers::list_providers(&app.core, caller, list.before()?, PAGE_SIZE + 1, 0).await;
    let mut found = found?;
    let next = split_page(&mut found, |provider| provider.id);
    render(&ProvidersPage {
        layout: visit.layout("Providers", Section::AdminProviders),
        rows: found.into_iter().map(ProviderRow::new).collect(),
        next,
    })
}

#[derive(Template)]
#[template(path = "admin/provider.html")]
struct ProviderPage {
    layout: Layout,
    title: String,
    /// None for a new one.
    id: Option<String>,
    action: String,
    form: ProviderForm,
    models: Vec<ModelRow>,
    has_key: bool,
    problem: String,
    /// What a test found: a badge and a sentence.
    tested: Option<(&'static str, String)>,
}

fn new_page(visit: &Visit, form: ProviderForm, problem: String) -> ProviderPage {
    ProviderPage {
        layout: visit.layout("New provider", Section::AdminProviders),
        title: "New provider".to_owned(),
        id: None,
        action: format!("{LIST}/new"),
        models: form.rows(),
        form,
        has_key: false,
        problem,
        tested: None,
    }
}

fn page_of(visit: &Visit, provider: &ProviderInfo, form: ProviderForm) -> ProviderPage {
    ProviderPage {
        layout: visit.layout(provider.name.as_str(), Section::AdminProviders),
        title: provider.name.as_str().to_owned(),
        id: Some(provider.id.to_string()),
        action: format!("{LIST}/{}", provider.id),
        models: form.rows(),
        form,
        has_key: provider.has_key,
        problem: String::new(),
        tested: None,
    }
}

fn parse_id(text: &str) -> Result<ProviderId, PanelError> {
    Ok(text.parse().map_err(|_| Error::NotFound("the provider"))?)
}

async fn new_provider(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    visit.scope.caller.require_admin_to_read()?;
    visit.require_recent(&app)?;
    render(&new_page(&visit, ProviderForm::default(), String::new()))
}

async fn create_provider(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<ProviderForm>,
) -> Result<Response, PanelError> {
    visit.scope.caller.require_admin_to_read()?;
    visit.require_recent(&app)?;
    let made = async {
        let new = form.creation()?;
        let check = ProviderSync::check;
        providers::create_provider(&app.core, &visit.scope.caller, new, &check).await
    };
    match made.await {
        Ok(provider) => {
            app.providers.refresh().await;
            let text = format!("The provider {} is there", provider.name.as_str());
            Ok(visit.done(text, &format!("{LIST}/{}", provider.id)))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            render_with(StatusCode::BAD_REQUEST, &new_page(&visit, form, problem))
        }
    }
}

/// Asks for a confirmation before the form is filled in: what was typed would be lost when it is sent.
async fn show_provider(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    visit.scope.caller.require_admin_to_read()?;
    visit.require_recent(&app)?;
    let (caller, id) = (&visit.scope.caller, parse_id(&id)?);
    let (provider, _) = providers::read_provider(&app.core, caller, id).await?;
    render(&page_of(&visit, &provider, ProviderForm::of(&provider)))
}

async fn update_provider(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(form): SignedForm<ProviderForm>,
) -> Result<Response, PanelError> {
    let (caller, id) = (&visit.scope.caller, parse_id(&id)?);
    let (provider, _) = providers::read_provider(&app.core, caller, id).await?;
    visit.require_recent(&app)?;
    let updated = async {
        let update = form.update(&provider)?;
        let check = ProviderSync::check;
        providers::update_provider(&app.core, caller, id, update, None, &check).await
    };
    match updated.await {
        Ok(provider) => {
            app.providers.refresh().await;
            let text = format!("The provider {} was saved", provider.name.as_str());
            Ok(visit.done(text, &format!("{LIST}/{id}")))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let mut page = page_of(&visit, &provider, form);
            page.problem = problem;
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

async fn test_provider(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let (caller, id) = (&visit.scope.caller, parse_id(&id)?);
    let (kept, _) = providers::read_provider(&app.core, caller, id).await?;
    let provider = providers::open_provider(&app.core, caller, id).await?;
    let tested = match ProviderSync::probe(&provider).await {
        Ok(200..300) => ("ok", "It answers, and takes the key.".to_owned()),
        Ok(status @ (401 | 403)) => {
            let text = format!("It answers, but refuses the key (status {status}).");
            ("bad", text)
        }
        Ok(404) => {
            let text = "It answers, but has no list of models; check the base URL if calls fail.";
            ("warn", text.to_owned())
        }
        Ok(status) => ("warn", format!("It answers with status {status}.")),
        Err(reason) => ("bad", format!("The connection fails: {reason}.")),
    };
    let mut page = page_of(&visit, &kept, ProviderForm::of(&kept));
    page.tested = Some(tested);
    render(&page)
}

async fn ask_delete(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let (caller, id) = (&visit.scope.caller, parse_id(&id)?);
    let (provider, _) = providers::read_provider(&app.core, caller, id).await?;
    let name = provider.name.as_str();
    let question = Question {
        title: format!("Remove {name}?"),
        text:
            "Calls that are under way go on. Models that only it offers are not available any more."
                .into(),
        label: "Remove".into(),
        action: format!("{LIST}/{id}/delete"),
    };
    let layout = visit.layout(format!("Remove {name}"), Section::AdminProviders);
    AskPage::new(layout, question)
        .below("Providers", LIST)
        .below(name, format!("{LIST}/{id}"))
        .respond()
}

async fn delete_provider(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let id = parse_id(&id)?;
    providers::delete_provider(&app.core, &visit.scope.caller, id, None).await?;
    app.providers.refresh().await;
    Ok(visit.done("The provider was removed", LIST))
}
