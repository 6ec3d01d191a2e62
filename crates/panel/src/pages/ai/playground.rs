//! The playground: a person calls a model with one of their keys. The call is one of that key: its models, limits,
//! budget and log; its secret is not needed, shown or stored.
//!
//! A script asks for events and gets the gateway's response as it comes; leaving the page is the disconnect of a
//! client. Without a script the form gets a page with the whole answer.

use super::choices;
use crate::error::{PanelError, sentence};
use crate::form::SignedForm;
use crate::format::{money, number};
use crate::layout::{Layout, Section};
use crate::page::{render, render_with};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use estrade_model::call::CallId;
use estrade_model::key::Key;
use estrade_model::team::Role;
use estrade_model::{KeyId, WorkspaceId};
use estrade_server::ai::person;
use estrade_server::app::AppState;
use estrade_server::context::RequestContext;
use estrade_server::follow::end_with_credential;
use estrade_service::ai::usage;
use estrade_service::{Error, Scope};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most entries of the select fields.
const MAX_TARGETS: usize = 200;
const MAX_MODELS: usize = 300;
/// Bytes of an answer that is shown as a whole.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// The last event of an answer whose reader is signed out meanwhile.
const ENDED: &str =
    "\n\ndata: {\"error\":{\"message\":\"Your session has ended: sign in again.\"}}\n\n";
/// Messages of a conversation.
const MAX_MESSAGES: usize = 100;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/panel/playground", get(open_playground).post(call_model))
}

/// A key in one of its workspaces.
struct Target {
    value: String,
    label: String,
    selected: bool,
    /// The only models that it may use, as JSON; empty: all.
    models: String,
}

struct ModelChoice {
    id: String,
    selected: bool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    role: Speaker,
    content: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

impl Message {
    fn class(&self) -> &'static str {
        match self.role {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        }
    }

    fn speaker(&self) -> &'static str {
        match self.role {
            Speaker::User => "You",
            Speaker::Assistant => "Model",
        }
    }
}

/// What a person typed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlaygroundForm {
    /// `{key}.{workspace}`
    target: String,
    model: String,
    system: String,
    prompt: String,
    /// What was said before, as JSON.
    history: String,
    max_tokens: String,
    temperature: String,
}

impl PlaygroundForm {
    fn target(&self) -> Result<(KeyId, WorkspaceId), Error> {
        let refused = || Error::invalid("Key: choose one of the list");
        let (key, workspace) = self.target.split_once('.').ok_or_else(refused)?;
        let (key, workspace) = (key.parse().ok(), workspace.parse().ok());
        key.zip(workspace).ok_or_else(refused)
    }

    fn history(&self) -> Result<Vec<Message>, Error> {
        if self.history.is_empty() {
            return Ok(Vec::new());
        }
        let messages: Vec<Message> = serde_json::from_str(&self.history)
            .map_err(|_| Error::invalid("the conversation cannot be read; begin a new one"))?;
        if messages.len() >= MAX_MESSAGES {
            return Err(Error::invalid(
                "the conversation is too long; begin a new one",
            ));
        }
        Ok(messages)
    }

    /// The request that goes to the gateway.
    fn body(&self, stream: bool) -> Result<Value, Error> {
        if self.prompt.trim().is_empty() {
            return Err(Error::invalid("Message: write something"));
        }
        let mut messages = Vec::new();
        if !self.system.trim().is_empty() {
            messages.push(json!({"role": "system", "content": self.system}));
        }
        for message in self.history()? {
            messages.push(json!(message));
        }
        messages.push(json!({"role": "user", "content": self.prompt}));
        let mut body = json!({"model": self.model, "messages": messages, "stream": stream});
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if !self.max_tokens.trim().is_empty() {
            let most: u32 = self
                .max_tokens
                .trim()
                .parse()
                .map_err(|_| Error::invalid("Most tokens: must be a whole number"))?;
            body["max_tokens"] = most.into();
        }
        if !self.temperature.trim().is_empty() {
            let degrees: f64 = self
                .temperature
                .trim()
                .parse()
                .map_err(|_| Error::invalid("Temperature: must be a number"))?;
            if !(0.0..=2.0).contains(&degrees) {
                return Err(Error::invalid("Temperature: must be between 0 and 2"));
            }
            body["temperature"] = degrees.into();
        }
        Ok(body)
    }
}

/// What became of a call.
#[derive(Default)]
struct Outcome {
    status: u16,
    /// Why it was refused.
    problem: String,
    /// What it took.
    facts: String,
    call: Option<(WorkspaceId, CallId)>,
}

#[derive(Template)]
#[template(path = "ai/playground.html")]
struct PlaygroundPage {
    layout: Layout,
    targets: Vec<Target>,
    models: Vec<ModelChoice>,
    form: PlaygroundForm,
    messages: Vec<Message>,
    history: String,
    outcome: Outcome,
    /// Where the call of an answer is shown; its two ids follow.
    calls: String,
}

impl PlaygroundPage {
    async fn load(
        app: &AppState,
        visit: &Visit,
        chosen: Option<KeyId>,
        form: PlaygroundForm,
        messages: Vec<Message>,
        outcome: Outcome,
    ) -> Result<Self, PanelError> {
        let keys = choices::newest_keys(app, &visit.scope, chosen).await?;
        let mut targets: Vec<Target> = keys
            .iter()
            .flat_map(|key| targets_of(key, &form.target))
            .take(MAX_TARGETS)
            .collect();
        if let Some(key) = chosen
            && let Some(first) = targets
                .iter_mut()
                .find(|target| target.value.starts_with(&key.to_string()))
            && form.target.is_empty()
        {
            first.selected = true;
        }
        let listed = app.gateway.listed_models(None);
        let model = |id: String| ModelChoice {
            selected: id == form.model,
            id,
        };
        let mut models: Vec<_> = listed
            .iter()
            .take(MAX_MODELS)
            .map(|listed| model(listed.id.to_string()))
            .collect();
        if !form.model.is_empty() && !models.iter().any(|model| model.selected) {
            models.push(model(form.model.clone()));
        }
        Ok(Self {
            layout: visit.layout("Playground", Section::Playground),
            targets,
            models,
            history: serde_json::to_string(&messages).map_err(Error::internal)?,
            messages,
            form,
            outcome,
            calls: visit.href("/panel/calls"),
        })
    }
}

/// The enabled key in each of its workspaces.
fn targets_of(key: &Key, chosen: &str) -> Vec<Target> {
    let several = key.workspaces.len() > 1;
    let models = key
        .limits
        .models
        .as_ref()
        .map(|models| json!(models).to_string());
    let off = if key.enabled { "" } else { " (disabled)" };
    let target = |workspace: &estrade_model::workspace::WorkspaceRef| {
        let value = format!("{}.{}", key.id, workspace.id);
        Target {
            label: if several {
                format!("{} in {}{off}", key.name, workspace.name)
            } else {
                format!("{}{off}", key.name)
            },
            selected: value == chosen,
            value,
            models: models.clone().unwrap_or_default(),
        }
    };
    key.workspaces.iter().map(target).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PlaygroundQuery {
    key: Option<String>,
    model: String,
}

async fn open_playground(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<PlaygroundQuery>,
) -> Result<Response, PanelError> {
    let key = choices::optional_id("key", query.key.as_deref())?;
    let form = PlaygroundForm {
        model: query.model.chars().take(200).collect(),
        ..PlaygroundForm::default()
    };
    render(&PlaygroundPage::load(&app, &visit, key, form, Vec::new(), Outcome::default()).await?)
}

async fn call_model(
    State(app): State<AppState>,
    visit: Visit,
    context: RequestContext,
    headers: HeaderMap,
    SignedForm(form): SignedForm<PlaygroundForm>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let wants_events = accepted.is_some_and(|accepted| accepted.contains("text/event-stream"));
    // The gateway bounds the time itself, by the provider's settings.
    context.clear_deadline();
    let called = async {
        let (key, workspace) = form.target()?;
        let body = form.body(wants_events)?.to_string();
        let response = person::chat(&app, &visit.scope, key, workspace, body.into()).await?;
        Ok::<_, Error>((key, workspace, response))
    };
    match called.await {
        Ok((_, _, response)) if wants_events => {
            let reader = visit.scope.caller;
            Ok(response.map(|body| end_with_credential(app, reader, body, ENDED)))
        }
        Ok((key, workspace, response)) => {
            let (answer, outcome) = read_response(&app, &visit.scope, workspace, response).await?;
            let status = StatusCode::from_u16(outcome.status).unwrap_or(StatusCode::OK);
            let mut messages = form.history()?;
            let mut form = form;
            if let Some(answer) = answer {
                let prompt = std::mem::take(&mut form.prompt);
                messages.push(Message {
                    role: Speaker::User,
                    content: prompt,
                });
                messages.push(Message {
                    role: Speaker::Assistant,
                    content: answer,
                });
            }
            let page =
                PlaygroundPage::load(&app, &visit, Some(key), form, messages, outcome).await?;
            render_with(status, &page)
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            if wants_events {
                return Ok(refusal(&problem));
            }
            let messages = form.history().unwrap_or_default();
            let outcome = Outcome {
                status: 422,
                problem,
                ..Outcome::default()
            };
            let chosen = form.target().ok().map(|(key, _)| key);
            let page = PlaygroundPage::load(&app, &visit, chosen, form, messages, outcome).await?;
            render_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

/// A refusal of ours in the shape of the gateway's.
fn refusal(problem: &str) -> Response {
    let body = json!({"error": {"message": problem, "type": "invalid_request_error", "code": "invalid", "param": null}});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    let json = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The text of a whole answer, and what became of the call.
async fn read_response(
    app: &AppState,
    scope: &Scope,
    workspace: WorkspaceId,
    response: Response,
) -> Result<(Option<String>, Outcome), Error> {
    let status = response.status();
    let call = response
        .headers()
        .get("x-estrade-call")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let call: Option<CallId> = call;
    let bytes = to_bytes(response.into_body(), MAX_ANSWER_BYTES).await;
    let body: Value = bytes
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let mut outcome = Outcome {
        status: status.as_u16(),
        call: call.map(|id| (workspace, id)),
        ..Outcome::default()
    };
    if !status.is_success() {
        let message = body["error"]["message"]
            .as_str()
            .unwrap_or("the call was refused");
        outcome.problem = sentence(message);
        return Ok((None, outcome));
    }
    let Some(answer) = body["choices"][0]["message"]["content"].as_str() else {
        outcome.problem = String::from("The answer has no text that can be shown here.");
        return Ok((None, outcome));
    };
    if let Some(id) = call
        && let Ok(call) = usage::read_call(&app.core, &app.ledger, scope, workspace, id).await
    {
        let tokens = number(call.prompt_tokens.saturating_add(call.completion_tokens));
        outcome.facts = format!(
            "{tokens} tokens · cost {} · {} ms",
            money(call.cost),
            number(call.latency_ms)
        );
    }
    Ok((Some(answer.to_owned()), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> PlaygroundForm {
        PlaygroundForm {
            model: "estrade/echo".into(),
            prompt: "hi".into(),
            ..PlaygroundForm::default()
        }
    }

    #[test]
    fn a_conversation_becomes_a_request() {
        let history =
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        let form = PlaygroundForm {
            system: "be brief".into(),
            history: history.to_string(),
            max_tokens: "7".into(),
            ..form()
        };
        let body = form.body(false).unwrap();
        let roles: Vec<_> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!(
            (&body["max_tokens"], &body["stream"]),
            (&json!(7), &json!(false))
        );
        assert_eq!(
            form.body(true).unwrap()["stream_options"]["include_usage"],
            true
        );
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        for bad in [
            PlaygroundForm {
                prompt: " ".into(),
                ..form()
            },
            PlaygroundForm {
                max_tokens: "-1".into(),
                ..form()
            },
            PlaygroundForm {
                temperature: "9".into(),
                ..form()
            },
            PlaygroundForm {
                temperature: "NaN".into(),
                ..form()
            },
            PlaygroundForm {
                history: "[{\"role\":\"system\",\"content\":\"x\"}]".into(),
                ..form()
            },
            PlaygroundForm {
                history: "{".into(),
                ..form()
            },
        ] {
            assert!(bad.body(false).is_err(), "{bad:?}");
        }
        assert!(form().target().is_err());
        let target = "0123456789abcdef01234567.0123456789abcdef01234568".to_owned();
        assert!(PlaygroundForm { target, ..form() }.target().is_ok());
    }
}
