//! One release: what it is, its build log, and the way back to it.

use super::printable::line;
use super::release_row::{ReleaseRow, kind_label};
use crate::form::NoFields;
use crate::origin::SameOrigin;
use crate::pages::ask::{AskPage, Question};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit, render};
use askama::Template;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response, sse};
use estrade_model::release::{BuildLine, BuildLogs, ReleaseState};
use estrade_model::team::Role;
use estrade_model::{ReleaseId, Timestamp};
use estrade_server::app::AppState;
use estrade_server::context::RequestContext;
use estrade_server::follow::{self, Follower, last_seen};
use estrade_service::platform::projects;
use estrade_service::platform::releases::{self, BuildLogFollower};
use estrade_service::{Core, Error, Scope};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use std::collections::VecDeque;

/// Lines of the build log on the page; the rest is in the text file.
const SHOWN_LINES: usize = 400;
/// Pages of a thousand lines that the release's page looks through for the last ones: more than a log has.
const MAX_READ_PAGES: u32 = 60;

const NO_SNIFFING: (HeaderName, HeaderValue) = (
    header::X_CONTENT_TYPE_OPTIONS,
    HeaderValue::from_static("nosniff"),
);

#[derive(Template)]
#[template(path = "projects/release.html")]
struct ReleasePage {
    layout: Layout,
    tabs: ProjectTabs,
    row: ReleaseRow,
    id: ReleaseId,
    kind: &'static str,
    platform: &'static str,
    port: u16,
    message: String,
    client: String,
    /// The commit as the client sent it, as JSON.
    git_info: String,
    /// Why it failed: a sentence, and the lines with what it is about.
    failure: String,
    failure_details: String,
    warnings: Vec<String>,
    is_over: bool,
    is_live: bool,
    lines: Vec<String>,
    hidden_lines: u64,
    stream_href: String,
    text_href: String,
    source_href: Option<String>,
    releases_href: String,
}

pub(super) async fn show_release(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let project = projects::read_overview(core, scope, &project)
        .await?
        .project;
    let name = &project.project_id;
    let authored = releases::read_authored(core, scope, name, id).await?;
    let log = read_last_lines(&app, scope, id).await?;
    let release = authored.release.clone();
    let path = format!("/panel/projects/{name}/releases/{id}");
    let after = log
        .last
        .map_or_else(String::new, |at| format!("?after={}", at.millis()));
    let can_download = may_download(&visit) && release.source_available;
    let failure = release
        .fail_message
        .as_ref()
        .or(release.fail_reason.as_ref());
    let failure = failure.map_or("", String::as_str);
    let (failure, details) = failure.split_once('\n').unwrap_or((failure, ""));
    let git_info = release.git_info.as_ref().map(|info| format!("{info:#}"));
    render(&ReleasePage {
        row: ReleaseRow::new(&visit, name, authored),
        id,
        kind: kind_label(release.kind),
        platform: release.project_type.as_str(),
        port: release.port,
        message: multi_line(release.message.as_deref().unwrap_or_default()),
        client: line(release.client.as_deref().unwrap_or_default()),
        git_info: multi_line(&git_info.unwrap_or_default()),
        failure: line(failure),
        failure_details: multi_line(details.trim()),
        warnings: release.warnings,
        is_over: release.state.is_terminal(),
        is_live: release.current,
        lines: log.lines.into(),
        hidden_lines: log.hidden,
        stream_href: visit.href(&format!("{path}/log{after}")),
        text_href: visit.href(&format!("{path}/log.txt")),
        source_href: can_download.then(|| visit.href(&format!("{path}/source"))),
        releases_href: visit.href(&format!("/panel/projects/{name}/releases")),
        layout: visit.layout(format!("{} of {name}", release.tag), Section::Projects),
        tabs: ProjectTabs::new(&visit, &project, ProjectTab::Releases),
    })
}

fn may_download(visit: &Visit) -> bool {
    visit.scope.role >= Role::Developer
}

fn multi_line(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n")
}

/// The last lines of a build log, ready to be shown.
#[derive(Default)]
struct LastLines {
    lines: VecDeque<String>,
    /// How many came before them.
    hidden: u64,
    /// When the last one was written.
    last: Option<Timestamp>,
}

/// Reads a log a page at a time and keeps the last lines only: a log may have a hundred megabytes.
async fn read_last_lines(
    app: &AppState,
    scope: &Scope,
    id: ReleaseId,
) -> Result<LastLines, PanelError> {
    let mut read = LastLines::default();
    for _ in 0..MAX_READ_PAGES {
        let logs = releases::read_build_logs(&app.core, scope, id, read.last).await?;
        let Some(last) = logs.build_output.last() else {
            break;
        };
        read.last = Some(last.created_at);
        for it in &logs.build_output {
            if read.lines.len() == SHOWN_LINES {
                read.lines.pop_front();
                read.hidden += 1;
            }
            read.lines.push_back(printable(it));
        }
    }
    Ok(read)
}

fn printable(it: &BuildLine) -> String {
    line(it.line.trim_end_matches('\n'))
}

pub(super) async fn download_log(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
) -> Result<Response, PanelError> {
    releases::read_authored(&app.core, &visit.scope, &project, id).await?;
    let start = (app, visit.scope, None);
    // A page at a time, read when the client has taken the one before.
    let pages = stream::try_unfold(start, move |(app, scope, last)| async move {
        let logs = releases::read_build_logs(&app.core, &scope, id, last).await?;
        let Some(newest) = logs.build_output.last().map(|it| it.created_at) else {
            return Ok::<_, Error>(None);
        };
        let text: String = logs
            .build_output
            .iter()
            .map(|it| printable(it) + "\n")
            .collect();
        Ok(Some((text, (app, scope, Some(newest)))))
    });
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let headers = [(header::CONTENT_TYPE, plain), NO_SNIFFING];
    Ok((headers, Body::from_stream(pages)).into_response())
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FollowQuery {
    /// The last line that the page shows, by its time.
    after: Option<i64>,
}

pub(super) async fn follow_log(
    State(app): State<AppState>,
    _: SameOrigin,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
    Query(query): Query<FollowQuery>,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, PanelError> {
    releases::read_authored(&app.core, &visit.scope, &project, id).await?;
    let seen: Option<i64> = last_seen(&headers, "a line")?;
    let after = seen.or(query.after).map(Timestamp::from_millis);
    let follower = BuildEvents {
        lines: releases::follow_build_log(&app.core, &visit.scope, id, after),
        is_over: false,
    };
    context.clear_deadline();
    Ok(follow::respond(app, visit.scope.caller, follower)?)
}

/// The build log as events: `line`, `state` and at last `end`.
struct BuildEvents {
    lines: BuildLogFollower,
    is_over: bool,
}

impl Follower for BuildEvents {
    async fn next(&mut self) -> Result<Vec<sse::Event>, Error> {
        if self.is_over {
            return Err(Error::Gone("the build log"));
        }
        let Some(logs) = self.lines.next_lines().await? else {
            self.is_over = true;
            // With some data: browsers ignore an event that has none, and would reconnect for ever.
            return Ok(vec![sse::Event::default().event("end").data("over")]);
        };
        Ok(events_of(&logs))
    }
}

fn events_of(logs: &BuildLogs) -> Vec<sse::Event> {
    let lines = logs.build_output.iter().filter_map(|it| {
        let text = printable(it);
        let event = sse::Event::default().event("line");
        let event = event.id(it.created_at.millis().to_string());
        event.json_data(json!({ "text": text })).ok()
    });
    let state = match logs.release.state {
        ReleaseState::Pending => Some("Waiting"),
        ReleaseState::Building => Some("Building"),
        ReleaseState::Deploying => Some("Deploying"),
        _ => None,
    };
    let state = state.map(|word| sse::Event::default().event("state").data(word));
    lines.chain(state).collect()
}

pub(super) async fn download_source(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
) -> Result<Response, PanelError> {
    let authored = releases::read_authored(&app.core, &visit.scope, &project, id).await?;
    let source = releases::download_source(&app.core, &visit.scope, id).await?;
    // A project's name and a tag have no character that a header would need quoted.
    let name = format!("{project}-{}.{}", authored.release.tag, source.format);
    let attachment = format!("attachment; filename=\"{name}\"");
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(source.format.media_type()),
        ),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::try_from(attachment).map_err(Error::internal)?,
        ),
        NO_SNIFFING,
    ];
    let mut response = (headers, Body::from_stream(source.stream)).into_response();
    if let Some(length) = source.length {
        let length = HeaderValue::from(length);
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
    }
    Ok(response)
}

pub(super) async fn confirm_rollback(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
) -> Result<Response, PanelError> {
    confirm(&app, &visit, &project, id, Change::RollBack).await
}

pub(super) async fn confirm_cancel(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
) -> Result<Response, PanelError> {
    confirm(&app, &visit, &project, id, Change::Cancel).await
}

/// What can be done with a release.
#[derive(Clone, Copy)]
enum Change {
    RollBack,
    Cancel,
}

async fn confirm(
    app: &AppState,
    visit: &Visit,
    project: &str,
    id: ReleaseId,
    change: Change,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    scope.require_to_read(Role::Developer)?;
    let project = projects::read_overview(core, scope, project).await?.project;
    let name = &project.project_id;
    let authored = releases::read_authored(core, scope, name, id).await?;
    let row = ReleaseRow::new(visit, name, authored);
    let tag = &row.tag;
    let path = format!("/panel/projects/{name}/releases/{id}");
    let asked = match change {
        Change::RollBack => Question {
            title: format!("Roll back to {tag}?"),
            text: format!(
                "A new release of {name} serves what {tag} served, “{}”, with its environment. Nothing is built, and visitors notice no gap.",
                row.message
            ),
            label: format!("Roll back to {tag}"),
            action: format!("{path}/rollback"),
        },
        Change::Cancel => Question {
            title: format!("Cancel {tag}?"),
            text: format!(
                "{tag} of {name}, “{}”, is not built any further. What serves now goes on serving.",
                row.message
            ),
            label: format!("Cancel {tag}"),
            action: format!("{path}/cancel"),
        },
    };
    let layout = visit.layout(asked.title.clone(), Section::Projects);
    let tabs = ProjectTabs::new(visit, &project, ProjectTab::Releases);
    let page = AskPage::new(layout, asked)
        .in_project(tabs)
        .below(tag, path);
    match change {
        Change::RollBack => page.harmless().respond(),
        Change::Cancel => page.respond(),
    }
}

/// What people call a release of this project.
async fn read_tag(
    core: &Core,
    scope: &Scope,
    project: &str,
    id: ReleaseId,
) -> Result<String, PanelError> {
    let authored = releases::read_authored(core, scope, project, id).await?;
    Ok(authored.release.tag)
}

pub(super) async fn roll_back(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let tag = read_tag(core, scope, &project, id).await?;
    let new = releases::rollback_release(core, scope, id).await?;
    let path = format!("/panel/projects/{project}/releases/{new}");
    Ok(visit.done(format!("Rolling {project} back to {tag}"), &path))
}

pub(super) async fn cancel(
    State(app): State<AppState>,
    visit: Visit,
    Path((project, id)): Path<(String, ReleaseId)>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let tag = read_tag(core, scope, &project, id).await?;
    releases::cancel_release(core, scope, id).await?;
    let path = format!("/panel/projects/{project}/releases/{id}");
    Ok(visit.done(format!("{tag} was canceled"), &path))
}
