//! The log of calls, with filters, and one call.

use super::choices::{self, Choice, optional_id};
use crate::error::PanelError;
use crate::format::{exact, filters, money, number};
use crate::layout::{Layout, Section};
use crate::list::PAGE_SIZE;
use crate::page::render;
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::call::{CallId, LoggedCall};
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_server::app::AppState;
use estrade_service::ai::usage::{self, CallFilter};
use estrade_service::ai::{keys, workspaces};
use estrade_service::{Error, Scope};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::collections::HashMap;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/calls", get(list_calls))
        .route("/panel/calls/{workspace}/{id}", get(show_call))
}

/// A call as lists show it.
struct CallRow {
    id: CallId,
    at: Timestamp,
    model: String,
    key: String,
    state: (&'static str, String),
    tokens: String,
    cost: String,
    latency: String,
}

impl CallRow {
    fn new(call: &LoggedCall, names: &HashMap<KeyId, String>) -> Self {
        Self {
            id: call.id,
            at: call.created_at,
            model: if call.model.is_empty() {
                "–".to_owned()
            } else {
                call.model.clone()
            },
            key: key_name(call.key, names),
            state: state(call),
            tokens: number(call.prompt_tokens.saturating_add(call.completion_tokens)),
            cost: money(call.cost),
            latency: duration(call.latency_ms),
        }
    }
}

fn key_name(id: KeyId, names: &HashMap<KeyId, String>) -> String {
    names
        .get(&id)
        .cloned()
        .unwrap_or_else(|| "deleted key".to_owned())
}

/// The kind and the text of a call's badge.
fn state(call: &LoggedCall) -> (&'static str, String) {
    let status = call.status;
    match status {
        200..300 if call.partial => ("warn", format!("{status} cut")),
        200..300 if call.cached => ("ok", format!("{status} cached")),
        200..300 => ("ok", status.to_string()),
        499 => ("off", "499 client left".to_owned()),
        500.. => ("bad", status.to_string()),
        _ => ("warn", status.to_string()),
    }
}

fn duration(millis: u64) -> String {
    match millis {
        10_000.. => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} ms", number(millis)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallsQuery {
    workspace: Option<String>,
    key: Option<String>,
    model: String,
    status: String,
    from: String,
    to: String,
    before: Option<String>,
}

/// A query that was understood.
struct Selection {
    workspace: Option<WorkspaceId>,
    filter: CallFilter,
}

impl CallsQuery {
    fn select(&self) -> Result<Selection, Error> {
        let status = self.status.trim();
        let status = if status.is_empty() {
            Ok(None)
        } else {
            status.parse().map(Some)
        };
        Ok(Selection {
            workspace: optional_id("workspace", self.workspace.as_deref())?,
            filter: CallFilter {
                from: moment("from", &self.from)?,
                to: moment("to", &self.to)?,
                model: Some(self.model.trim().to_owned()).filter(|model| !model.is_empty()),
                key: optional_id("key", self.key.as_deref())?,
                status: status
                    .map_err(|_| Error::invalid("status: must be a number such as 429"))?,
                before: optional_id("before", self.before.as_deref())?,
            },
        })
    }

    /// The address of the list with the same filters.
    fn link(&self, workspace: WorkspaceId) -> String {
        let mut link = format!("/panel/calls?workspace={workspace}");
        let key = self.key.clone().unwrap_or_default();
        let fields = [
            ("key", &key),
            ("model", &self.model),
            ("status", &self.status),
            ("from", &self.from),
            ("to", &self.to),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            link.extend(["&", name, "="]);
            link.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        link
    }
}

/// A moment as a browser's field for date and time sends it, in UTC.
fn moment(label: &str, text: &str) -> Result<Option<Timestamp>, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let spelled = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        19 => format!("{text}Z"),
        _ => text.to_owned(),
    };
    let refused = |_| Error::invalid(format!("{label}: must be a time such as 2026-11-18T09:30"));
    spelled.parse().map(Some).map_err(refused)
}

#[derive(Template)]
#[template(path = "ai/calls.html")]
struct CallsPage {
    layout: Layout,
    workspace: Option<WorkspaceId>,
    workspaces: Vec<Choice>,
    keys: Vec<Choice>,
    query: CallsQuery,
    is_filtered: bool,
    calls: Vec<CallRow>,
    /// How far was searched, when older calls were not looked at.
    searched_until: Option<String>,
    next: Option<String>,
    href: String,
}

async fn list_calls(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<CallsQuery>,
) -> Result<Response, PanelError> {
    let mut selection = query.select()?;
    let scope = &visit.scope;
    if selection.workspace.is_none() {
        selection.workspace = active_workspace(&app, scope, selection.filter.key).await?;
    }
    let spaces = choices::workspaces(&app, scope, selection.workspace).await?;
    let keys = choices::key_choices(&app, scope, selection.filter.key).await?;
    let filter = &selection.filter;
    let is_filtered = filter.key.is_some()
        || filter.model.is_some()
        || filter.status.is_some()
        || filter.from.is_some()
        || filter.to.is_some();
    let mut page = CallsPage {
        layout: visit.layout("Calls", Section::Calls),
        workspace: selection.workspace,
        workspaces: choices::workspace_choices(&spaces, selection.workspace),
        keys,
        is_filtered,
        calls: Vec::new(),
        searched_until: None,
        next: None,
        href: String::new(),
        query,
    };
    if let Some(workspace) = selection.workspace {
        // A cursor beyond every id: calls are not counted then, only looked up.
        let newest = || CallId::from_bytes([0xff; 12]);
        let filter = CallFilter {
            before: Some(filter.before.unwrap_or_else(newest)),
            ..filter.clone()
        };
        let log = usage::list_calls(
            &app.core,
            &app.ledger,
            scope,
            workspace,
            &filter,
            PAGE_SIZE,
            0,
        )
        .await?;
        let mut ids: Vec<_> = log.logs.iter().map(|call| call.key).collect();
        ids.sort();
        ids.dedup();
        let names = keys::key_names(&app.core, scope, &ids).await?;
        page.calls = log
            .logs
            .iter()
            .map(|call| CallRow::new(call, &names))
            .collect();
        let is_short = log.logs.len() < PAGE_SIZE as usize;
        page.searched_until = log.searched_until.filter(|_| is_short).map(exact);
        page.next = log.next.map(|id| id.to_string());
        page.href = visit.href(&page.query.link(workspace));
    }
    render(&page)
}

/// The workspace whose calls people most likely look for: of the key, else the one with the latest call.
async fn active_workspace(
    app: &AppState,
    scope: &Scope,
    key: Option<KeyId>,
) -> Result<Option<WorkspaceId>, Error> {
    if let Some(key) = key
        && let Ok((key, _)) = keys::read_key(&app.core, scope, key).await
        && let Some(first) = key.workspaces.first()
    {
        return Ok(Some(first.id));
    }
    let newest = workspaces::list_overviews(&app.core, scope, None, PAGE_SIZE).await?;
    let latest = newest
        .iter()
        .max_by_key(|found| (found.last_call, found.detail.workspace.id));
    Ok(latest.map(|found| found.detail.workspace.id))
}

#[derive(Template)]
#[template(path = "ai/call.html")]
struct CallPage {
    layout: Layout,
    workspace: (WorkspaceId, String),
    call: LoggedCall,
    state: (&'static str, String),
    key: Option<String>,
    prompt: String,
    completion: String,
    cost: String,
    latency: String,
    ttfb: String,
    meaning: &'static str,
}

async fn show_call(
    State(app): State<AppState>,
    visit: Visit,
    Path((workspace, id)): Path<(WorkspaceId, CallId)>,
) -> Result<Response, PanelError> {
    let scope = &visit.scope;
    let (detail, _) = workspaces::read_workspace(&app.core, scope, workspace).await?;
    let call = usage::read_call(&app.core, &app.ledger, scope, workspace, id).await?;
    let mut names = keys::key_names(&app.core, scope, &[call.key]).await?;
    render(&CallPage {
        layout: visit.layout("Call", Section::Calls),
        workspace: (workspace, detail.workspace.name),
        state: state(&call),
        key: names.remove(&call.key),
        prompt: number(call.prompt_tokens),
        completion: number(call.completion_tokens),
        cost: call.cost.to_string(),
        latency: duration(call.latency_ms),
        ttfb: duration(call.ttfb_ms),
        meaning: meaning(call.status),
        call,
    })
}

/// What a status says about a call, and what to do.
fn meaning(status: u16) -> &'static str {
    match status {
        200..300 => "",
        400 => "The request was not acceptable. The response named the field.",
        401 => "The key was not accepted.",
        402 => {
            "The budget of the key or of the workspace was spent. Raise it, or wait for the next period."
        }
        403 => "The key may not use this model.",
        404 => "There is no such model. The models page has those that there are.",
        413 => "The request was too large.",
        429 => {
            "A limit per minute was reached. Raise it, or let the program wait as the response says."
        }
        499 => "The client left before the response began.",
        502 => "The provider did not give a usable answer, or refused the installation's own key.",
        503 => "Something that the call needed was not available. It can be repeated.",
        504 => "The provider did not answer in time.",
        500.. => "The provider failed.",
        _ => "The provider refused the request.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_browsers_are_understood() {
        let at = |text: &str| moment("from", text).unwrap().map(|at| at.to_string());
        assert_eq!(at(""), None);
        assert_eq!(
            at("2026-11-18T09:30").as_deref(),
            Some("2026-11-18T09:30:00.000Z")
        );
        assert_eq!(
            at("2026-11-18").as_deref(),
            Some("2026-11-18T00:00:00.000Z")
        );
        assert_eq!(
            at("2026-11-18T09:30:05").as_deref(),
            Some("2026-11-18T09:30:05.000Z")
        );
        assert!(moment("from", "yesterday").is_err());
    }

    #[test]
    fn filters_stay_in_links() {
        let query = CallsQuery {
            model: "a b&c".into(),
            status: "429".into(),
            ..CallsQuery::default()
        };
        let id: WorkspaceId = "0123456789abcdef01234567".parse().unwrap();
        assert_eq!(
            query.link(id),
            format!("/panel/calls?workspace={id}&model=a%20b%26c&status=429")
        );
    }
}
