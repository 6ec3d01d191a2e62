//! `estrade login` and `estrade logout`.

use super::browser_login::{self, BrowserLogin};
use super::failure::INTERRUPTED;
use super::session::Session;
use clap::Args;
use estrade_client::contexts::Login;
use estrade_client::device_login::DeviceToken;
use estrade_client::text::neutralize_line;
use estrade_client::url::{authority, is_readable_in_transit, segment};
use estrade_client::wire::Me;
use estrade_client::{Client, ClientError};
use estrade_model::secret::Secret;
use estrade_model::token_scope::TokenScope;
use serde_json::json;
use std::io::Read;
use std::process::ExitCode;

/// Longest token that is read.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// `estrade login`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade login https://cloud.example.com               shows a code, which you approve in a browser
  estrade login https://cloud.example.com --token -     reads a token from stdin
  estrade login --token \"$TOKEN\" --name work            the server on this machine

Without --token the server makes a token once you have signed in to its panel, entered the code and
approved. It is called after this machine, ends after 90 days, and is revoked on the panel's page Tokens.
For --token, make one there, or by `estrade token create` on the server.

Tokens are kept in the keyring of the desktop, or without one in $XDG_CONFIG_HOME/estrade/contexts.json,
which only you may read. In CI, set ESTRADE_URL and ESTRADE_TOKEN instead of logging in.")]
pub struct LoginArgs {
    /// The server [env: ESTRADE_URL] [default: http://127.0.0.1:3000]
    server: Option<String>,
    /// An API token; - reads it from standard input, where no other user of the machine sees it
    #[arg(long)]
    token: Option<String>,
    /// What the token is to be good for: full, read, ai or project:ID [default: full]
    #[arg(long, value_name = "SCOPE", conflicts_with = "token")]
    scope: Option<String>,
    /// Only print the address, open no browser
    #[arg(long, conflicts_with = "token")]
    no_browser: bool,
    /// Call the context so [default: the server's host and port]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Keep the token in a file, also where there is a keyring [env: ESTRADE_KEYRING=off]
    #[arg(long)]
    no_keyring: bool,
}

/// `estrade logout`.
#[derive(Debug, Args)]
#[command(after_help = "The token itself stays valid: `estrade tokens revoke ID` ends it.")]
pub struct LogoutArgs {
    /// Forget this context [default: the current one]
    name: Option<String>,
    /// Forget all of them
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Takes a token, or gets one through a browser, checks it and remembers it.
pub async fn log_in(args: &LoginArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    let server = session.login_server(args.server.as_deref())?;
    let token = match args.token.as_deref() {
        Some("-") => read_token()?,
        Some(token) => token.to_owned(),
        None => {
            let login = BrowserLogin {
                server: &server,
                scope: parse_scope(args.scope.as_deref())?,
                may_open: !args.no_browser,
            };
            let Some(made) = browser_login::log_in(&login, session).await? else {
                return Ok(ExitCode::from(INTERRUPTED));
            };
            let kept = remember(args, &server, made.api_token.clone(), session).await;
            if kept.is_err() {
                revoke(&server, &made, session).await;
            }
            report(&kept?, session)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let token = Secret(token.trim().to_owned());
    if token.expose().is_empty() {
        return Err(ClientError::Usage("the token is empty".to_owned()).into());
    }
    if is_readable_in_transit(&server) {
        session.output.printer.warning(format_args!(
            "{server} is reached without TLS: others on the way can read your token"
        ));
    }
    report(&remember(args, &server, token, session).await?, session)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_scope(text: Option<&str>) -> estrade_client::Result<TokenScope> {
    let scope = text.map_or(Ok(TokenScope::Full), str::parse);
    scope.map_err(|invalid| ClientError::Usage(format!("--scope {}", invalid.0)))
}

/// A login that is kept.
struct KeptLogin {
    context: String,
    url: String,
    email: String,
    in_keyring: bool,
}

/// Ends a token that was made for this login and cannot be kept: nobody would have it, for 90 days.
async fn revoke(server: &str, made: &DeviceToken, session: &Session<'_>) {
    let end = async {
        let client = Client::new(server, Some(made.api_token.clone()), None)?;
        let path = format!("/v1/tokens/{}", segment(&made.id)?);
        client.delete(&path).await
    };
    let printer = &session.output.printer;
    match end.await {
        Ok(()) => printer.warning("the token that was made for this login is revoked again"),
        Err(error) => printer.warning(neutralize_line(&format!(
            "the token that was made for this login stays, revoke it on the page Tokens: {error}"
        ))),
    }
}

async fn remember(
    args: &LoginArgs,
    server: &str,
    token: Secret,
    session: &Session<'_>,
) -> estrade_client::Result<KeptLogin> {
    let client = Client::new(server, Some(token.clone()), None)?;
    let me: Me = client.get("/v1/me").await?;
    let name = args.name.clone().unwrap_or_else(|| authority(server));
    let login = Login {
        url: server.to_owned(),
        email: me.user.email.clone(),
        token,
    };
    let in_keyring = session.remember(&name, login, !args.no_keyring).await?;
    Ok(KeptLogin {
        context: name,
        url: server.to_owned(),
        email: me.user.email,
        in_keyring,
    })
}

fn report(kept: &KeptLogin, session: &Session<'_>) -> anyhow::Result<()> {
    let KeptLogin {
        context,
        url,
        email,
        in_keyring,
    } = kept;
    let document = json!({"context": context, "url": url, "email": email, "keyring": in_keyring});
    let place = if *in_keyring {
        ", token in the keyring"
    } else {
        ""
    };
    session.output.done(
        &document,
        format_args!("logged in to {url} as {email}; context `{context}`{place}"),
    )
}

fn read_token() -> estrade_client::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin()
        .take(MAX_TOKEN_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| ClientError::Usage(format!("cannot read the token: {error}")))?;
    Ok(text)
}

/// Forgets tokens.
pub async fn log_out(args: &LogoutArgs, session: &Session<'_>) -> anyhow::Result<()> {
    let (removed, contexts) = session.store()?.change(|contexts| {
        let names: Vec<String> = match args.name.as_deref().or(session.context_option()) {
            _ if args.all => contexts.contexts.keys().cloned().collect(),
            Some(name) => {
                contexts.find(name)?;
                vec![name.to_owned()]
            }
            None => contexts.current.iter().cloned().collect(),
        };
        let removed: Vec<_> = names
            .iter()
            .filter_map(|name| contexts.remove(name))
            .collect();
        Ok((names, removed))
    })?;
    session.forget(&contexts).await;
    if removed.is_empty() {
        return Err(ClientError::Usage("you are not logged in anywhere".to_owned()).into());
    }
    let document = json!({"removed": removed});
    session
        .output
        .done(&document, format_args!("forgot {}", removed.join(", ")))
}
