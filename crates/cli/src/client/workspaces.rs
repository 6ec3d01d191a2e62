//! `estrade workspaces …`, `estrade models` and `estrade usage`.

use super::format::{now, relative};
use super::prompt::confirm;
use super::session::Session;
use clap::{Args, Subcommand, ValueEnum};
use estrade_client::url::segment;
use estrade_client::wire::{Activity, ModelList, Workspace, WorkspaceList};
use estrade_client::{Client, ClientError, Result};
use estrade_model::{KeyId, WorkspaceId};
use reqwest::Method;
use serde_json::{Value, json};

/// `estrade workspaces …`.
#[derive(Debug, Subcommand)]
pub enum WorkspacesCommand {
    /// List your workspaces, or those of a team (--team).
    List,
    /// Make a workspace.
    Create {
        /// Its name
        name: String,
    },
    /// Delete a workspace that no key uses.
    Delete {
        /// Its name or id
        workspace: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// `estrade usage`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  estrade usage main --by month")]
pub struct UsageArgs {
    /// The workspace, by name or id
    workspace: String,
    /// The last 24 hours, 30 days, 12 weeks or 12 months
    #[arg(long, value_enum, default_value_t = Period::Day)]
    by: Period,
    /// Only of this key, by id
    #[arg(long, value_name = "ID")]
    key: Option<KeyId>,
}

/// By what usage is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Period {
    Hour,
    Day,
    Week,
    Month,
}

impl Period {
    fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// As much of the time at which a period begins as tells it from others.
    fn label(self, begin: &str) -> String {
        let length = match self {
            Self::Hour => "2026-11-19T08:00".len(),
            Self::Day | Self::Week => "2026-11-19".len(),
            Self::Month => "2026-11".len(),
        };
        begin.get(..length).unwrap_or(begin).replace('T', " ")
    }
}

pub async fn run(command: &WorkspacesCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.ai().await?, &session.output);
    match command {
        WorkspacesCommand::List => {
            let document: Value = client.get("/v1/workspaces").await?;
            output.response(document, |list: WorkspaceList| {
                if list.workspaces.is_empty() {
                    output.printer.note(
                        "no workspaces; a key makes its own, or `estrade workspaces create NAME`",
                    );
                }
                let now = now();
                let row = |it: Workspace| vec![it.id, it.name, relative(it.created_at, now)];
                output.table(
                    &["ID", "NAME", "MADE"],
                    list.workspaces.into_iter().map(row).collect(),
                )
            })
        }
        WorkspacesCommand::Create { name } => {
            let document: Value = client
                .post("/v1/workspaces", &json!({"name": name}))
                .await?;
            output.line(document, |made: Value| {
                made["workspace"]["_id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
        }
        WorkspacesCommand::Delete { workspace, yes } => {
            confirm(&format!("Delete the workspace {workspace}?"), *yes)?;
            let id = find_workspace(&client, workspace).await?;
            client
                .delete(&format!("/v1/workspaces/{}", segment(&id)?))
                .await?;
            output.done(
                &json!({"workspace": workspace, "deleted": true}),
                format_args!("deleted {workspace}"),
            )
        }
    }
}

/// `estrade models`.
pub async fn list_models(session: &Session<'_>) -> anyhow::Result<()> {
    let document: Value = session.ai().await?.get("/v1/models").await?;
    let output = &session.output;
    output.response(document, |list: ModelList| {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let row = |model: &Value| {
            vec![
                text(&model["id"]),
                text(&model["owned_by"]),
                text(&model["context_length"]),
            ]
        };
        output.table(
            &["MODEL", "PROVIDER", "CONTEXT"],
            list.data.iter().map(row).collect(),
        )
    })
}

/// `estrade usage`.
pub async fn show_usage(args: &UsageArgs, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.ai().await?, &session.output);
    let id = find_workspace(&client, &args.workspace).await?;
    let request = client.request(
        Method::GET,
        &format!("/v1/workspaces/{}/activity", segment(&id)?),
    );
    let request = request
        .query("filter", args.by.as_str())
        .maybe_query("key", args.key);
    let document: Value = request.json().await?;
    output.response(document, |activity: Vec<Activity>| {
        if activity.is_empty() {
            output.printer.note("no calls in this time");
        }
        let rows = activity.into_iter().flat_map(|period| {
            let date = args.by.label(&period.date);
            period.data.into_iter().map(move |it| {
                let cost = match it.total_cost {
                    Value::String(cost) => cost,
                    other => other.to_string(),
                };
                vec![
                    date.clone(),
                    it.model,
                    it.request_count.to_string(),
                    it.total_tokens.to_string(),
                    cost,
                ]
            })
        });
        output.table(
            &["DATE", "MODEL", "CALLS", "TOKENS", "COST"],
            rows.collect(),
        )
    })
}

/// The id of a workspace that is named by its id or name.
pub async fn find_workspace(client: &Client, workspace: &str) -> Result<String> {
    if workspace.parse::<WorkspaceId>().is_ok() {
        return Ok(workspace.to_owned());
    }
    let list: WorkspaceList = client.get("/v1/workspaces").await?;
    let found = list.workspaces.into_iter().find(|it| it.name == workspace);
    let unknown = || {
        ClientError::NotFound(format!(
            "there is no workspace `{workspace}`; `estrade workspaces list` shows yours"
        ))
    };
    Ok(found.ok_or_else(unknown)?.id)
}
