//! Administration: accounts, providers and the state of the installation.

mod accounts;
mod provider_form;
mod providers;
mod status;

use axum::Router;
use estrade_server::app::AppState;

pub fn routes() -> Router<AppState> {
    Router::new()
        .merge(accounts::routes())
        .merge(providers::routes())
        .merge(status::routes())
}
