//! Platform API: what the instances of a project use, as numbers and as a picture.

mod plot;

use crate::app::AppState;
use crate::auth::Scoped;
use crate::error::PlatformError;
use crate::extract::Params;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use estrade_model::metrics::{MetricSummary, ProjectMetrics};

/// Content-Security-Policy: an SVG that is opened on its own loads nothing and runs no script.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
const SVG: HeaderValue = HeaderValue::from_static("image/svg+xml");

/// Read what a project uses
///
/// All its instances together, in the last hour.
#[utoipa::path(get, path = "/v1/projects/{project_id}/metrics", tag = "metrics", params(("project_id" = String, Path)), responses(
    (status = 200, body = ProjectMetrics), (status = 404),
))]
pub async fn read_metrics(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
) -> Result<Json<ProjectMetrics>, PlatformError> {
    let (_, metrics) = app.services.meter.read_metrics(&scope, &project).await?;
    Ok(Json(metrics))
}

/// Read what a project uses now
///
/// One number for each: CPU, memory, disk and network of its instances, and what its visitors were given.
#[utoipa::path(get, path = "/v1/projects/{project_id}/metrics/summary", tag = "metrics", params(("project_id" = String, Path)), responses(
    (status = 200, body = MetricSummary), (status = 404),
))]
pub async fn summarize_metrics(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
) -> Result<Json<MetricSummary>, PlatformError> {
    Ok(Json(
        app.services.meter.read_summary(&scope, &project).await?,
    ))
}

/// See what a project uses
///
/// The last hour of CPU and memory as a picture, for light and dark screens.
#[utoipa::path(get, path = "/v1/projects/{project_id}/metrics.svg", tag = "metrics", params(("project_id" = String, Path)), responses(
    (status = 200, content_type = "image/svg+xml", body = String), (status = 404),
))]
pub async fn plot_metrics(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
) -> Result<Response, PlatformError> {
    let (name, metrics) = app.services.meter.read_metrics(&scope, &project).await?;
    let picture = plot::draw(&name, &metrics, app.core.now());
    let headers = [
        (header::CONTENT_TYPE, SVG),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    Ok((headers, picture).into_response())
}
