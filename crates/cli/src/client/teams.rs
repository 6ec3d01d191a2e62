//! `estrade teams …`.

use super::prompt::confirm;
use super::session::{Session, team_id};
use clap::Subcommand;
use estrade_client::url::segment;
use estrade_client::wire::{Member, MemberList, Team, TeamList};
use estrade_client::{Client, ClientError, Result};
use reqwest::Method;
use serde_json::{Value, json};

/// `estrade teams …`.
#[derive(Debug, Subcommand)]
pub enum TeamsCommand {
    /// List the teams that you are in.
    List,
    /// Make a team.
    Create {
        /// Its name
        name: String,
    },
    /// Delete a team.
    Delete {
        /// Its name or id
        team: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// List the members of a team.
    Members {
        /// Its name or id
        team: String,
    },
    /// Make a link with which somebody joins a team.
    Invite {
        /// The team, by name or id
        team: String,
        /// Whose link it is
        email: String,
        /// What they may do: viewer, developer or admin
        #[arg(long, default_value = "developer")]
        role: String,
    },
    /// Join a team by the token of an invitation, which ends its link; - reads it from standard input.
    Join {
        /// The token, or the link
        token: String,
    },
    /// Change what a member may do.
    Role {
        /// The team, by name or id
        team: String,
        /// The member's id
        member: String,
        /// viewer, developer or admin
        role: String,
    },
    /// Remove a member.
    Remove {
        /// The team, by name or id
        team: String,
        /// The member's id
        member: String,
    },
}

pub async fn run(command: &TeamsCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.client().await?, &session.output);
    match command {
        TeamsCommand::List => {
            let document: Value = client.get("/v2/teams").await?;
            output.response(document, |list: TeamList| {
                if list.teams.is_empty() {
                    output
                        .printer
                        .note("you are in no team; `estrade teams create NAME` makes one");
                }
                let row = |team: Team| vec![team.id, team.name];
                output.table(&["ID", "NAME"], list.teams.into_iter().map(row).collect())
            })
        }
        TeamsCommand::Create { name } => {
            let document: Value = client.post("/v2/teams", &json!({"name": name})).await?;
            output.line(document, |team: Team| team.id)
        }
        TeamsCommand::Delete { team, yes } => {
            confirm(&format!("Delete the team {team}?"), *yes)?;
            client.delete(&path_of(&client, team).await?).await?;
            output.done(&json!({"team": team, "deleted": true}), "team deleted")
        }
        TeamsCommand::Members { team } => {
            let document: Value = client
                .get(&format!("{}/members", path_of(&client, team).await?))
                .await?;
            output.response(document, |list: MemberList| {
                let row = |it: Member| vec![it.id, it.email, it.fullname, it.role];
                output.table(
                    &["ID", "EMAIL", "NAME", "ROLE"],
                    list.members.into_iter().map(row).collect(),
                )
            })
        }
        TeamsCommand::Invite { team, email, role } => {
            let path = format!("{}/invitations", path_of(&client, team).await?);
            let document: Value = client
                .post(&path, &json!({"email": email, "role": role}))
                .await?;
            output.secret(
                &document,
                "link",
                "invite them again: that makes a new link",
            )
        }
        TeamsCommand::Join { token } => {
            let token = read_invitation(token)?;
            let document: Value = client
                .post("/v2/teams/invitations/join", &json!({"token": token}))
                .await?;
            output.line(document, |team: Team| format!("{} {}", team.id, team.name))
        }
        TeamsCommand::Role { team, member, role } => {
            let path = format!(
                "{}/members/{}/role",
                path_of(&client, team).await?,
                segment(member)?
            );
            client.post::<Value>(&path, &json!({"role": role})).await?;
            output.done(
                &json!({"member": member, "role": role}),
                format_args!("{member} is {role}"),
            )
        }
        TeamsCommand::Remove { team, member } => {
            let path = format!(
                "{}/members/{}",
                path_of(&client, team).await?,
                segment(member)?
            );
            client.request(Method::DELETE, &path).send().await?;
            output.done(
                &json!({"member": member, "removed": true}),
                "member removed",
            )
        }
    }
}

async fn path_of(client: &Client, team: &str) -> Result<String> {
    let id = team_id(client, team).await?;
    Ok(format!("/v2/teams/{}", segment(&id)?))
}

/// The token of an invitation, of which people are sent the link.
fn read_invitation(text: &str) -> Result<String> {
    let text = if text == "-" {
        let read = std::io::read_to_string(std::io::stdin());
        read.map_err(|error| ClientError::Usage(format!("cannot read the token: {error}")))?
    } else {
        text.to_owned()
    };
    let text = text.trim();
    let token = text.rsplit(['=', '#', '/']).next().unwrap_or(text);
    Ok(token.to_owned())
}
