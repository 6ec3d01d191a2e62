//! `estrade projects …`.

use super::format::{now, relative};
use super::output::Output;
use super::prompt::confirm;
use super::selection::{ProjectOption, name_and_value};
use super::session::Session;
use clap::{Args, Subcommand};
use estrade_client::url::segment;
use estrade_client::wire::{Project, ProjectBody, ProjectCreated, ProjectList};
use estrade_client::{Client, ClientError, Result};
use reqwest::Method;
use serde_json::{Value, json};

/// `estrade projects …`.
#[derive(Debug, Subcommand)]
pub enum ProjectsCommand {
    /// List your projects, or those of a team (--team).
    List,
    /// Make a project.
    #[command(after_help = "\
Examples:
  estrade projects create my-site --platform static --plan nano
  estrade projects create my-app --platform node --plan micro --network default")]
    Create(CreateArgs),
    /// Show a project.
    Show(NamedProject),
    /// Delete a project with its releases. Its name stays reserved for you for 30 days.
    Delete {
        #[command(flatten)]
        project: NamedProject,
        /// Free the name at once
        #[arg(long)]
        purge: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Set how many instances run; 0 switches the project off.
    #[command(override_usage = "estrade projects scale [NAME] COUNT [OPTIONS]")]
    Scale {
        /// The project's name and the number of instances
        #[arg(value_name = "NAME] [COUNT", num_args = 0..=2)]
        words: Vec<String>,
        /// How many, instead of the word
        #[arg(long, value_name = "COUNT")]
        scale: Option<String>,
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Replace all instances, one after the other.
    Restart(NamedProject),
    /// Change the plan.
    #[command(override_usage = "estrade projects resize [NAME] PLAN [OPTIONS]")]
    Resize {
        /// The project's name and the plan
        #[arg(value_name = "NAME] [PLAN", num_args = 0..=2)]
        words: Vec<String>,
        /// The plan, instead of the word
        #[arg(long, value_name = "PLAN")]
        plan: Option<String>,
        #[command(flatten)]
        project: ProjectOption,
    },
    /// Print the address of a project and open it in a browser.
    Open {
        #[command(flatten)]
        project: NamedProject,
        /// Only print it
        #[arg(long)]
        print: bool,
    },
}

/// What a new project is.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name, which is also its host name
    name: String,
    /// What it runs on: static, docker, node, next, react, vue, angular, python, django, flask, php, laravel, go, dotnet, auto
    #[arg(long)]
    platform: String,
    /// How large its instances are: nano, micro, standard-1x, …
    #[arg(long, default_value = "nano")]
    plan: String,
    /// The private network that it is in, by name or id
    #[arg(long)]
    network: Option<String>,
    /// Give its instances a file system that they cannot write to
    #[arg(long)]
    read_only: bool,
}

/// A project as the argument of a command.
#[derive(Debug, Args)]
pub struct NamedProject {
    /// The project, by name or id
    name: Option<String>,
    #[command(flatten)]
    option: ProjectOption,
}

impl NamedProject {
    fn resolve(&self, session: &Session<'_>) -> Result<String> {
        self.option.resolve_or(self.name.as_deref(), session)
    }
}

pub async fn run(command: &ProjectsCommand, session: &Session<'_>) -> anyhow::Result<()> {
    let output = &session.output;
    match command {
        ProjectsCommand::List => {
            let document: Value = session.client().await?.get("/v1/projects").await?;
            output.response(document, |list| show_list(output, list))
        }
        ProjectsCommand::Create(args) => create(args, session).await,
        ProjectsCommand::Show(project) => {
            let path = path_of(&project.resolve(session)?)?;
            let document: Value = session.client().await?.get(&path).await?;
            output.response(document, |body| show_project(output, &body))
        }
        ProjectsCommand::Delete {
            project,
            purge,
            yes,
        } => {
            let name = project.resolve(session)?;
            confirm(&format!("Delete {name} with all of its releases?"), *yes)?;
            let request = session
                .client()
                .await?
                .request(Method::DELETE, &path_of(&name)?);
            request
                .maybe_query("purge", purge.then_some(true))
                .send()
                .await?;
            output.done(
                &json!({"project": name, "deleted": true}),
                format_args!("deleted {name}"),
            )
        }
        ProjectsCommand::Scale {
            words,
            scale,
            project,
        } => {
            let (name, count) = name_and_value(
                words,
                scale.clone(),
                project,
                session,
                "number of instances",
            )?;
            let count: u32 = count.parse().map_err(|_| {
                ClientError::Usage(format!("`{count}` is not a number of instances"))
            })?;
            act(session, &name, "actions/scale", &json!({"scale": count})).await?;
            let sentence = if count == 0 {
                format!("{name} is switched off")
            } else {
                format!("{name} runs {count} times")
            };
            output.done(&json!({"project": name, "scale": count}), sentence)
        }
        ProjectsCommand::Restart(project) => {
            let name = project.resolve(session)?;
            act(session, &name, "actions/restart", &json!({})).await?;
            output.done(
                &json!({"project": name, "restarted": true}),
                format_args!("{name} restarts"),
            )
        }
        ProjectsCommand::Resize {
            words,
            plan,
            project,
        } => {
            let (name, plan) = name_and_value(words, plan.clone(), project, session, "plan")?;
            act(session, &name, "resize", &json!({"planID": plan})).await?;
            output.done(
                &json!({"project": name, "planID": plan}),
                format_args!("{name} has the plan {plan}"),
            )
        }
        ProjectsCommand::Open { project, print } => {
            open(session, &project.resolve(session)?, *print).await
        }
    }
}

/// The path of a project.
pub fn path_of(project: &str) -> Result<String> {
    Ok(format!("/v1/projects/{}", segment(project)?))
}

/// Makes a project and returns what the server says of it.
pub async fn create_project(client: &Client, body: &Value) -> Result<Value> {
    client.post("/v1/projects", body).await
}

async fn create(args: &CreateArgs, session: &Session<'_>) -> anyhow::Result<()> {
    let mut body = json!({"name": args.name, "platform": args.platform, "planID": args.plan});
    if let Some(network) = &args.network {
        body["network"] = json!(network);
    }
    if args.read_only {
        body["readOnlyRootFilesystem"] = json!(true);
    }
    let document = create_project(&session.client().await?, &body).await?;
    let output = &session.output;
    output.response(document, |created: ProjectCreated| {
        let project = created.project;
        let name = estrade_client::text::neutralize_line(&project.project_id);
        output.printer.note(format_args!(
            "made {name}; `estrade deploy --project {name}` deploys the folder you are in"
        ));
        output.facts(&[("url", project.url), ("id", project.id)])
    })
}

async fn act(session: &Session<'_>, project: &str, action: &str, body: &Value) -> Result<()> {
    let path = format!("{}/{action}", path_of(project)?);
    session.client().await?.post::<Value>(&path, body).await?;
    Ok(())
}

fn show_list(output: &Output, list: ProjectList) -> String {
    if list.projects.is_empty() {
        output
            .printer
            .note("no projects yet; `estrade projects create NAME --platform static` makes one");
    }
    let now = now();
    let row = |it: Project| {
        let status = status(&it);
        let made = relative(it.created_at, now);
        vec![
            it.project_id,
            it.platform,
            it.plan,
            it.scale.to_string(),
            status,
            made,
            it.url,
        ]
    };
    let rows = list.projects.into_iter().map(row).collect();
    output.table(
        &["NAME", "PLATFORM", "PLAN", "SCALE", "STATUS", "MADE", "URL"],
        rows,
    )
}

fn status(project: &Project) -> String {
    match (project.scale, project.is_deployed, project.status.as_str()) {
        (0, _, "ACTIVE") => "off".to_owned(),
        (_, false, "ACTIVE") => "not deployed".to_owned(),
        (_, _, other) => other.to_lowercase().replace('_', " "),
    }
}

fn show_project(output: &Output, body: &ProjectBody) -> String {
    let detail = &body.project;
    let project = &detail.project;
    let disks = detail
        .disks
        .iter()
        .map(|disk| format!("{} ({} GB)", disk.name, disk.size));
    output.facts(&[
        ("name", project.project_id.clone()),
        ("id", project.id.clone()),
        ("url", project.url.clone()),
        ("platform", project.platform.clone()),
        ("plan", project.plan.clone()),
        ("scale", project.scale.to_string()),
        ("status", status(project)),
        ("problem", detail.fail_reason.clone().unwrap_or_default()),
        (
            "release",
            detail.current_release.clone().unwrap_or_default(),
        ),
        ("variables", detail.envs.len().to_string()),
        ("disks", disks.collect::<Vec<_>>().join(", ")),
        (
            "made",
            format!(
                "{} ({})",
                relative(project.created_at, now()),
                project.created_at
            ),
        ),
    ])
}

async fn open(session: &Session<'_>, project: &str, print_only: bool) -> anyhow::Result<()> {
    let document: ProjectBody = session.client().await?.get(&path_of(project)?).await?;
    let url = document.project.project.url;
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Err(ClientError::State(format!(
            "{project} has no address: its default subdomain is off, and it has no domain"
        ))
        .into());
    }
    let output = &session.output;
    if output.is_json() {
        return output.document(&json!({"project": project, "url": url}));
    }
    output
        .printer
        .data(estrade_client::text::neutralize_line(&url))?;
    // As a parser writes it: what the server sends goes to a program of the desktop, which may hand it to a shell.
    let page = reqwest::Url::parse(&url).map(String::from);
    let may_open = !print_only && super::prompt::can_ask();
    if may_open && !page.is_ok_and(|page| super::open_browser::open(&page)) {
        output
            .printer
            .note("no browser was found; open the address yourself");
    }
    Ok(())
}
