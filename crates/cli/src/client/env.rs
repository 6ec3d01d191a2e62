//! `estrade env …`: the environment variables of a project.

use super::input::read_text;
use super::projects::path_of;
use super::selection::ProjectOption;
use super::session::Session;
use clap::Subcommand;
use estrade_client::wire::{EnvVar, ProjectBody};
use estrade_client::{Client, ClientError, Result};
use estrade_model::dotenv;
use estrade_model::names::EnvKey;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Largest file that is imported: more than 200 variables of 32 KiB.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// What the server shows to those who may not see values.
const MASK: &str = "***";

/// `estrade env …`.
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// List the variables with their values.
    List {
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Set variables; the others stay. A project that runs gets a new release.
    #[command(after_help = "\
Examples:
  estrade env set LOG_LEVEL=debug GREETING='Hello there' --project my-app")]
    Set {
        #[command(flatten)]
        project: ProjectOption,
        /// Names and values
        #[arg(value_name = "NAME=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove variables.
    Unset {
        #[command(flatten)]
        project: ProjectOption,
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Set the variables of a .env file.
    Import {
        #[command(flatten)]
        project: ProjectOption,
        /// The file; - reads standard input
        #[arg(default_value = ".env")]
        file: PathBuf,
        /// Remove the variables that are not in the file
        #[arg(long)]
        replace: bool,
    },
    /// Print the variables as a .env file.
    Export {
        #[command(flatten)]
        project: ProjectOption,
    },
}

pub async fn run(command: &EnvCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.client().await?, &session.output);
    match command {
        EnvCommand::List { project } => {
            let envs = read(&client, &project.resolve(session)?).await?;
            if output.is_json() {
                return output.document(&to_document(&envs));
            }
            if envs.is_empty() {
                output
                    .printer
                    .note("no variables; `estrade env set NAME=VALUE` sets one");
                return Ok(());
            }
            let rows = envs
                .into_iter()
                .map(|env| vec![env.key, env.value])
                .collect();
            output
                .printer
                .data(output.table(&["NAME", "VALUE"], rows))?;
            Ok(())
        }
        EnvCommand::Set { project, settings } => {
            let parsed = settings
                .iter()
                .map(|setting| parse_setting(setting))
                .collect::<Result<Vec<_>>>()?;
            change(session, &client, &project.resolve(session)?, |envs| {
                set_all(envs, parsed)
            })
            .await
        }
        EnvCommand::Unset { project, names } => {
            let project = project.resolve(session)?;
            let removed = |envs: &mut Vec<EnvVar>| {
                for name in names {
                    let before = envs.len();
                    envs.retain(|env| env.key != *name);
                    if envs.len() == before {
                        return Err(ClientError::NotFound(format!(
                            "{project} has no variable `{name}`; nothing was changed"
                        )));
                    }
                }
                Ok(())
            };
            change(session, &client, &project, removed).await
        }
        EnvCommand::Import {
            project,
            file,
            replace,
        } => {
            let parsed = parse_file(file)?;
            let imported = |envs: &mut Vec<EnvVar>| {
                if *replace {
                    envs.clear();
                }
                set_all(envs, parsed)
            };
            change(session, &client, &project.resolve(session)?, imported).await
        }
        EnvCommand::Export { project } => {
            let envs = read(&client, &project.resolve(session)?).await?;
            refuse_masked(&envs)?;
            if output.is_json() {
                return output.document(&to_document(&envs));
            }
            let line = |env: &EnvVar| format!("{}={}", env.key, dotenv::quote(&env.value));
            let lines: Vec<_> = envs.iter().map(line).collect();
            if !lines.is_empty() {
                output.printer.data(output.shown(lines.join("\n")))?;
            }
            Ok(())
        }
    }
}

async fn read(client: &Client, project: &str) -> Result<Vec<EnvVar>> {
    let body: ProjectBody = client.get(&path_of(project)?).await?;
    Ok(body.project.envs)
}

fn to_document(envs: &[EnvVar]) -> Value {
    let one = |env: &EnvVar| json!({"key": env.key, "value": env.value});
    json!({"variables": envs.iter().map(one).collect::<Vec<_>>()})
}

/// The server takes the whole set, so the present one is read first.
async fn change(
    session: &Session<'_>,
    client: &Client,
    project: &str,
    change: impl FnOnce(&mut Vec<EnvVar>) -> Result<()>,
) -> anyhow::Result<()> {
    let mut envs = read(client, project).await?;
    refuse_masked(&envs)?;
    change(&mut envs)?;
    let mut body = to_document(&envs);
    body["project"] = json!(project);
    client
        .post::<Value>("/v1/projects/update-envs", &body)
        .await?;
    let names: Vec<_> = envs.iter().map(|env| env.key.as_str()).collect();
    let sentence = format!(
        "{project} has {}",
        super::format::count(names.len(), "variable")
    );
    session
        .output
        .done(&json!({"project": project, "variables": names}), sentence)
}

/// Whoever sees masks in place of values would write them over the values.
fn refuse_masked(envs: &[EnvVar]) -> Result<()> {
    if !envs.is_empty() && envs.iter().all(|env| env.value == MASK) {
        return Err(ClientError::Denied(
            "your role or token may not read the values of this project, and so not change them"
                .to_owned(),
        ));
    }
    Ok(())
}

fn parse_setting(text: &str) -> Result<EnvVar> {
    let refused = |reason: &str| {
        ClientError::Usage(format!(
            "`{}`: {reason}",
            text.split('=').next().unwrap_or(text)
        ))
    };
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| refused("write NAME=VALUE"))?;
    let name: EnvKey = key
        .parse()
        .map_err(|error: estrade_model::Invalid| refused(&error.0))?;
    Ok(EnvVar {
        key: name.to_string(),
        value: value.to_owned(),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the other changes can be refused")]
fn set_all(envs: &mut Vec<EnvVar>, settings: Vec<EnvVar>) -> Result<()> {
    for new in settings {
        match envs.iter_mut().find(|env| env.key == new.key) {
            Some(env) => env.value = new.value,
            None => envs.push(new),
        }
    }
    Ok(())
}

fn parse_file(file: &Path) -> Result<Vec<EnvVar>> {
    let read = if file == Path::new("-") {
        read_text(std::io::stdin(), MAX_FILE_BYTES)
    } else {
        std::fs::File::open(file).and_then(|file| read_text(file, MAX_FILE_BYTES))
    };
    let text = read.map_err(ClientError::file(file))?;
    let parsed = dotenv::parse(&text).map_err(|errors| {
        let line = |error: &dotenv::LineError| format!("line {}: {}", error.line, error.message);
        let lines: Vec<_> = errors.iter().map(line).collect();
        ClientError::Usage(format!("{}: {}", file.display(), lines.join("; ")))
    })?;
    let to_env = |setting: estrade_model::project::EnvSetting| EnvVar {
        key: setting.key.to_string(),
        value: setting.value,
    };
    Ok(parsed.into_iter().map(to_env).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_a_variable_and_never_show_its_value() {
        let env = parse_setting("A=b=c").unwrap();
        assert_eq!((env.key.as_str(), env.value.as_str()), ("A", "b=c"));
        assert_eq!(parse_setting("A=").unwrap().value, "");
        for bad in ["A", "=secret", "1A=secret", "A B=secret"] {
            let refused = parse_setting(bad).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn masks_are_not_written_back() {
        let env = |value: &str| EnvVar {
            key: "A".to_owned(),
            value: value.to_owned(),
        };
        assert!(refuse_masked(&[env(MASK), env(MASK)]).is_err());
        assert!(refuse_masked(&[]).is_ok());
        assert!(refuse_masked(&[env("x"), env(MASK)]).is_ok());
    }
}
