//! Projects: the list, a new one, and of one project its overview, releases, deploys and logs.

mod deploy;
mod list;
mod logs;
mod new;
mod overview;
mod printable;
mod release;
mod release_row;
mod releases;

use axum::Router;
use axum::routing::{get, post, put};
use estrade_server::app::AppState;

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/projects", get(list::list_projects))
        .route(
            "/panel/new-project",
            get(new::new_project).post(new::create_project),
        )
        .route("/panel/projects/{project}", get(overview::show_project))
        .route(
            "/panel/projects/{project}/metrics",
            get(overview::show_project),
        )
        .route(
            "/panel/projects/{project}/releases",
            get(releases::list_releases),
        )
        .merge(release_routes())
        .merge(deploy_routes())
        .route("/panel/projects/{project}/logs", get(logs::show_logs))
        .route(
            "/panel/projects/{project}/logs/stream",
            get(logs::follow_logs),
        )
}

fn release_routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/projects/{project}/releases/{release}",
            get(release::show_release),
        )
        .route(
            "/panel/projects/{project}/releases/{release}/log",
            get(release::follow_log),
        )
        .route(
            "/panel/projects/{project}/releases/{release}/log.txt",
            get(release::download_log),
        )
        .route(
            "/panel/projects/{project}/releases/{release}/source",
            get(release::download_source),
        )
        .route(
            "/panel/projects/{project}/releases/{release}/rollback",
            get(release::confirm_rollback).post(release::roll_back),
        )
        .route(
            "/panel/projects/{project}/releases/{release}/cancel",
            get(release::confirm_cancel).post(release::cancel),
        )
}

fn deploy_routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/projects/{project}/deploy",
            get(deploy::show_deploy).post(deploy::deploy_archive),
        )
        .route(
            "/panel/projects/{project}/deploy/image",
            post(deploy::deploy_image),
        )
        .route(
            "/panel/projects/{project}/deploy/files",
            post(deploy::deploy_files),
        )
        .route(
            "/panel/projects/{project}/deploy/blobs/{digest}",
            put(deploy::put_blob),
        )
}
