//! Teams: members, invitations, the audit log, and moving a project to a team.

mod audit;
mod invitations;
mod join;
mod members;
mod move_project;
mod roles;
mod team_scope;
mod teams;

use axum::Router;
use estrade_server::app::AppState;

pub fn routes() -> Router<AppState> {
    Router::new()
        .merge(teams::routes())
        .merge(members::routes())
        .merge(invitations::routes())
        .merge(join::routes())
        .merge(audit::routes())
        .merge(move_project::routes())
}
