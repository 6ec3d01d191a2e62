//! `estrade domains …`: host names of one's own.

use super::format::{now, relative};
use super::output::Output;
use super::selection::ProjectOption;
use super::session::Session;
use clap::Subcommand;
use estrade_client::url::segment;
use estrade_client::wire::{Domain, DomainBody, DomainList};
use estrade_client::{Client, ClientError, Result};
use estrade_model::domain::DomainId;
use reqwest::Method;
use serde_json::{Value, json};

/// `estrade domains …`.
#[derive(Debug, Subcommand)]
pub enum DomainsCommand {
    /// List the domains of a project; without --project, of all.
    List {
        /// The project, by name or id
        #[arg(long, short, value_name = "NAME")]
        project: Option<String>,
    },
    /// Add a domain and print the DNS records that prove it is yours.
    Add {
        /// The host name, such as www.example.com
        name: String,
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Ask DNS now whether a domain is yours.
    Check {
        /// The host name, or the domain's id
        domain: String,
    },
    /// Remove a domain.
    Remove {
        /// The host name, or the domain's id
        domain: String,
    },
}

pub async fn run(command: &DomainsCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let (client, output) = (session.client().await?, &session.output);
    match command {
        DomainsCommand::List { project } => {
            let request = client.request(Method::GET, "/v1/domains");
            let document: Value = request
                .maybe_query("project", project.as_ref())
                .json()
                .await?;
            output.response(document, |list| show_list(output, list))
        }
        DomainsCommand::Add { name, project } => {
            let body = json!({"name": name, "project": project.resolve(session)?});
            let document: Value = client.post("/v1/domains", &body).await?;
            output.response(document, |body: DomainBody| {
                show_domain(output, &body.domain)
            })
        }
        DomainsCommand::Check { domain } => {
            let path = format!("{}/check", path_of(&client, domain).await?);
            let document: Value = client.get(&path).await?;
            output.response(document, |body: DomainBody| {
                show_domain(output, &body.domain)
            })
        }
        DomainsCommand::Remove { domain } => {
            client.delete(&path_of(&client, domain).await?).await?;
            output.done(
                &json!({"domain": domain, "removed": true}),
                format_args!("removed {domain}"),
            )
        }
    }
}

/// The path of a domain that is named by its id or host name.
async fn path_of(client: &Client, domain: &str) -> Result<String> {
    let id = if domain.parse::<DomainId>().is_ok() {
        domain.to_owned()
    } else {
        let list: DomainList = client.get("/v1/domains").await?;
        let found = list.domains.into_iter().find(|it| it.name == domain);
        let unknown = || {
            ClientError::NotFound(format!(
                "there is no domain `{domain}`; `estrade domains list` shows yours"
            ))
        };
        found.ok_or_else(unknown)?.id
    };
    Ok(format!("/v1/domains/{}", segment(&id)?))
}

fn show_list(output: &Output, list: DomainList) -> String {
    if list.domains.is_empty() {
        output
            .printer
            .note("no domains; `estrade domains add www.example.com --project NAME` adds one");
    }
    let now = now();
    let row = |it: Domain| {
        let made = relative(it.created_at, now);
        vec![
            it.name,
            it.project.project_id,
            it.status,
            made,
            it.problem.unwrap_or_default(),
        ]
    };
    let rows = list.domains.into_iter().map(row).collect();
    output.table(&["NAME", "PROJECT", "STATUS", "MADE", "PROBLEM"], rows)
}

/// What it is, and while it is not proved the records of which one has to be set.
fn show_domain(output: &Output, domain: &Domain) -> String {
    let facts = output.facts(&[
        ("domain", domain.name.clone()),
        ("id", domain.id.clone()),
        ("project", domain.project.project_id.clone()),
        ("status", domain.status.clone()),
        ("problem", domain.problem.clone().unwrap_or_default()),
    ]);
    if domain.status == "ACTIVE" {
        return facts;
    }
    output
        .printer
        .note("set one of these DNS records, then `estrade domains check NAME`");
    let row = |it: &estrade_client::wire::DnsRecord| {
        vec![it.kind.clone(), it.name.clone(), it.value.clone()]
    };
    let records = output.table(
        &["TYPE", "NAME", "VALUE"],
        domain.records.iter().map(row).collect(),
    );
    format!("{facts}\n\n{records}")
}
