//! Platform API, for administrators: the nodes that share the database.

use crate::app::AppState;
use crate::auth::Auth;
use crate::error::PlatformError;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::extract::State;
use axum::response::Response;
use estrade_model::id::kind;
use estrade_model::node::Node;

/// `GET /v1/admin/nodes`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct NodeList {
    nodes: Vec<Node>,
}

/// List nodes
///
/// The servers that share the database, as this one sees them, newest first. One that is stopped leaves the list at
/// once; one that was killed, or does not reach the database while others do, is `down` after ten seconds at most, and
/// leaves the list an hour later. For administrators.
#[utoipa::path(get, path = "/v1/admin/nodes", tag = "admin", params(Paged), responses((status = 200, body = NodeList)))]
pub async fn list_nodes(
    State(app): State<AppState>,
    Auth(caller): Auth<PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let fetch = move |window: Window<kind::Node>| {
        let (app, caller) = (AppState::clone(&app), caller.clone());
        async move {
            let mut nodes = app.services.nodes.list_nodes(&caller).await?;
            nodes.retain(|node| window.before.is_none_or(|before| node.id < before));
            let skip = usize::try_from(window.skip).unwrap_or(usize::MAX);
            let page = nodes.into_iter().skip(skip);
            Ok(page.take(window.count as usize).collect())
        }
    };
    let frame = Frame::new(r#"{"nodes":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |node: &Node| node.id).await?)
}
