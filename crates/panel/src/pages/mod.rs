//! The pages, one module per area; each has its routes, its handlers and the data of its templates.

pub mod account;
pub mod admin;
pub mod ai;
pub mod ask;
pub mod device;
pub mod home;
pub mod project_settings;
pub mod project_tabs;
pub mod projects;
pub mod sessions;
pub mod sign_in;
pub mod team;
pub mod tokens;
pub mod welcome;

use axum::Router;
use estrade_server::app::AppState;

/// Every page.
pub fn routes() -> Router<AppState> {
    Router::new()
        .merge(home::routes())
        .merge(sign_in::routes())
        .merge(welcome::routes())
        .merge(account::routes())
        .merge(sessions::routes())
        .merge(tokens::routes())
        .merge(device::routes())
        .merge(projects::routes())
        .merge(project_settings::routes())
        .merge(ai::routes())
        .merge(team::routes())
        .merge(admin::routes())
}
