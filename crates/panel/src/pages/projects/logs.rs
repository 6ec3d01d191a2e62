//! What the instances of a project write: the last lines, and a live tail.

use super::printable;
use crate::format;
use crate::origin::SameOrigin;
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, Visit, render};
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{Response, sse};
use estrade_model::log::Direction;
use estrade_model::platform::Platform;
use estrade_model::{ReleaseId, Timestamp};
use estrade_server::app::AppState;
use estrade_server::context::RequestContext;
use estrade_server::follow::{self, Follower, last_seen};
use estrade_service::Error;
use estrade_service::platform::containers::logs::{
    self, Cursor, LogFollower, LogQuery, StoredLine,
};
use estrade_service::platform::{projects, releases};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Lines on the page.
const SHOWN_LINES: u32 = 300;
/// Releases that can be chosen.
const OFFERED_RELEASES: u32 = 20;
/// Characters of an instance's name.
const INSTANCE_CHARS: usize = 8;
/// Longest text to search for, in bytes.
const MAX_SEARCH_BYTES: usize = 256;

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct LogsQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    release: String,
    #[serde(default)]
    instance: String,
    /// The last line that the page shows.
    after: Option<String>,
}

impl LogsQuery {
    fn query(&self) -> Result<LogQuery, PanelError> {
        if self.q.len() > MAX_SEARCH_BYTES {
            return Err(Error::invalid("the text to search for is too long").into());
        }
        let release = match self.release.as_str() {
            "" => None,
            id => Some(id.parse::<ReleaseId>()?),
        };
        Ok(LogQuery {
            direction: Direction::Forward,
            search: Some(self.q.clone()).filter(|text| !text.is_empty()),
            release,
            instance: Some(self.instance.clone()).filter(|text| !text.is_empty()),
            last_lines: Some(SHOWN_LINES),
            ..LogQuery::default()
        })
    }

    /// The query of the stream that goes on after a line.
    fn stream_query(&self, after: Option<Cursor>) -> String {
        let after = after.map(|cursor| cursor.to_string());
        let pairs = [
            ("q", self.q.as_str()),
            ("release", &self.release),
            ("instance", &self.instance),
            ("after", after.as_deref().unwrap_or_default()),
        ];
        let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        if pairs.is_empty() {
            return String::new();
        }
        format!("?{}", pairs.join("&"))
    }
}

struct ShownLine {
    at: String,
    exact: String,
    instance: String,
    text: String,
    stderr: bool,
}

impl ShownLine {
    fn new(line: &StoredLine) -> Self {
        let at = Timestamp::from_millis(line.at.div_euclid(1_000_000));
        Self {
            at: format::strftime(at, "%H:%M:%S"),
            exact: at.to_string(),
            instance: short_instance(&line.instance),
            text: printable::line(&line.text),
            stderr: line.stderr,
        }
    }
}

fn short_instance(instance: &str) -> String {
    instance.chars().take(INSTANCE_CHARS).collect()
}

struct Choice {
    value: String,
    label: String,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "projects/logs.html")]
struct LogsPage {
    layout: Layout,
    tabs: ProjectTabs,
    is_static: bool,
    is_filtered: bool,
    search: String,
    team: Option<String>,
    releases: Vec<Choice>,
    instances: Vec<Choice>,
    lines: Vec<ShownLine>,
    logs_href: String,
    stream_href: String,
    releases_href: String,
}

pub(super) async fn show_logs(
    State(app): State<AppState>,
    visit: Visit,
    Path(project): Path<String>,
    Query(asked): Query<LogsQuery>,
) -> Result<Response, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let project = projects::read_overview(core, scope, &project)
        .await?
        .project;
    let name = &project.project_id;
    let query = asked.query()?;
    let lines = logs::read_logs(core, &app.services.logs, scope, name, &query).await?;
    let offered = releases::list_releases(core, scope, name, None, OFFERED_RELEASES, 0).await?;
    let offered = offered.into_iter().map(|release| Choice {
        value: release.id.to_string(),
        label: release.tag,
        chosen: query.release == Some(release.id),
    });
    let mut instances: BTreeSet<String> = lines.iter().map(|it| it.instance.to_string()).collect();
    instances.extend(query.instance.clone());
    let instances = instances.into_iter().map(|instance| Choice {
        label: short_instance(&instance),
        chosen: query.instance.as_ref() == Some(&instance),
        value: instance,
    });
    let last = lines.iter().map(|line| line.cursor).max();
    let path = format!("/panel/projects/{name}/logs");
    render(&LogsPage {
        is_static: project.platform == Platform::Static,
        is_filtered: query.search.is_some() || query.release.is_some() || query.instance.is_some(),
        search: asked.q.clone(),
        team: visit.team().map(|team| team.to_string()),
        releases: offered.collect(),
        instances: instances.collect(),
        lines: lines.iter().map(ShownLine::new).collect(),
        logs_href: visit.href(&path),
        stream_href: visit.href(&format!("{path}/stream{}", asked.stream_query(last))),
        releases_href: visit.href(&format!("/panel/projects/{name}/releases")),
        layout: visit.layout(format!("Logs of {name}"), Section::Projects),
        tabs: ProjectTabs::new(&visit, &project, ProjectTab::Logs),
    })
}

pub(super) async fn follow_logs(
    State(app): State<AppState>,
    _: SameOrigin,
    visit: Visit,
    Path(project): Path<String>,
    Query(asked): Query<LogsQuery>,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, PanelError> {
    let query = asked.query()?;
    let after = match last_seen(&headers, "a line")? {
        Some(seen) => Some(seen),
        None => asked.after.as_deref().map(str::parse).transpose()?,
    };
    let (logs, scope) = (&app.services.logs, &visit.scope);
    let follower = logs::follow_logs(&app.core, logs, scope, &project, &query, after).await?;
    context.clear_deadline();
    let events = LineEvents(follower);
    Ok(follow::respond(app, visit.scope.caller, events)?)
}

/// Lines as events, as the page shows them.
struct LineEvents(LogFollower);

impl Follower for LineEvents {
    async fn next(&mut self) -> Result<Vec<sse::Event>, Error> {
        let lines = self.0.next_lines().await?;
        let event = |line: StoredLine| {
            let shown = ShownLine::new(&line);
            let event = sse::Event::default().event("line");
            let event = event.id(line.cursor.to_string());
            let data = json!({
                "at": shown.at,
                "instance": shown.instance,
                "text": shown.text,
                "isError": shown.stderr,
            });
            event.json_data(data).ok()
        };
        Ok(lines.into_iter().filter_map(event).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_keeps_the_filters() {
        let asked = LogsQuery {
            q: "a&b".to_owned(),
            instance: "web".to_owned(),
            ..LogsQuery::default()
        };
        let after = Cursor { block: 7, index: 1 };
        assert_eq!(
            asked.stream_query(Some(after)),
            "?q=a%26b&instance=web&after=7%2D1"
        );
        assert_eq!(LogsQuery::default().stream_query(None), "");
    }
}
