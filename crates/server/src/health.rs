//! Is it alive, is it ready, and what do its numbers say: the routes for machines that watch us.

use crate::app::{AppState, MetricsAccess};
use crate::auth::authenticate;
use crate::error::ErrorShape;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use estrade_service::Error;
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

/// A database that takes longer to say anything is down, for those who watch.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answer of `/healthz` and `/readyz`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok`, `starting` or `unavailable`.
    status: &'static str,
    /// `up` or `down`; absent where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'static str>,
}

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Health)), security(()))]
pub async fn healthz() -> Json<Health> {
    Json(Health {
        status: "ok",
        database: None,
    })
}

/// Can the platform API do its work? Needs every listener and the database.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Health)), security(()))]
pub async fn platform_readyz(State(app): State<AppState>) -> Response {
    readiness(&app, StatusCode::SERVICE_UNAVAILABLE).await
}

/// Can the AI API do its work? Keys that were used here keep working without the database.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Health)), security(()))]
pub async fn ai_readyz(State(app): State<AppState>) -> Response {
    readiness(&app, StatusCode::OK).await
}

async fn readiness(app: &AppState, without_database: StatusCode) -> Response {
    let answers = timeout(PATIENCE, app.core.db.ping()).await;
    let answers = answers.is_ok_and(|ping| ping.is_ok());
    let (code, status, database) = match (app.is_ready(), answers) {
        (true, true) => (StatusCode::OK, "ok", "up"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "starting", "up"),
        (true, false) if without_database.is_success() => (without_database, "ok", "down"),
        (_, false) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "down"),
    };
    (
        code,
        Json(Health {
            status,
            database: Some(database),
        }),
    )
        .into_response()
}

/// The numbers, for Prometheus.
pub async fn metrics<E: ErrorShape>(
    app: AppState,
    access: MetricsAccess,
    request: Request,
) -> Result<Response, E> {
    match access {
        MetricsAccess::Public => {}
        MetricsAccess::Off => return Err(Problem::NoRoute.into()),
        MetricsAccess::Admin => {
            let caller = authenticate(&app, &mut request.into_parts().0).await?;
            if !caller.admin {
                return Err(Error::Forbidden("only administrators read the metrics".into()).into());
            }
        }
    }
    Ok(app.metrics.response())
}
