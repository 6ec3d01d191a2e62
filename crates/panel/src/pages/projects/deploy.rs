//! Deploying from the browser: a folder or an archive with a progress bar, or a plain form with an archive.

use crate::error::sentence;
use crate::form::SignedScript;
use crate::page::render_with;
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit, render};
use askama::Template;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use estrade_model::ReleaseId;
use estrade_model::platform::Platform;
use estrade_model::release::{NewRelease, ReleaseCreated};
use estrade_model::team::Role;
use estrade_server::api_error::ApiError;
use estrade_server::app::AppState;
use estrade_server::body_reader::BodyLimits;
use estrade_server::error::PlatformError;
use estrade_server::multipart::{MAX_OVERHEAD, Multipart};
use estrade_server::platform::blobs::receive_blob;
use estrade_server::platform::releases::{client_name, receive_release};
use estrade_service::Error;
use estrade_service::platform::projects;
use estrade_service::platform::releases::{self, ReceivedContent, Source};
use serde::Deserialize;

/// Most bytes of a field of the form that is no file.
const MAX_FIELD_BYTES: usize = 8 * 1024;

#[derive(Template)]
#[template(path = "projects/deploy.html")]
struct DeployPage {
    layout: Layout,
    tabs: ProjectTabs,
    runs_image: bool,
    is_first: bool,
    problem: String,
    message: String,
    image: String,
    /// Where scripts send a content, with `DIGEST` in the place of its hash.
    blobs_href: String,
    files_href: String,
    archive_href: String,
    image_href: String,
    /// The page of a release, with `RELEASE` in the place of its id.
    release_href: String,
    command: String,
}

pub(super) async fn show_deploy(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
) -> Result<Response, PanelError> {
    render(&page(&app, &visit, &project).await?)
}

async fn page(app: &AppState, visit: &Visit, project: &str) -> Result<DeployPage, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let overview = projects::read_overview(&app.core, &visit.scope, project).await?;
    let project = overview.project;
    let name = &project.project_id;
    let at = |rest: &str| visit.href(&format!("/panel/projects/{name}/{rest}"));
    let layout = visit.layout(format!("Deploy {name}"), Section::Projects);
    let tabs = ProjectTabs::new(visit, &project, ProjectTab::Releases).without_actions();
    Ok(DeployPage {
        runs_image: matches!(project.platform, Platform::Docker | Platform::Auto),
        is_first: overview.releases == 0,
        problem: String::new(),
        message: String::new(),
        image: String::new(),
        blobs_href: at("deploy/blobs/DIGEST"),
        files_href: at("deploy/files"),
        archive_href: at("deploy"),
        image_href: at("deploy/image"),
        release_href: at("releases/RELEASE"),
        command: tabs.command(&layout, "deploy"),
        layout,
        tabs,
    })
}

/// A script sends the list of a folder's files by their hashes. What is missing is told as the API does, but as a
/// success: browsers write other statuses to their console, and this one is the usual course.
pub(super) async fn deploy_files(
    State(app): State<AppState>,
    visit: Visit,
    _: SignedScript,
    Path(project): Path<String>,
    request: Request,
) -> Result<Response, PlatformError> {
    estrade_server::body::require_json(request.headers())?;
    match receive_release(&app, &visit.scope, &project, request).await {
        Ok(release_id) => {
            Ok((StatusCode::CREATED, Json(ReleaseCreated { release_id })).into_response())
        }
        Err(error) if error.missing_files().is_some() => {
            let mut response = PlatformError::from(error).into_response();
            *response.status_mut() = StatusCode::OK;
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

/// A script sends a content that the server misses.
pub(super) async fn put_blob(
    State(app): State<AppState>,
    visit: Visit,
    _: SignedScript,
    Path((project, digest)): Path<(String, String)>,
    request: Request,
) -> Result<Response, PlatformError> {
    let (_, kept) = receive_blob(&app, &visit.scope, &project, &digest, request).await?;
    Ok((StatusCode::CREATED, Json(kept)).into_response())
}

/// An archive, from the form or from a script.
pub(super) async fn deploy_archive(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
    request: Request,
) -> Result<Response, PanelError> {
    let is_script = accepts_json(request.headers());
    let client = client_name(request.headers());
    match receive_archive(&app, &visit, &project, request, client).await {
        Ok(release_id) if is_script => {
            Ok((StatusCode::CREATED, Json(ReleaseCreated { release_id })).into_response())
        }
        Ok(release) => Ok(created(&visit, &project, release)),
        Err(PanelError::Api(error)) if is_script => Ok(PlatformError::from(error).into_response()),
        Err(error) => again(&app, &visit, &project, error, |_| ()).await,
    }
}

fn created(visit: &Visit, project: &str, release: ReleaseId) -> Response {
    let path = format!("/panel/projects/{project}/releases/{release}");
    visit.done(format!("A release of {project} is on its way"), &path)
}

/// Shows the page again, with what is wrong.
async fn again(
    app: &AppState,
    visit: &Visit,
    project: &str,
    error: PanelError,
    fill: impl FnOnce(&mut DeployPage),
) -> Result<Response, PanelError> {
    let status = error.status();
    let problem = error.correctable()?;
    let mut page = page(app, visit, project).await?;
    page.problem = problem
        .strip_prefix("File: ")
        .map_or_else(|| problem.clone(), sentence);
    fill(&mut page);
    render_with(status, &page)
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|value| value.as_bytes().starts_with(b"application/json"))
}

async fn receive_archive(
    app: &AppState,
    visit: &Visit,
    project: &str,
    request: Request,
    client: Option<String>,
) -> Result<ReleaseId, PanelError> {
    let scope = &visit.scope;
    let form = read_archive(app, visit, project, request).await?;
    let source = releases::create_source(&app.core, scope, form.archive).await?;
    let new = NewRelease {
        message: form.message,
        client,
        ..NewRelease::default()
    };
    let source = Source::Archive(source.to_string());
    Ok(releases::create_release(&app.core, scope, project, new, source).await?)
}

struct ArchiveForm {
    message: Option<String>,
    archive: ReceivedContent,
}

/// Reads the form. Its token comes first: nothing is stored for a form that is not ours.
async fn read_archive(
    app: &AppState,
    visit: &Visit,
    project: &str,
    request: Request,
) -> Result<ArchiveForm, PanelError> {
    if !is_multipart(request.headers()) {
        return Err(PanelError::ForgedForm);
    }
    // Before the body is read: a stranger's 256 MiB are not worth receiving.
    let incoming = releases::begin_content(&app.core, &visit.scope, project).await?;
    let most = incoming.max_bytes().saturating_add(MAX_OVERHEAD);
    let mut parts = Multipart::new(request, BodyLimits::upload(most))?;
    let (mut waiting, mut archive) = (Some(incoming), None);
    let (mut is_signed, mut message) = (false, None);
    while let Some(name) = parts.next_part().await? {
        match name.as_str() {
            "csrf" => {
                visit.csrf().verify(&read_field(&mut parts).await?)?;
                is_signed = true;
            }
            _ if !is_signed => return Err(PanelError::ForgedForm),
            "message" => message = Some(read_field(&mut parts).await?),
            "file" => {
                let incoming = waiting.take();
                let mut incoming =
                    incoming.ok_or_else(|| Error::invalid("send one archive at a time"))?;
                while let Some(piece) = parts.next_piece().await? {
                    incoming = incoming.write(&piece).await?;
                }
                archive = Some(incoming.end().await?);
            }
            _ => {}
        }
    }
    let archive = archive.filter(|archive| archive.size() > 0);
    Ok(ArchiveForm {
        message: message.filter(|text| !text.trim().is_empty()),
        archive: archive.ok_or_else(|| Error::invalid("choose a .zip or .tar.gz first"))?,
    })
}

fn is_multipart(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    media_type.is_some_and(|value| value.as_bytes().starts_with(b"multipart/form-data"))
}

async fn read_field(parts: &mut Multipart) -> Result<String, PanelError> {
    let mut bytes = Vec::new();
    while let Some(piece) = parts.next_piece().await? {
        if bytes.len() + piece.len() > MAX_FIELD_BYTES {
            return Err(Error::TooLarge("a field of the form is too long".into()).into());
        }
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid("a field of the form is no text").into())
}

#[derive(Debug, Deserialize)]
pub(super) struct ImageForm {
    #[serde(default)]
    image: String,
    #[serde(default)]
    message: String,
}

/// A release that runs an image of a registry.
pub(super) async fn deploy_image(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
    headers: HeaderMap,
    SignedForm(form): SignedForm<ImageForm>,
) -> Result<Response, PanelError> {
    let new = NewRelease {
        message: Some(form.message.clone()).filter(|text| !text.trim().is_empty()),
        client: client_name(&headers),
        ..NewRelease::default()
    };
    let source = Source::Image(form.image.trim().to_owned());
    let made = releases::create_release(&app.core, &visit.scope, &project, new, source).await;
    match made {
        Ok(release) => Ok(created(&visit, &project, release)),
        Err(error) => {
            let error = PanelError::from(ApiError::from(error));
            again(&app, &visit, &project, error, |page| {
                page.image = form.image;
                page.message = form.message;
            })
            .await
        }
    }
}
