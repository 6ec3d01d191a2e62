//! `estrade releases …`.

use super::failure::RELEASE_FAILED;
use super::format::{now, relative, relative_or};
use super::output::Output;
use super::projects::path_of;
use super::release_watch::{release_path, watch};
use super::selection::ProjectOption;
use super::session::Session;
use clap::{Args, Subcommand};
use estrade_client::url::segment;
use estrade_client::wire::{Release, ReleaseBody, ReleaseCreated, ReleaseList};
use estrade_client::{Client, ClientError, Result};
use estrade_model::ReleaseId;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// How far back a tag is looked for.
const MAX_LISTED: u32 = 100;

/// `estrade releases …`.
#[derive(Debug, Subcommand)]
pub enum ReleasesCommand {
    /// List the releases of a project, newest first.
    List {
        #[command(flatten)]
        project: ProjectOption,
        /// How many, 100 at most
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
        count: u32,
    },
    /// Show a release.
    Show(ReleaseArgs),
    /// Go back to what an earlier release was made of, without building it again; without a name, to the one that was
    /// live before.
    Rollback {
        #[command(flatten)]
        release: ReleaseArgs,
        /// Do not wait until it is live
        #[arg(long)]
        detach: bool,
    },
    /// Stop a release that is not live yet.
    Cancel(ReleaseArgs),
    /// Follow the build log of a release until it has ended.
    #[command(after_help = "Exit code 7: the release ended without being live.")]
    Watch(ReleaseArgs),
}

/// A release as the argument of a command.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The release, by id or tag (v3) [default: the newest]
    release: Option<String>,
    #[command(flatten)]
    project: ProjectOption,
}

impl ReleaseArgs {
    /// Its id; a tag is looked up in its project.
    async fn resolve(&self, session: &Session<'_>, client: &Client) -> Result<String> {
        match &self.release {
            // It says which project by itself.
            Some(id) if id.parse::<ReleaseId>().is_ok() => Ok(id.clone()),
            Some(tag) => find_release(client, &self.project.resolve(session)?, tag).await,
            None => {
                let project = self.project.resolve(session)?;
                let newest: ReleaseList = list(client, &project, 1).await?;
                let newest = newest.releases.into_iter().next();
                newest.map(|release| release.id).ok_or_else(|| {
                    let reason =
                        format!("{project} has no release yet; `estrade deploy` makes one");
                    ClientError::NotFound(reason)
                })
            }
        }
    }

    /// The same for going back, where without a name the one is meant that was live before.
    async fn resolve_earlier(&self, session: &Session<'_>, client: &Client) -> Result<String> {
        if self.release.is_some() {
            return self.resolve(session, client).await;
        }
        let project = self.project.resolve(session)?;
        let newest: ReleaseList = list(client, &project, MAX_LISTED).await?;
        earlier(newest.releases).ok_or_else(|| {
            ClientError::NotFound(format!("{project} has no earlier release to go back to"))
        })
    }
}

/// The newest release before the live one that was live.
fn earlier(newest_first: Vec<Release>) -> Option<String> {
    let from_live = newest_first.into_iter().skip_while(|it| !it.current);
    let mut before = from_live.skip(1).filter(Release::is_ready);
    before.next().map(|release| release.id)
}

/// The id of a release that is named by its id or tag.
pub async fn find_release(client: &Client, project: &str, name: &str) -> Result<String> {
    if name.parse::<ReleaseId>().is_ok() {
        return Ok(name.to_owned());
    }
    let newest: ReleaseList = list(client, project, MAX_LISTED).await?;
    let found = newest.releases.into_iter().find(|it| it.tag == name);
    found.map(|release| release.id).ok_or_else(|| {
        ClientError::NotFound(format!(
            "{project} has no release `{name}` among its newest {MAX_LISTED}"
        ))
    })
}

pub async fn run(command: &ReleasesCommand, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    let (client, output) = (session.client().await?, &session.output);
    match command {
        ReleasesCommand::List { project, count } => {
            let document: Value = list(&client, &project.resolve(session)?, *count).await?;
            output.response(document, |list| show_list(output, list))?;
        }
        ReleasesCommand::Show(release) => {
            let id = release.resolve(session, &client).await?;
            let document: Value = client.get(&release_path(&id)?).await?;
            output.response(document, |body: ReleaseBody| {
                show_release(output, &body.release)
            })?;
        }
        ReleasesCommand::Rollback { release, detach } => {
            let id = release.resolve_earlier(session, &client).await?;
            let path = format!("{}/rollback", release_path(&id)?);
            let document: Value = client.post(&path, &json!({})).await?;
            if *detach {
                output.line(document, |created: ReleaseCreated| created.release)?;
            } else {
                let created: ReleaseCreated = serde_json::from_value(document)?;
                return finish(session, &client, &created.release).await;
            }
        }
        ReleasesCommand::Cancel(release) => {
            let id = release.resolve(session, &client).await?;
            client
                .post::<Value>(
                    &format!("/v2/releases/{}/cancel", segment(&id)?),
                    &json!({}),
                )
                .await?;
            output.done(
                &json!({"release": id, "canceled": true}),
                format_args!("release {id} is canceled"),
            )?;
        }
        ReleasesCommand::Watch(release) => {
            let id = release.resolve(session, &client).await?;
            return finish(session, &client, &id).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list<T: serde::de::DeserializeOwned>(
    client: &Client,
    project: &str,
    count: u32,
) -> Result<T> {
    let request = client.request(Method::GET, &format!("{}/releases", path_of(project)?));
    request.query("count", count).query("page", 1).json().await
}

/// Follows a release to its end and prints how it ended.
async fn finish(session: &Session<'_>, client: &Client, id: &str) -> anyhow::Result<ExitCode> {
    let output = &session.output;
    let document = watch(client, id, output).await?;
    let release: ReleaseBody = serde_json::from_value(document.clone())?;
    output.response(document, |body: ReleaseBody| {
        show_release(output, &body.release)
    })?;
    Ok(exit_code(&release.release))
}

/// Success only for a release that went live.
pub fn exit_code(release: &Release) -> ExitCode {
    if release.is_ready() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(RELEASE_FAILED)
    }
}

fn show_list(output: &Output, list: ReleaseList) -> String {
    if list.releases.is_empty() {
        output
            .printer
            .note("no release yet; `estrade deploy` makes one");
    }
    let now = now();
    let row = |it: Release| {
        let state = if it.current {
            format!("{} (live)", it.state)
        } else {
            it.state
        };
        let reason = it.message.or(it.fail_reason).unwrap_or_default();
        vec![
            it.tag,
            it.id,
            it.kind,
            state,
            relative(it.created_at, now),
            reason,
        ]
    };
    let rows = list.releases.into_iter().map(row).collect();
    output.table(&["TAG", "ID", "TYPE", "STATE", "MADE", "MESSAGE"], rows)
}

fn show_release(output: &Output, release: &Release) -> String {
    let now = now();
    let live = if release.current { " (live)" } else { "" };
    let (reason, details) = release.failure().unwrap_or_default();
    output.facts(&[
        ("release", format!("{} {}", release.tag, release.id)),
        ("state", format!("{}{live}", release.state)),
        ("reason", reason.to_owned()),
        ("details", details.join(" ")),
        ("warning", release.warnings.join("; ")),
        ("type", release.kind.clone()),
        (
            "platform",
            format!("{}, port {}", release.project_type, release.port),
        ),
        ("message", release.message.clone().unwrap_or_default()),
        (
            "waits for",
            release
                .queue
                .map_or_else(String::new, |queue| format!("{queue} releases")),
        ),
        ("client", release.client.clone().unwrap_or_default()),
        ("made", relative(release.created_at, now)),
        ("ended", relative_or(release.finished_at, now, "")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_before_the_live_one_is_the_earlier() {
        let release = |id: &str, state: &str, current: bool| -> Release {
            let document = json!({
                "_id": id, "type": "DEPLOY", "state": state, "createdAt": "2026-11-15T01:02:03.004Z", "tag": "v1",
                "projectType": "static", "port": 80, "current": current,
            });
            serde_json::from_value(document).unwrap()
        };
        let history = vec![
            release("5", "FAILED", false),
            release("4", "READY", true),
            release("3", "UNHEALTHY", false),
            release("2", "READY", false),
            release("1", "READY", false),
        ];
        assert_eq!(earlier(history).as_deref(), Some("2"));
        assert_eq!(earlier(vec![release("1", "READY", true)]), None);
        assert_eq!(earlier(vec![release("1", "READY", false)]), None);
    }
}
