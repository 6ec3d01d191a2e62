//! Which server a command talks to, as whom, and how it prints.

use super::options::ServerOptions;
use super::output::Output;
use crate::printer::Printer;
use estrade_client::contexts::{Context, ContextStore, Contexts, Credential, Kept, Login};
use estrade_client::credentials::{Choice, DEFAULT_SERVER, Target, choose};
use estrade_client::keyring::{Keyring, Unusable};
use estrade_client::server_info::ai_address;
use estrade_client::text::neutralize_line;
use estrade_client::url::{is_loopback, parse_server};
use estrade_client::wire::TeamList;
use estrade_client::{Client, ClientError, Result};
use estrade_model::TeamId;
use estrade_model::secret::Secret;

/// One run of a command.
pub struct Session<'o> {
    options: &'o ServerOptions,
    pub output: Output,
}

impl<'o> Session<'o> {
    pub fn new(options: &'o ServerOptions, printer: Printer) -> Self {
        Self {
            options,
            output: Output::new(printer, options.json),
        }
    }

    /// Where logins are kept.
    pub fn store(&self) -> Result<ContextStore> {
        ContextStore::locate(|name| std::env::var_os(name))
    }

    /// Where their tokens are kept, if it can be used.
    pub fn keyring(&self) -> Result<Keyring, Unusable> {
        Keyring::locate(|name| std::env::var_os(name))
    }

    /// Remembers a login; whether its token is in the keyring.
    pub async fn remember(&self, name: &str, login: Login, use_keyring: bool) -> Result<bool> {
        let store = self.store()?;
        let keyring = self.keyring().ok().filter(|_| use_keyring);
        let (kept, before) = store.log_in(name, login, keyring).await?;
        if let Kept::InFile(Some(reason)) = &kept {
            self.output.printer.note(format_args!(
                "the token is kept in {}, because the keyring {}",
                store.path().display(),
                neutralize_line(&reason.to_string())
            ));
        }
        self.forget(before.as_slice()).await;
        Ok(kept == Kept::InKeyring)
    }

    /// Removes tokens from the keyring that no context names any more.
    pub async fn forget(&self, contexts: &[Context]) {
        let entries = contexts.iter().filter_map(|it| match &it.credential {
            Credential::Keyring(entry) => Some(entry),
            Credential::Token(_) => None,
        });
        for entry in entries {
            let removed = match self.keyring() {
                Ok(keyring) => keyring.remove(entry).await,
                Err(unusable) => Err(unusable),
            };
            if let Err(reason) = removed {
                self.output.printer.warning(neutralize_line(&format!(
                    "a token stays in the keyring, because that {reason}"
                )));
                // The others would not be removed either.
                return;
            }
        }
    }

    /// The server that is meant.
    pub fn target(&self) -> Result<Target> {
        let choice = Choice {
            context: self.options.context.clone(),
            url: self.options.url.clone().or_else(|| variable("ESTRADE_URL")),
            token: variable("ESTRADE_TOKEN").map(Secret),
        };
        // No file is read then, and none is needed: a machine that builds may have no home directory.
        let is_enough = choice.context.is_none() && choice.token.is_some();
        let contexts = if is_enough {
            Contexts::default()
        } else {
            self.store()?.load()?
        };
        choose(choice, &contexts)
    }

    /// The server that is named for a login: never the one of the current context, to which a token for another
    /// server would be sent.
    pub fn login_server(&self, argument: Option<&str>) -> Result<String> {
        if let Some(server) = argument.or(self.options.url.as_deref()) {
            return parse_server(server);
        }
        if let Some(name) = self.context_option() {
            return Ok(self.store()?.load()?.find(name)?.url.clone());
        }
        parse_server(variable("ESTRADE_URL").as_deref().unwrap_or(DEFAULT_SERVER))
    }

    /// The address of the AI API for the key of the environment: what is named with it, else that of the default server.
    ///
    /// Never that of the current context unless it is named: a key that is left over from another server would be sent
    /// there. Nor to another machine: anybody on this one can listen where the default server does.
    pub async fn ai_key_server(&self) -> Result<String> {
        if let Some(chosen) = variable("ESTRADE_AI_URL") {
            return parse_server(&chosen);
        }
        let server = self.login_server(None)?;
        let is_named = self.options.url.is_some()
            || self.options.context.is_some()
            || ["ESTRADE_URL", "ESTRADE_TOKEN"]
                .into_iter()
                .any(|name| variable(name).is_some());
        // Without a home directory nobody is logged in. A file that cannot be read may name another server.
        if !is_named && let Ok(store) = self.store() {
            let contexts = store.load()?;
            let current = contexts.current().filter(|(_, it)| it.url != server);
            if let Some((name, context)) = current {
                return Err(unnamed_server(name, &context.url));
            }
        }
        let target = Target {
            server,
            credential: None,
            is_stored: false,
        };
        let client = Client::new(&target.server, None, None)?;
        let address = ai_address(&client, &target, None).await?;
        if !is_named && !is_on_this_machine(&address) {
            return Err(ClientError::Usage(format!(
                "the key in ESTRADE_AI_KEY is not sent to {address} only because {server} names it, which is the default server: add --url {server}, or set ESTRADE_AI_URL with it",
                server = target.server
            )));
        }
        Ok(address)
    }

    /// The context that `--context` names.
    pub fn context_option(&self) -> Option<&str> {
        self.options.context.as_deref()
    }

    /// A client of the platform API, logged in.
    pub async fn client(&self) -> Result<Client> {
        self.client_of(&self.target()?).await
    }

    async fn client_of(&self, target: &Target) -> Result<Client> {
        let token = target.token(|| self.keyring()).await?;
        let team = self.options.team.as_deref().filter(|team| !team.is_empty());
        let Some(team) = team else {
            return Client::new(&target.server, Some(token), None);
        };
        let own = Client::new(&target.server, Some(token.clone()), None)?;
        let id = team_id(&own, team).await?;
        Client::new(&target.server, Some(token), Some(&id))
    }

    /// The same for the AI API, which the server names.
    pub async fn ai(&self) -> Result<Client> {
        let target = self.target()?;
        let client = self.client_of(&target).await?;
        let chosen = variable("ESTRADE_AI_URL");
        client.at(&ai_address(&client, &target, chosen.as_deref()).await?)
    }
}

fn is_on_this_machine(server: &str) -> bool {
    reqwest::Url::parse(server).is_ok_and(|url| is_loopback(&url))
}

/// What is said when a key could be one for another server.
fn unnamed_server(name: &str, server: &str) -> ClientError {
    ClientError::Usage(format!(
        "the key in ESTRADE_AI_KEY is not sent to {server} only because that is the current context: add --context {name}, or set ESTRADE_AI_URL with it"
    ))
}

/// A variable of the environment; an empty one is not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The id of a team that is named by its id or name.
pub async fn team_id(client: &Client, team: &str) -> Result<String> {
    match team.parse::<TeamId>() {
        Ok(id) => Ok(id.to_string()),
        Err(_) => find_team(client, team).await,
    }
}

async fn find_team(client: &Client, name: &str) -> Result<String> {
    let list: TeamList = client.get("/v2/teams").await?;
    let mut found = list.teams.into_iter().filter(|team| team.name == name);
    match (found.next(), found.next()) {
        (Some(team), None) => Ok(team.id),
        (Some(_), Some(_)) => Err(ClientError::Usage(format!(
            "several teams are called `{name}`; use the id"
        ))),
        (None, _) => Err(ClientError::NotFound(format!(
            "you are in no team `{name}`; `estrade teams list` shows yours"
        ))),
    }
}
