//! Pages that change a project: environment, domains, disks, settings, and the networks of its owner.

mod disks;
mod domains;
mod env_diff;
mod environment;
mod networks;
mod parts;
mod settings;

use axum::Router;
use estrade_server::app::AppState;

/// The pages of this module.
pub fn routes() -> Router<AppState> {
    Router::new()
        .merge(environment::routes())
        .merge(domains::routes())
        .merge(disks::routes())
        .merge(settings::routes())
        .merge(networks::routes())
}
