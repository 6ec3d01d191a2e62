//! Platform API: releases of a project.

use super::release_body;
use crate::api_error::ApiError;
use crate::app::AppState;
use crate::auth::Scoped;
use crate::body::require_json;
use crate::body_reader::{BodyLimits, has_body};
use crate::conditional::ETag;
use crate::context::RequestContext;
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::idempotency;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use crate::spool::Spool;
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use estrade_model::id::kind;
use estrade_model::release::{BuildLogs, ReleaseBody, ReleaseCreated, ReleaseList, ReleaseState};
use estrade_model::{Invalid, ReleaseId};
use estrade_service::{Error, Scope, platform::releases};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Longest that `?timeout=` makes a request wait, in seconds.
const MAX_WAIT_SECONDS: u64 = 300;

/// Large bodies that are read at once. One file is in memory whole, in up to three copies (as it
/// stands in the JSON, as a text, decoded), and may be as large as the body.
static READ_PERMITS: Semaphore = Semaphore::const_new(2);

/// List releases
///
/// Newest first.
#[utoipa::path(get, path = "/v1/projects/{project_id}/releases", tag = "releases", params(("project_id" = String, Path), Paged), responses((status = 200, body = ReleaseList)))]
pub async fn list_releases(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    Ok(list(app, scope, project, &paging).await?)
}

async fn list(
    app: AppState,
    scope: Scope,
    project: String,
    paging: &Paging<PlatformError>,
) -> Result<Response, ApiError> {
    let summary = releases::summarize_releases(&app.core, &scope, &project).await?;
    let fetch = move |window: Window<kind::Release>| {
        let (app, scope, project) = (AppState::clone(&app), scope.clone(), project.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            releases::list_releases(&app.core, &scope, &project, before, count, skip).await
        }
    };
    let current = serde_json::to_string(&summary.current).map_err(Error::internal)?;
    let open = format!(
        r#"{{"platform":"{}","readyReleasesCount":{},"total":{},"currentRelease":{current},"releases":["#,
        summary.platform, summary.ready, summary.total,
    );
    listing::respond(Frame::new(open, "]}"), paging, fetch, |release| release.id).await
}

/// What a create-release request may say; the document's view of `release_body`.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({"files": [{"path": "index.html", "data": "<h1>Hello</h1>"}]}))]
#[expect(
    dead_code,
    reason = "only its description is used; release_body reads the request"
)]
pub struct CreateRelease {
    /// The platform, when it differs from the project's.
    #[schema(example = "static")]
    r#type: Option<estrade_model::platform::Platform>,
    /// The port it listens on, as a number or a text.
    port: Option<estrade_model::port::Port>,
    /// Its files; exactly one of `files`, `sourceID` and `image` is needed.
    files: Option<Vec<ReleaseFile>>,
    /// The id of an uploaded archive.
    #[serde(rename = "sourceID")]
    source_id: Option<String>,
    /// The name of a container image.
    image: Option<String>,
    /// How a static site is served: `root` (the folder that is served), `spa`, `cleanUrls`, `headers`.
    #[schema(value_type = Option<Object>)]
    platform_config: Option<serde_json::Value>,
    /// Environment variables of this release, beside those of the project: an object of names and values, or
    /// a list of `{key, value}`. `envVars` means the same.
    #[schema(value_type = Option<Object>)]
    envs: Option<serde_json::Value>,
    /// The project's disks that its instances see.
    disks: Option<Vec<DiskMount>>,
    /// What its maker says of it.
    #[schema(max_length = 1000)]
    message: Option<String>,
    /// The commit it is made from.
    #[schema(value_type = Option<Object>)]
    git_info: Option<serde_json::Value>,
}

/// One file of a release.
#[derive(utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "only its description is used; release_body reads the request"
)]
pub struct ReleaseFile {
    /// Relative path, with `/` between segments.
    #[schema(example = "index.html")]
    path: String,
    /// The content, as text or in base64.
    #[schema(example = "<h1>Hello</h1>")]
    data: Option<String>,
    /// `base64` for binary content.
    #[schema(example = "base64")]
    encoding: Option<String>,
    /// Instead of `data`: the BLAKE3 hash of a content that an earlier release of the project has, or
    /// that was sent ahead. What is not there is answered as 409 `missing_files`.
    #[schema(min_length = 64, max_length = 64)]
    digest: Option<String>,
    /// How long the content is, in bytes; needed with `digest`.
    size: Option<u64>,
}

/// Where a release mounts a disk.
#[derive(utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "only its description is used; the service reads the settings"
)]
#[schema(rename_all = "camelCase")]
pub struct DiskMount {
    /// The disk's name.
    #[schema(example = "media")]
    name: String,
    /// An absolute path.
    #[schema(example = "/app/media")]
    mount_to: String,
}

/// Create a release
///
/// From files, an uploaded archive or an image. The files are on disk before the answer is sent.
#[utoipa::path(post, path = "/v2/projects/{project_id}/releases", tag = "releases", params(("project_id" = String, Path)), request_body = CreateRelease, responses(
    (status = 201, body = ReleaseCreated),
    (status = 503, description = "The bucket with the files of releases does not answer (`storage_unavailable`); nothing was changed"),
))]
pub async fn create_release(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    request: Request,
) -> Result<Response, PlatformError> {
    require_json(request.headers())?;
    Ok(create(app, scope, project, request, StatusCode::CREATED).await?)
}

/// The answer of the GET: a list without a body, the new release with one.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum ListedOrCreated {
    /// Without a body.
    Listed(ReleaseList),
    /// With a body.
    Created(ReleaseCreated),
}

/// Create a release with GET, or list releases
///
/// The interface gives GET for creating a release, so it works; POST is the better way, because
/// proxies drop the bodies of GETs. Without a body it lists, like v1.
#[utoipa::path(get, path = "/v2/projects/{project_id}/releases", tag = "releases", params(("project_id" = String, Path), Paged), request_body = Option<CreateRelease>, responses((status = 200, body = ListedOrCreated), (status = 409), (status = 422)))]
pub async fn create_release_by_get(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    request: Request,
) -> Result<Response, PlatformError> {
    if !has_body(request.body()) {
        let (mut parts, _) = request.into_parts();
        let paging = Paging::from_request_parts(&mut parts, &app).await?;
        return Ok(list(app, scope, project, &paging).await?);
    }
    Ok(create(app, scope, project, request, StatusCode::OK).await?)
}

async fn create(
    app: AppState,
    scope: Scope,
    project: String,
    request: Request,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head.clone(), body);
    let received = ReceivedRelease::receive(&app, &scope, &project, request).await?;
    let hashed = Arc::clone(&received.spool);
    let hash = move || *hashed.hash().as_bytes();
    let (caller, state) = (scope.caller.clone(), AppState::clone(&app));
    let work = async move {
        match received.create(&state, &scope, &project).await {
            Ok(release_id) => (status, Json(ReleaseCreated { release_id })).into_response(),
            Err(error) => PlatformError::from(error).into_response(),
        }
    };
    idempotency::execute(&app, &caller, &head, hash, work).await
}

/// Creates a release from the body of a request, as the API does.
pub async fn receive_release(
    app: &AppState,
    scope: &Scope,
    project: &str,
    request: Request,
) -> Result<ReleaseId, ApiError> {
    let received = ReceivedRelease::receive(app, scope, project, request).await?;
    received.create(app, scope, project).await
}

/// The body of a create-release request, before it is read.
struct ReceivedRelease {
    client: Option<String>,
    spool: Arc<Spool>,
    upload: releases::Upload,
}

impl ReceivedRelease {
    async fn receive(
        app: &AppState,
        scope: &Scope,
        project: &str,
        request: Request,
    ) -> Result<Self, ApiError> {
        let client = client_name(request.headers());
        // Before the body is read: a stranger's or a viewer's 256 MiB are not worth receiving.
        let compressor = &app.services.eager_compressor;
        let upload = releases::begin_upload(&app.core, compressor, scope, project).await?;
        let limits = BodyLimits::upload(app.core.settings.max_release_bytes);
        let spool = Arc::new(app.spool.receive(request, limits).await?);
        Ok(Self {
            client,
            spool,
            upload,
        })
    }

    async fn create(
        self,
        app: &AppState,
        scope: &Scope,
        project: &str,
    ) -> Result<ReleaseId, ApiError> {
        execute(app, scope, project, self.client, self.spool, self.upload).await
    }
}

async fn execute(
    app: &AppState,
    scope: &Scope,
    project: &str,
    client: Option<String>,
    spool: Arc<Spool>,
    mut upload: releases::Upload,
) -> Result<ReleaseId, ApiError> {
    let turn = if spool.is_large() {
        Some(READ_PERMITS.acquire().await.map_err(Error::internal)?)
    } else {
        None
    };
    let read = move || {
        // Ends with the reading, which goes on when the client hangs up.
        let _turn = turn;
        release_body::read(&spool, &mut upload).map(|body| (body, upload))
    };
    let (body, upload) = tokio::task::spawn_blocking(read)
        .await
        .map_err(Error::internal)??;
    let mut new = body.new;
    new.client = client;
    let source = match body.source {
        release_body::Source::Files => releases::Source::Files(Box::new(upload)),
        release_body::Source::Archive(id) => releases::Source::Archive(id),
        release_body::Source::Image(image) => releases::Source::Image(image),
    };
    Ok(releases::create_release(&app.core, scope, project, new, source).await?)
}

/// The name of the client that a release is made with.
pub fn client_name(headers: &HeaderMap) -> Option<String> {
    headers
        .get(header::USER_AGENT)?
        .to_str()
        .ok()
        .map(str::to_owned)
}

/// The query of reading a release.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Wait until the release is in this state or has ended.
    wait: Option<ReleaseState>,
    /// For how many seconds at most; 300 at most, 30 unless said.
    timeout: Option<u64>,
}

/// Read a release
#[utoipa::path(get, path = "/v1/releases/{releaseID}", tag = "releases", params(("releaseID" = ReleaseId, Path), WaitQuery), responses(
    (status = 200, body = ReleaseBody), (status = 304), (status = 404),
))]
pub async fn read_release(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<ReleaseId, PlatformError>,
    Queries(query): Queries<WaitQuery, PlatformError>,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, PlatformError> {
    let (release, version) = match query.wait {
        None => releases::read_release(&app.core, &scope, id).await?,
        Some(state) => {
            context.clear_deadline();
            let most = Duration::from_secs(query.timeout.unwrap_or(30).min(MAX_WAIT_SECONDS));
            tokio::select! {
                reached = releases::wait_release(&app.core, &scope, id, state, most) => reached?,
                // At shutdown the present state is returned instead of an aborted wait.
                () = app.shutdown.cancelled() => releases::read_release(&app.core, &scope, id).await?,
            }
        }
    };
    Ok(ETag::of(version).respond(&headers, || Json(ReleaseBody { release })))
}

/// Cancel a release
///
/// Possible while it is PENDING or BUILDING.
#[utoipa::path(post, path = "/v2/releases/{releaseID}/cancel", tag = "releases", params(("releaseID" = ReleaseId, Path)), responses(
    (status = 200), (status = 409, description = "It is too late"),
))]
pub async fn cancel_release(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<ReleaseId, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(releases::cancel_release(&app.core, &scope, id).await?)
}

/// Roll back to a release
///
/// Makes a new release from the same artifact, without building anything.
#[utoipa::path(post, path = "/v1/releases/{releaseID}/rollback", tag = "releases", params(("releaseID" = ReleaseId, Path)), responses(
    (status = 200, body = ReleaseCreated),
    (status = 409, description = "It is the current one, never was READY, or a disk of it was deleted"),
    (status = 410, description = "Its artifact was removed"),
))]
pub async fn rollback_release(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<ReleaseId, PlatformError>,
) -> Result<Json<ReleaseCreated>, PlatformError> {
    let release_id = releases::rollback_release(&app.core, &scope, id).await?;
    Ok(Json(ReleaseCreated { release_id }))
}

/// Download the source of a release
///
/// The archive as it was uploaded; for a release from files a `.tar.gz` of them, always the same bytes
/// for the same release. Not for viewers, for whom the values of environment variables are masked.
#[utoipa::path(get, path = "/v2/releases/{releaseID}/source", tag = "releases", params(("releaseID" = ReleaseId, Path)), responses(
    (status = 200, content((Vec<u8> = "application/gzip"), (Vec<u8> = "application/zip"))),
    (status = 403, description = "The caller is a viewer"),
    (status = 410, description = "It was removed"),
))]
pub async fn download_source(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<ReleaseId, PlatformError>,
) -> Result<Response, PlatformError> {
    let source = releases::download_source(&app.core, &scope, id).await?;
    let mut response = Body::from_stream(source.stream).into_response();
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_static(source.format.media_type());
    headers.insert(header::CONTENT_TYPE, media_type);
    let name = format!("attachment; filename=\"{id}.{}\"", source.format);
    let name = HeaderValue::try_from(name).map_err(Error::internal)?;
    headers.insert(header::CONTENT_DISPOSITION, name);
    if let Some(length) = source.length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// The query of a build log.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BuildLogQuery {
    /// Only lines after this time, such as the last `createdAt` that was seen.
    #[param(value_type = Option<estrade_model::Timestamp>)]
    since: Option<String>,
}

/// Read the build log of a release
///
/// Up to 1,000 lines, oldest first; ask again with the `createdAt` of the last one.
#[utoipa::path(get, path = "/v2/releases/{releaseID}/build-logs", tag = "releases", params(("releaseID" = ReleaseId, Path), BuildLogQuery), responses(
    (status = 200, body = BuildLogs),
))]
pub async fn read_build_logs(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<ReleaseId, PlatformError>,
    Queries(query): Queries<BuildLogQuery, PlatformError>,
) -> Result<Json<BuildLogs>, PlatformError> {
    // Clients that have seen nothing yet write down the absence of a value as their language does.
    let since = query
        .since
        .filter(|text| !matches!(text.as_str(), "" | "undefined" | "null"));
    let since = since
        .map(|text| text.parse())
        .transpose()
        .map_err(|Invalid(reason)| Error::invalid(format!("since: {reason}")))?;
    Ok(Json(
        releases::read_build_logs(&app.core, &scope, id, since).await?,
    ))
}
