//! `estrade context …`: the servers that one is logged in to.

use super::session::Session;
use clap::Subcommand;
use serde_json::json;

/// `estrade context …`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List the servers that you are logged in to.
    List,
    /// Use this one from now on.
    Use {
        /// The context, as `estrade context list` shows it
        name: String,
    },
}

pub fn run(command: &ContextCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (store, output) = (session.store()?, &session.output);
    match command {
        ContextCommand::List => {
            let contexts = store.load()?;
            let is_current = |name: &String| contexts.current.as_ref() == Some(name);
            let all = contexts.contexts.iter();
            if output.is_json() {
                let all: Vec<_> = all
                    .map(|(name, it)| json!({"name": name, "url": it.url, "email": it.email, "current": is_current(name)}))
                    .collect();
                return output.document(&json!({"contexts": all}));
            }
            let row = |(name, it): (&String, &estrade_client::contexts::Context)| {
                let mark = if is_current(name) { "*" } else { "" };
                vec![
                    mark.to_owned(),
                    name.clone(),
                    it.url.clone(),
                    it.email.clone(),
                ]
            };
            let rows: Vec<_> = all.map(row).collect();
            if rows.is_empty() {
                output
                    .printer
                    .note("none yet; `estrade login URL --token -` makes one");
                return Ok(());
            }
            output
                .printer
                .data(output.table(&["", "NAME", "SERVER", "ACCOUNT"], rows))?;
        }
        ContextCommand::Use { name } => {
            store.change(|contexts| {
                contexts.find(name)?;
                contexts.current = Some(name.clone());
                Ok(())
            })?;
            output.done(&json!({"context": name}), format_args!("using {name}"))?;
        }
    }
    Ok(())
}
