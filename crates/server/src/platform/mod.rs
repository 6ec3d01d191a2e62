//! The platform API: projects, releases, networks, teams, accounts.

pub mod account;
pub mod blobs;
pub mod domains;
pub mod events;
pub mod networks;
pub mod projects;
pub mod release_body;
pub mod releases;
mod small_value;
pub mod sources;
pub mod teams;

use crate::app::AppState;
use crate::document;
use crate::health;
use axum::Extension;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

/// Every route of the platform API, and the document that describes them.
pub fn routes() -> (axum::Router<AppState>, OpenApi) {
    let (router, mut openapi) = OpenApiRouter::new()
        .routes(routes!(projects::list_projects, projects::create_project))
        .routes(routes!(projects::update_envs))
        .routes(routes!(projects::read_project, projects::delete_project))
        .routes(routes!(projects::scale_project))
        .routes(routes!(projects::restart_project))
        .routes(routes!(projects::resize_project))
        .routes(routes!(projects::check_availability))
        .routes(routes!(events::list_events))
        .routes(routes!(events::stream_events))
        .routes(routes!(releases::list_releases))
        .routes(routes!(
            releases::create_release,
            releases::create_release_by_get
        ))
        .routes(routes!(blobs::put_blob))
        .routes(routes!(sources::create_source))
        .routes(routes!(releases::read_release))
        .routes(routes!(releases::rollback_release))
        .routes(routes!(releases::cancel_release))
        .routes(routes!(releases::download_source))
        .routes(routes!(releases::read_build_logs))
        .routes(routes!(networks::list_networks, networks::create_network))
        .routes(routes!(domains::list_domains, domains::create_domain))
        .routes(routes!(domains::read_domain, domains::delete_domain))
        .routes(routes!(domains::check_domain))
        .routes(routes!(account::read_me))
        .routes(routes!(account::log_in).layer(Extension(account::LOGIN_BODY)))
        .routes(routes!(account::check_if_exists))
        .routes(routes!(account::create_token))
        .routes(routes!(account::list_tokens))
        .routes(routes!(account::delete_token))
        .routes(routes!(teams::list_teams, teams::create_team))
        .routes(routes!(teams::delete_team))
        .routes(routes!(teams::list_members))
        .routes(routes!(teams::delete_member))
        .routes(routes!(teams::set_role))
        .routes(routes!(teams::create_invitation))
        .routes(routes!(teams::join_team))
        .routes(routes!(health::healthz))
        .routes(routes!(health::platform_readyz))
        .split_for_parts();
    document::complete(&mut openapi, &document::PLATFORM);
    (router, openapi)
}
