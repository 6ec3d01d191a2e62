//! The models that there are, and what they cost.

use crate::error::PanelError;
use crate::format::{money, number};
use crate::layout::{Layout, Section};
use crate::page::render;
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::call::Price;
use estrade_server::app::AppState;
use serde::Deserialize;

/// Models of a page.
const MAX_MODELS: usize = 200;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/panel/models", get(list_models))
}

struct ModelRow {
    id: String,
    description: Option<&'static str>,
    context: String,
    /// Provider, and the price of a million tokens sent and received.
    offers: Vec<(String, String, String)>,
}

#[derive(Template)]
#[template(path = "ai/models.html")]
struct ModelsPage {
    layout: Layout,
    models: Vec<ModelRow>,
    search: String,
    found: String,
    is_cut: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelsQuery {
    search: String,
}

async fn list_models(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<ModelsQuery>,
) -> Result<Response, PanelError> {
    let search: String = query.search.trim().chars().take(100).collect();
    let lower = search.to_lowercase();
    let mut listed = app.gateway.listed_models(None);
    listed.retain(|model| model.id.to_lowercase().contains(&lower));
    let price =
        |(provider, Price { prompt, completion }): &(_, Price)| -> (String, String, String) {
            let provider: &std::sync::Arc<str> = provider;
            (provider.to_string(), money(*prompt), money(*completion))
        };
    let row = |model: &estrade_server::ai::models::ListedModel| ModelRow {
        id: model.id.to_string(),
        description: model.description,
        context: model
            .context_length
            .map_or_else(|| "–".to_owned(), |length| number(length.into())),
        offers: model.offers.iter().map(price).collect(),
    };
    render(&ModelsPage {
        layout: visit.layout("Models", Section::Models),
        models: listed.iter().take(MAX_MODELS).map(row).collect(),
        found: number(listed.len() as u64),
        is_cut: listed.len() > MAX_MODELS,
        search,
    })
}
