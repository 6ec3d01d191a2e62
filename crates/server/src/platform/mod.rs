//! The platform API: projects, releases, networks, teams, accounts.

pub mod account;
pub mod audit;
pub mod blobs;
mod bounded_json;
pub mod databases;
pub mod device_login;
pub mod disks;
pub mod domains;
pub mod events;
pub mod logs;
pub mod metrics;
pub mod networks;
pub mod nodes;
pub mod projects;
pub mod release_body;
pub mod releases;
pub mod server_info;
pub mod shell;
pub mod sources;
pub mod switches;
pub mod teams;

use crate::app::AppState;
use crate::document;
use crate::endpoints::{self, Endpoints, endpoints};
use crate::health;
use axum::Extension;
use utoipa::openapi::OpenApi;

/// Every route of the platform API.
pub fn routes() -> axum::Router<AppState> {
    endpoints::serve(all())
}

/// The document that describes them.
pub fn document() -> OpenApi {
    let mut openapi = endpoints::describe(&all());
    document::complete(&mut openapi, &document::PLATFORM);
    openapi
}

fn all() -> Vec<Endpoints> {
    vec![
        endpoints!(projects::list_projects, projects::create_project),
        endpoints!(projects::update_envs),
        endpoints!(projects::read_project, projects::delete_project),
        endpoints!(projects::scale_project),
        endpoints!(projects::restart_project),
        endpoints!(projects::resize_project),
        endpoints!(projects::check_availability),
        endpoints!(switches::switch_zero_downtime),
        endpoints!(switches::switch_default_subdomain),
        endpoints!(switches::switch_read_only),
        endpoints!(switches::switch_fixed_ip),
        endpoints!(events::list_events),
        endpoints!(events::stream_events),
        endpoints!(logs::read_logs),
        endpoints!(logs::list_logs),
        endpoints!(releases::list_releases),
        endpoints!(releases::create_release, releases::create_release_by_get),
        endpoints!(blobs::put_blob),
        endpoints!(sources::create_source),
        endpoints!(releases::read_release),
        endpoints!(releases::rollback_release),
        endpoints!(releases::cancel_release),
        endpoints!(releases::download_source),
        endpoints!(releases::read_build_logs),
        endpoints!(networks::list_networks, networks::create_network),
        endpoints!(networks::read_network, networks::delete_network),
        endpoints!(databases::list_databases, databases::create_database),
        endpoints!(domains::list_domains, domains::create_domain),
        endpoints!(domains::read_domain, domains::delete_domain),
        endpoints!(domains::check_domain),
        endpoints!(disks::list_disks, disks::create_disk),
        endpoints!(disks::read_disk, disks::delete_disk),
        endpoints!(disks::resize_disk),
        endpoints!(metrics::read_metrics),
        endpoints!(metrics::summarize_metrics),
        endpoints!(metrics::plot_metrics),
        endpoints!(shell::open_shell),
        endpoints!(account::read_me),
        endpoints!(account::log_in).wrapped(|serve| serve.layer(Extension(account::LOGIN_BODY))),
        endpoints!(account::check_if_exists),
        endpoints!(device_login::start_device_login)
            .wrapped(|serve| serve.layer(Extension(device_login::DEVICE_BODY))),
        endpoints!(device_login::redeem_device_code)
            .wrapped(|serve| serve.layer(Extension(device_login::DEVICE_BODY))),
        endpoints!(account::create_token),
        endpoints!(account::list_tokens),
        endpoints!(account::delete_token),
        endpoints!(audit::list_audit),
        endpoints!(teams::list_teams, teams::create_team),
        endpoints!(teams::delete_team),
        endpoints!(teams::list_members),
        endpoints!(teams::delete_member),
        endpoints!(teams::set_role),
        endpoints!(teams::create_invitation),
        endpoints!(teams::join_team),
        endpoints!(nodes::list_nodes),
        endpoints!(server_info::read_server_info),
        endpoints!(health::healthz),
        endpoints!(health::platform_readyz),
    ]
}
