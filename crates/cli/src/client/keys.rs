//! `estrade keys …`: AI keys.

use super::format::{now, relative, relative_or};
use super::output::Output;
use super::prompt::confirm;
use super::session::Session;
use clap::{Args, Subcommand};
use estrade_client::url::segment;
use estrade_client::wire::Key;
use estrade_client::{Client, ClientError, Result};
use estrade_model::{KeyId, Timestamp};
use reqwest::Method;
use serde_json::{Map, Value, json};

/// `estrade keys …`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List your keys, or those of a team (--team).
    List,
    /// Make a key and print it. It is shown only this once.
    #[command(after_help = "\
Examples:
  estrade keys create ci-bot --workspace main
  estrade keys create demo --workspace main --rpm 60 --budget 5.00 --period monthly")]
    Create {
        /// Its name
        name: String,
        #[command(flatten)]
        settings: KeySettings,
    },
    /// Change a key; what is not named stays.
    Update {
        /// Its name or id
        key: String,
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        settings: KeySettings,
    },
    /// Replace the secret of a key and print the new one.
    Rotate {
        /// Its name or id
        key: String,
        /// For how many seconds the old secret still works
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        grace: u64,
    },
    /// Let a key work again.
    Enable {
        /// Its name or id
        key: String,
    },
    /// Make a key stop working at once.
    Disable {
        /// Its name or id
        key: String,
    },
    /// Delete a key.
    Delete {
        /// Its name or id
        key: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// What a key may do.
#[derive(Debug, Args)]
pub struct KeySettings {
    /// A workspace that it is for, by name; may be repeated
    #[arg(long = "workspace", short, value_name = "NAME")]
    workspaces: Vec<String>,
    /// A model that it may use; may be repeated [default: all]
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
    /// Most requests per minute
    #[arg(long, value_name = "COUNT")]
    rpm: Option<u32>,
    /// Most tokens per minute
    #[arg(long, value_name = "COUNT")]
    tpm: Option<u32>,
    /// What it may cost, such as 5.00
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<String>,
    /// In which time: daily, monthly or total
    #[arg(long, default_value = "monthly", requires = "budget")]
    period: String,
    /// When it stops working, such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
}

impl KeySettings {
    /// The fields of a request; what was not said is absent.
    fn to_fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        if !self.workspaces.is_empty() {
            put("workspaces", json!(self.workspaces));
        }
        if !self.models.is_empty() {
            put("models", json!(self.models));
        }
        if let Some(rpm) = self.rpm {
            put("rpm", json!(rpm));
        }
        if let Some(tpm) = self.tpm {
            put("tpm", json!(tpm));
        }
        if let Some(amount) = &self.budget {
            put("budget", json!({"amount": amount, "period": self.period}));
        }
        if let Some(at) = self.expires_at {
            put("expiresAt", json!(at));
        }
        fields
    }
}

pub async fn run(command: &KeysCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.ai().await?, &session.output);
    match command {
        KeysCommand::List => {
            let document: Value = client.get("/v1/keys").await?;
            output.response(document, |keys| show_list(output, keys))
        }
        KeysCommand::Create { name, settings } => {
            if settings.workspaces.is_empty() {
                let reason = "a key is for at least one workspace; name it with --workspace NAME";
                return Err(ClientError::Usage(reason.to_owned()).into());
            }
            let mut fields = settings.to_fields();
            fields.insert("name".to_owned(), json!(name));
            let document: Value = client.post("/v1/keys", &fields).await?;
            let rescue = format!("`estrade keys rotate {name}` makes another");
            output.secret(&document, "key", &rescue)
        }
        KeysCommand::Update {
            key,
            name,
            settings,
        } => {
            let mut fields = settings.to_fields();
            if let Some(name) = name {
                fields.insert("name".to_owned(), json!(name));
            }
            if fields.is_empty() {
                return Err(ClientError::Usage(
                    "nothing to change; `estrade keys update --help`".to_owned(),
                )
                .into());
            }
            update(session, &client, key, &Value::Object(fields), "changed").await
        }
        KeysCommand::Rotate { key, grace } => {
            let path = format!("{}/rotate", path_of(&client, key).await?);
            let document: Value = client.post(&path, &json!({"grace": grace})).await?;
            let rescue = format!("`estrade keys rotate {key}` again");
            output.secret(&document, "key", &rescue)
        }
        KeysCommand::Enable { key } => {
            update(session, &client, key, &json!({"enabled": true}), "enabled").await
        }
        KeysCommand::Disable { key } => {
            update(
                session,
                &client,
                key,
                &json!({"enabled": false}),
                "disabled",
            )
            .await
        }
        KeysCommand::Delete { key, yes } => {
            confirm(&format!("Delete the key {key}?"), *yes)?;
            client.delete(&path_of(&client, key).await?).await?;
            output.done(
                &json!({"key": key, "deleted": true}),
                format_args!("deleted {key}"),
            )
        }
    }
}

async fn update(
    session: &Session<'_>,
    client: &Client,
    key: &str,
    body: &Value,
    done: &str,
) -> anyhow::Result<()> {
    let request = client.request(Method::PUT, &path_of(client, key).await?);
    request.body(body)?.send().await?;
    session.output.done(
        &json!({"key": key, "changed": true}),
        format_args!("{key} is {done}"),
    )
}

/// The path of a key that is named by its id or name.
async fn path_of(client: &Client, key: &str) -> Result<String> {
    let id = if key.parse::<KeyId>().is_ok() {
        key.to_owned()
    } else {
        let keys: Vec<Key> = client.get("/v1/keys").await?;
        let unknown = || {
            ClientError::NotFound(format!(
                "there is no key `{key}`; `estrade keys list` shows yours"
            ))
        };
        keys.into_iter()
            .find(|it| it.name == key)
            .ok_or_else(unknown)?
            .id
    };
    Ok(format!("/v1/keys/{}", segment(&id)?))
}

fn show_list(output: &Output, keys: Vec<Key>) -> String {
    if keys.is_empty() {
        output
            .printer
            .note("no keys; `estrade keys create NAME --workspace main` makes one");
    }
    let now = now();
    let row = |it: Key| {
        let workspaces: Vec<_> = it.workspaces.into_iter().map(|it| it.name).collect();
        let state = if it.enabled { "enabled" } else { "disabled" };
        vec![
            it.id,
            it.name,
            workspaces.join(", "),
            state.to_owned(),
            relative(it.created_at, now),
            relative_or(it.expires_at, now, "never"),
            relative_or(it.last_used_at, now, "never"),
        ]
    };
    let rows = keys.into_iter().map(row).collect();
    output.table(
        &[
            "ID",
            "NAME",
            "WORKSPACES",
            "STATE",
            "MADE",
            "ENDS",
            "LAST USED",
        ],
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_not_sent() {
        let empty = KeySettings {
            workspaces: Vec::new(),
            models: Vec::new(),
            rpm: None,
            tpm: None,
            budget: None,
            period: "monthly".to_owned(),
            expires_at: None,
        };
        assert!(empty.to_fields().is_empty());
        let some = KeySettings {
            workspaces: vec!["main".to_owned()],
            budget: Some("5".to_owned()),
            ..empty
        };
        let fields = Value::Object(some.to_fields());
        assert_eq!(
            fields,
            json!({"workspaces": ["main"], "budget": {"amount": "5", "period": "monthly"}})
        );
    }
}
