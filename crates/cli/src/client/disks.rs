//! `estrade disks …`: what a project keeps across releases.

use super::format::{now, relative};
use super::projects::path_of;
use super::prompt::confirm;
use super::selection::ProjectOption;
use super::session::Session;
use clap::Subcommand;
use estrade_client::url::segment;
use estrade_client::wire::{Disk, DiskBody, DiskList};
use serde_json::{Value, json};

/// `estrade disks …`.
#[derive(Debug, Subcommand)]
pub enum DisksCommand {
    /// List the disks of a project.
    List {
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Make a disk.
    Create {
        /// Its name
        name: String,
        /// Its size in GB
        #[arg(long, value_name = "GB")]
        size: u64,
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Make a disk larger.
    Resize {
        /// Its name
        name: String,
        /// Its new size in GB
        #[arg(long, value_name = "GB")]
        size: u64,
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Delete a disk with everything on it.
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        project: ProjectOption,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

pub async fn run(command: &DisksCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.client().await?, &session.output);
    let now = now();
    let row = |disk: Disk| {
        vec![
            disk.name,
            format!("{} GB", disk.size),
            relative(disk.created_at, now),
        ]
    };
    let header = ["NAME", "SIZE", "MADE"];
    match command {
        DisksCommand::List { project } => {
            let path = format!("{}/disks", path_of(&project.resolve(session)?)?);
            let document: Value = client.get(&path).await?;
            output.response(document, |list: DiskList| {
                if list.disks.is_empty() {
                    output
                        .printer
                        .note("no disks; `estrade disks create NAME --size GB` makes one");
                }
                output.table(&header, list.disks.into_iter().map(row).collect())
            })
        }
        DisksCommand::Create {
            name,
            size,
            project,
        } => {
            let path = format!("{}/disks", path_of(&project.resolve(session)?)?);
            let document: Value = client
                .post(&path, &json!({"name": name, "size": size}))
                .await?;
            output.response(document, |body: DiskBody| {
                output.table(&header, vec![row(body.disk)])
            })
        }
        DisksCommand::Resize {
            name,
            size,
            project,
        } => {
            let path = format!(
                "{}/disks/{}/resize",
                path_of(&project.resolve(session)?)?,
                segment(name)?
            );
            let document: Value = client.post(&path, &json!({"size": size})).await?;
            output.response(document, |body: DiskBody| {
                output.table(&header, vec![row(body.disk)])
            })
        }
        DisksCommand::Delete { name, project, yes } => {
            let project = project.resolve(session)?;
            confirm(
                &format!("Delete the disk {name} of {project} with everything on it?"),
                *yes,
            )?;
            client
                .delete(&format!("{}/disks/{}", path_of(&project)?, segment(name)?))
                .await?;
            output.done(
                &json!({"disk": name, "deleted": true}),
                format_args!("deleted {name}"),
            )
        }
    }
}
