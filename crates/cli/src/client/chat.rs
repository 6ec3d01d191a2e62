//! `estrade chat`: asks a model and prints its answer while it comes.

use super::input::read_text;
use super::session::Session;
use super::workspaces::find_workspace;
use clap::Args;
use estrade_client::sse::EventStream;
use estrade_client::text::{Neutralizer, neutralize};
use estrade_client::url::segment;
use estrade_client::{Client, ClientError, Result};
use estrade_model::WorkspaceId;
use estrade_model::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest question that is read from standard input.
const MAX_QUESTION_BYTES: u64 = 1 << 20;
/// An answer that takes longer is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// The same within an answer. An Estrade server sends a comment every 10 s, but ESTRADE_AI_URL may name another one, whose
/// model thinks in silence.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

/// `estrade chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  export ESTRADE_AI_KEY=$(estrade keys create me --workspace main)
  estrade chat --model estrade/echo 'Hello!'
  git diff | estrade chat --model openai/gpt-4o-mini --system 'Review this change.' -
  ESTRADE_AI_URL=https://ai.example.com estrade chat 'Hello!'

The key goes where ESTRADE_AI_URL says, else to the AI API of the server that --context, --url or ESTRADE_URL
names, else to that of http://127.0.0.1:3000. Nobody needs to be logged in; only a --workspace by name is looked up
with the login.")]
pub struct ChatArgs {
    /// The question; - reads it from standard input
    #[arg(required = true)]
    question: Vec<String>,
    /// The model, as `estrade models` lists them
    #[arg(long, short, default_value = "estrade/echo")]
    model: String,
    /// What the model is told before the question
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The workspace, by name or id, when the key has several
    #[arg(long, short)]
    workspace: Option<String>,
}

pub async fn run(args: &ChatArgs, session: &Session<'_>) -> anyhow::Result<()> {
    let key = std::env::var("ESTRADE_AI_KEY")
        .ok()
        .filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        ClientError::Usage(
            "models are asked with an AI key: ESTRADE_AI_KEY=$(estrade keys create NAME --workspace main)".to_owned(),
        )
    })?;
    let server = session.ai_key_server().await?;
    let path = match &args.workspace {
        Some(workspace) => {
            let id = workspace_id(workspace, session).await?;
            format!("/api/{}/v1/chat/completions", segment(&id)?)
        }
        None => "/v1/chat/completions".to_owned(),
    };
    // No team: the key says whose it is.
    let client = Client::new(&server, Some(Secret(key)), None)?;
    let is_streamed = !session.output.is_json();
    let body = json!({"model": args.model, "messages": messages(args)?, "stream": is_streamed});
    let request = client
        .request(Method::POST, &path)
        .timeout(Some(ANSWER_TIMEOUT))
        // Each attempt is paid for, and the AI API does not know idempotency keys.
        .once()
        .body(&body)?;
    if !is_streamed {
        return session.output.document(&request.json::<Value>().await?);
    }
    print_response(request.send().await?).await
}

/// Only a name is looked up, with the login of an account: a key reads no workspaces.
async fn workspace_id(workspace: &str, session: &Session<'_>) -> Result<String> {
    if workspace.parse::<WorkspaceId>().is_ok() {
        return Ok(workspace.to_owned());
    }
    find_workspace(&session.ai().await?, workspace).await
}

fn messages(args: &ChatArgs) -> Result<Vec<Value>> {
    let question = if args.question == ["-"] {
        let read = read_text(std::io::stdin(), MAX_QUESTION_BYTES);
        read.map_err(|error| ClientError::Usage(format!("cannot read the question: {error}")))?
    } else {
        args.question.join(" ")
    };
    let system = args
        .system
        .iter()
        .map(|text| json!({"role": "system", "content": text}));
    Ok(system
        .chain([json!({"role": "user", "content": question})])
        .collect())
}

/// Prints the pieces of an answer as they come; control sequences in them are removed, also across pieces.
async fn print_response(response: reqwest::Response) -> anyhow::Result<()> {
    let url = response.url().to_string();
    let mut stream = EventStream::new(response).idle_timeout(IDLE_TIMEOUT);
    let mut neutralizer = Neutralizer::default();
    let mut is_whole = false;
    let broken = loop {
        let events = match stream.next().await {
            Ok(Some(events)) => events,
            Ok(None) => break None,
            Err(error) if error.may_pass() => break Some(error),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            is_whole |= event.data == "[DONE]";
            let Ok(event) = serde_json::from_str::<Value>(&event.data) else {
                continue;
            };
            if let Some(message) = event["error"]["message"].as_str() {
                anyhow::bail!("the model failed: {}", neutralize(message));
            }
            let choice = &event["choices"][0];
            is_whole |= choice["finish_reason"].is_string();
            let text = choice["delta"]["content"].as_str().unwrap_or_default();
            if !crate::printer::write(neutralizer.push(text).as_bytes())? {
                return Ok(());
            }
        }
    };
    crate::printer::write(b"\n")?;
    if is_whole {
        return Ok(());
    }
    let cause = match broken {
        Some(ClientError::Unreachable { cause, .. }) => format!("the answer broke off: {cause}"),
        Some(error) => return Err(error.into()),
        None => "the answer broke off".to_owned(),
    };
    Err(ClientError::Unreachable { url, cause }.into())
}
