//! The private networks of an owner.

use super::parts::Problem;
use crate::form::NoFields;
use crate::format::filters;
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::{Layout, PanelError, Section, SignedForm, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::Invalid;
use estrade_model::names::NetworkName;
use estrade_model::project::{Network, NetworkId};
use estrade_model::team::Role;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::networks;
use serde::Deserialize;

const PATH: &str = "/panel/networks";
/// What the end of a network means.
const DELETION: &str = "Only a network without projects can be deleted. Its name is free again.";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(PATH, get(list_networks).post(create_network))
        .route(
            "/panel/networks/{id}/delete",
            get(confirm_delete).post(delete_network),
        )
}

#[derive(Template)]
#[template(path = "projects/networks.html")]
struct NetworksPage {
    layout: Layout,
    networks: Vec<Network>,
    next: Option<String>,
    problem: Option<String>,
    /// What was typed.
    name: String,
}

impl NetworksPage {
    fn delete_href(&self, network: &Network) -> String {
        self.layout.href(&format!("{PATH}/{}/delete", network.id))
    }
}

async fn list_networks(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    render(&networks_page(&app, &visit, &list, None, String::new()).await?)
}

async fn networks_page(
    app: &AppState,
    visit: &Visit,
    list: &ListQuery,
    problem: Option<String>,
    name: String,
) -> Result<NetworksPage, PanelError> {
    let (before, count) = (list.before()?, PAGE_SIZE + 1);
    let mut networks = networks::list_networks(&app.core, &visit.scope, before, count, 0).await?;
    let next = split_page(&mut networks, |network| network.id);
    Ok(NetworksPage {
        layout: visit.layout("Networks", Section::Networks),
        networks,
        next: next.map(|id| visit.href(&format!("{PATH}?before={id}"))),
        problem,
        name,
    })
}

#[derive(Deserialize)]
struct NetworkForm {
    name: String,
}

async fn create_network(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NetworkForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let made = match form.name.trim().parse::<NetworkName>() {
        Ok(name) => networks::create_network(&app.core, &visit.scope, name).await,
        Err(Invalid(reason)) => Err(Error::invalid(format!("name: {reason}"))),
    };
    match made {
        Ok(network) => Ok(visit.done(format!("Network {} was created", network.name), PATH)),
        Err(error) => refuse(&app, &visit, error, form.name).await,
    }
}

fn parse_id(text: &str) -> Result<NetworkId, Error> {
    text.parse().map_err(|_| Error::NotFound("the network"))
}

async fn confirm_delete(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let network = networks::read_network(&app.core, &visit.scope, parse_id(&id)?).await?;
    let question = Question {
        title: format!("Delete the network {}?", network.name),
        text: DELETION.into(),
        label: "Delete network".into(),
        action: format!("{PATH}/{}/delete", network.id),
    };
    let layout = visit.layout(format!("Delete {}", network.name), Section::Networks);
    AskPage::new(layout, question)
        .below("Networks", PATH)
        .respond()
}

async fn delete_network(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let id = parse_id(&id)?;
    match networks::delete_network(&app.core, &visit.scope, id).await {
        Ok(()) => Ok(visit.done("The network was deleted", PATH)),
        Err(error) => refuse(&app, &visit, error, String::new()).await,
    }
}

async fn refuse(
    app: &AppState,
    visit: &Visit,
    error: Error,
    name: String,
) -> Result<Response, PanelError> {
    let problem = Problem::of(error)?;
    let list = ListQuery::default();
    let page = networks_page(app, visit, &list, Some(problem.text), name).await?;
    render_with(problem.status, &page)
}
