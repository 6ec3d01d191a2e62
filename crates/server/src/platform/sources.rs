//! Platform API: archives that releases are made from.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::auth::Scoped;
use crate::body_reader::BodyLimits;
use crate::error::PlatformError;
use crate::extract::Params;
use crate::idempotency;
use crate::multipart::{MAX_OVERHEAD, Multipart};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use estrade_model::release::SourceCreated;
use estrade_service::Error;
use estrade_service::platform::releases::{self, IncomingContent, ReceivedContent};

/// Names of the field with the archive.
const FIELDS: [&str; 2] = ["file", "source"];

/// The form of an upload.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub struct UploadSource {
    /// A `.tar.gz` or `.zip`; `source` works as well.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Upload a source
///
/// An archive, for releases to be made from: `.tar.gz` or `.zip`, told apart by their first bytes. It
/// is on disk before the answer is sent. Name its id as `sourceID` of a release.
#[utoipa::path(post, path = "/v2/projects/{project_id}/sources", tag = "releases",
    params(("project_id" = String, Path)),
    request_body(content = UploadSource, content_type = "multipart/form-data"),
    responses(
        (status = 200, body = SourceCreated),
        (status = 415, description = "The body is not multipart/form-data"),
        (status = 503, description = "The bucket with the files of releases does not answer (`storage_unavailable`); nothing was changed"),
    ))]
pub async fn create_source(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    request: Request,
) -> Result<Response, PlatformError> {
    // Before the body is read: a stranger's 256 MiB are not worth receiving.
    let incoming = releases::begin_content(&app.core, &scope, &project).await?;
    let (head, body) = request.into_parts();
    let received = receive(Request::from_parts(head.clone(), body), incoming).await?;
    // Of the archive and not of the body: forms have another boundary each time.
    let hash = *received.digest().as_bytes();
    let (caller, state) = (scope.caller.clone(), AppState::clone(&app));
    let work = async move {
        match releases::create_source(&state.core, &scope, received).await {
            Ok(source_id) => Json(SourceCreated { source_id }).into_response(),
            Err(error) => PlatformError::from(error).into_response(),
        }
    };
    Ok(idempotency::execute(&app, &caller, &head, || hash, work).await?)
}

async fn receive(request: Request, incoming: IncomingContent) -> Result<ReceivedContent, ApiError> {
    let most = incoming.max_bytes().saturating_add(MAX_OVERHEAD);
    let mut parts = Multipart::new(request, BodyLimits::upload(most))?;
    let (mut waiting, mut received) = (Some(incoming), None);
    while let Some(name) = parts.next_part().await? {
        if !FIELDS.contains(&name.as_str()) {
            continue;
        }
        let Some(mut incoming) = waiting.take() else {
            return Err(Error::invalid(format!("{name}: send one archive at a time")).into());
        };
        while let Some(piece) = parts.next_piece().await? {
            incoming = incoming.write(&piece).await?;
        }
        received = Some(incoming.end().await?);
    }
    received.ok_or_else(|| {
        Error::invalid("file: is missing; send the archive in a field of this name").into()
    })
}
