//! `estrade tokens …`: one's own API tokens.

use super::format::{now, relative, relative_or};
use super::session::Session;
use clap::Subcommand;
use estrade_client::url::segment;
use estrade_client::wire::{Token, TokenList};
use estrade_model::token_scope::TokenScope;
use reqwest::Method;
use serde_json::{Value, json};

/// `estrade tokens …`.
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// List your tokens.
    List,
    /// Make a token and print it. It is shown only this once.
    #[command(after_help = "\
Examples:
  estrade tokens create ci --expires-in 180d --scope read
  TOKEN=$(estrade tokens create)")]
    Create {
        /// What it is for
        name: Option<String>,
        /// How long it is valid: 1h, 1d, 7d, 30d, 180d or 1y
        #[arg(long, value_name = "TIME", default_value = "30d")]
        expires_in: String,
        /// What it is good for: full, read, ai, or project: and the id of a project
        #[arg(long, default_value = "full")]
        scope: TokenScope,
    },
    /// End a token now.
    Revoke {
        /// Its id, as `estrade tokens list` shows it
        id: String,
    },
}

pub async fn run(command: &TokensCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.client().await?, &session.output);
    match command {
        TokensCommand::List => {
            let document: Value = client.get("/v1/tokens").await?;
            let now = now();
            let row = |it: Token| {
                vec![
                    it.id,
                    it.name,
                    it.scope,
                    relative(it.created_at, now),
                    relative_or(it.expires_at, now, "never"),
                    relative_or(it.last_used_at, now, "never"),
                    it.last_used_from.unwrap_or_default(),
                ]
            };
            output.response(document, |list: TokenList| {
                let rows = list.tokens.into_iter().map(row).collect();
                output.table(
                    &["ID", "NAME", "SCOPE", "MADE", "ENDS", "LAST USED", "FROM"],
                    rows,
                )
            })
        }
        TokensCommand::Create {
            name,
            expires_in,
            scope,
        } => {
            let mut body = json!({"scope": scope});
            if let Some(name) = name {
                body["name"] = json!(name);
            }
            let request = client
                .request(Method::POST, "/v1/api-token")
                .query("expiresIn", expires_in);
            let document: Value = request.body(&body)?.json().await?;
            let rescue = "`estrade tokens list` shows the token; `estrade tokens revoke ID` it, and make another";
            output.secret(&document, "api_token", rescue)
        }
        TokensCommand::Revoke { id } => {
            client
                .delete(&format!("/v1/tokens/{}", segment(id)?))
                .await?;
            output.done(&json!({"token": id, "revoked": true}), "token revoked")
        }
    }
}
