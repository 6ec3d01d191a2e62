//! Platform API: contents that are sent ahead of the release that names them.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::auth::Scoped;
use crate::body_reader::{BodyLimits, BodyReader};
use crate::error::PlatformError;
use crate::extract::Params;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use estrade_blobs::{BadDigest, Digest};
use estrade_service::{Error, Scope, platform::releases};

/// A content that is kept.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = KeptBlob)]
pub struct StoredContent {
    /// Its BLAKE3 hash.
    #[schema(value_type = String, min_length = 64, max_length = 64)]
    digest: Digest,
    /// How long it is, in bytes.
    size: u64,
}

/// Send a content ahead of a release
///
/// For what a release named by its digest and was told to be missing (409 `missing_files`). The body
/// is the content itself, of any type, and must have the digest of the path. It is on disk before the
/// answer is sent, and kept for a day unless a release of the project has it.
#[utoipa::path(put, path = "/v2/projects/{project_id}/blobs/{digest}", tag = "releases",
    params(("project_id" = String, Path), ("digest" = String, Path, description = "BLAKE3, 64 lower-case hex digits")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = StoredContent, description = "The project had it already"),
        (status = 201, body = StoredContent),
        (status = 400, description = "The body does not have this digest (`digest_mismatch`), or the digest is none"),
        (status = 503, description = "The bucket with the files of releases does not answer (`storage_unavailable`); nothing was changed"),
    ))]
pub async fn put_blob(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, digest)): Params<(String, String), PlatformError>,
    request: Request,
) -> Result<(StatusCode, Json<StoredContent>), PlatformError> {
    let (is_new, kept) = receive_blob(&app, &scope, &project, &digest, request).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(kept)))
}

/// Keeps the body of a request under its digest; true when the project did not have it.
pub async fn receive_blob(
    app: &AppState,
    scope: &Scope,
    project: &str,
    digest: &str,
    request: Request,
) -> Result<(bool, StoredContent), ApiError> {
    // Before the body is read: a stranger's 256 MiB are not worth receiving.
    let mut incoming = releases::begin_content(&app.core, scope, project).await?;
    let digest: Digest = digest
        .parse()
        .map_err(|bad: BadDigest| Error::invalid(format!("digest: {bad}")))?;
    let mut reader = BodyReader::new(request, BodyLimits::upload(incoming.max_bytes()))?;
    reader.reserve_buffer()?;
    while let Some(piece) = reader.next().await? {
        incoming = incoming.write(&piece).await?;
    }
    let received = incoming.end().await?;
    let size = received.size();
    let is_new = releases::keep_upload(&app.core, scope, received, digest).await?;
    Ok((is_new, StoredContent { digest, size }))
}
