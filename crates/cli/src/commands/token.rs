//! `estrade token …`: account tokens, managed by whoever has the data directory.

use super::account::parse_email;
use crate::args::TokenCommand;
use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::Context;
use estrade_model::Timestamp;
use estrade_model::account::Token;
use estrade_model::names::Label;
use estrade_service::identity::tokens::TokenRequest;
use estrade_service::{identity::accounts, identity::tokens};
use std::process::ExitCode;

/// Runs one of the token commands.
pub async fn run(
    command: &TokenCommand,
    config: &Config,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    let core = wiring::open(config).await?;
    match command {
        TokenCommand::Create {
            account,
            name,
            expires_in,
            scope,
        } => {
            let account = accounts::find_account(&core, &parse_email(account)?).await?;
            let name: Label = name
                .as_deref()
                .unwrap_or("command line")
                .parse()
                .context("--name")?;
            let new = TokenRequest {
                name: name.into(),
                scope: *scope,
                lifetime: *expires_in,
            };
            let made = tokens::create_any_token(&core, account.id, new).await?;
            let token = made.api_token.context("the token was not made")?;
            printer.data(token.expose())?;
        }
        TokenCommand::List { account } => {
            let account = accounts::find_account(&core, &parse_email(account)?).await?;
            let all = tokens::list_any_tokens(&core, account.id, None, u32::MAX, 0).await?;
            let rows: Vec<_> = all.into_iter().map(row).collect();
            printer.table(
                ["ID", "NAME", "MADE", "ENDS", "LAST USED", "SCOPE", "FROM"],
                &rows,
            )?;
        }
        TokenCommand::Revoke { id: Some(id), .. } => {
            let id = id.parse().with_context(|| format!("`{id}`"))?;
            tokens::revoke_any_token(&core, id).await?;
            printer.note("token revoked");
        }
        TokenCommand::Revoke { account, .. } => {
            let account = match account {
                Some(email) => {
                    let email = parse_email(email)?;
                    Some(accounts::find_account(&core, &email).await?.id)
                }
                None => None,
            };
            let ended = tokens::revoke_all_tokens(&core, account).await?;
            printer.note(format_args!("{ended} tokens revoked"));
            if account.is_none() {
                printer.note(
                    "admin.token no longer works; `estrade token create --account admin@localhost` gives a new one",
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(token: Token) -> [String; 7] {
    let or = |at: Option<Timestamp>, none: &str| at.map_or(none.to_owned(), |at| at.to_string());
    [
        token.id.to_string(),
        token.name,
        token.created_at.to_string(),
        or(token.expires_at, "never"),
        or(token.last_used_at, "never"),
        token.scope.to_string(),
        token.last_used_from.unwrap_or_default(),
    ]
}
