//! `estrade deploy`: a folder becomes a release.

use super::cancellation::{Stage, StageProgress, cancel};
use super::interrupts::Interrupts;
use super::progress::ByteProgress;
use super::projects::{create_project, path_of};
use super::prompt;
use super::release_watch::watch;
use super::releases::exit_code;
use super::selection::{ProjectFile, remember, remembered};
use super::session::Session;
use clap::Args;
use estrade_buildpacks::{Settings, Sources, detect};
use estrade_client::deploy::{ReleaseOptions, check_limits, create_release};
use estrade_client::folder::{self, Folder};
use estrade_client::server_info::{Limits, ServerInfo};
use estrade_client::text::neutralize_line;
use estrade_client::wire::{ProjectBody, ProjectCreated, ReleaseBody};
use estrade_client::{Client, ClientError, Result};
use serde_json::json;
use std::borrow::Cow;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::sync::watch;

/// `estrade deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade deploy                               the folder you are in
  estrade deploy dist --project my-site --message 'New prices'
  URL=$(estrade deploy --project my-app --yes)

Only files that the server does not have are sent. What .gitignore, .dockerignore and .estradeignore name is
left out. The project is named by --project, by `project` in estrade.json, or asked for once and remembered.
Ctrl-C cancels the release. Exit code 7: the release ended without being live.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct DeployArgs {
    /// The folder
    #[arg(default_value = ".")]
    path: PathBuf,
    /// The project, by name or id
    #[arg(long, short, value_name = "NAME")]
    project: Option<String>,
    /// What it runs on [default: the project's; of a new project: detected]
    #[arg(long)]
    platform: Option<String>,
    /// Make the project if there is none, without a question
    #[arg(long)]
    create: bool,
    /// The plan of a new project
    #[arg(long, default_value = "nano")]
    plan: String,
    /// The port that it listens on
    #[arg(long)]
    port: Option<u16>,
    /// What the release is about
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    /// Do not wait until it is live
    #[arg(long)]
    detach: bool,
    /// Deploy again whenever something in the folder changes, until Ctrl-C
    #[arg(long, conflicts_with = "detach")]
    pub watch: bool,
    /// Answer yes to every question: makes the project if there is none
    #[arg(long, short)]
    yes: bool,
}

impl DeployArgs {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How a deployment ended.
pub enum Outcome {
    Ended(ExitCode),
    /// By a signal.
    Interrupted(ExitCode),
}

pub async fn run(args: &DeployArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::listen()?;
    let client = tokio::select! {
        client = session.client() => client?,
        code = interrupts.next() => return Ok(ExitCode::from(code)),
    };
    match deploy_once(args, session, &client, &mut interrupts).await? {
        Outcome::Ended(code) | Outcome::Interrupted(code) => Ok(code),
    }
}

/// Deploys the folder; an interrupt cancels the release.
pub async fn deploy_once(
    args: &DeployArgs,
    session: &Session<'_>,
    client: &Client,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Outcome> {
    let stage = watch::Sender::new(Stage::default());
    let deploying = deploy(args, session, client, &stage);
    tokio::pin!(deploying);
    let code = tokio::select! {
        outcome = &mut deploying => return outcome.map(Outcome::Ended),
        code = interrupts.next() => code,
    };
    let printer = session.output.printer;
    cancel(deploying, &stage, client, printer, interrupts).await;
    Ok(Outcome::Interrupted(ExitCode::from(code)))
}

async fn deploy(
    args: &DeployArgs,
    session: &Session<'_>,
    client: &Client,
    stage: &watch::Sender<Stage>,
) -> anyhow::Result<ExitCode> {
    let root = args
        .path
        .canonicalize()
        .map_err(ClientError::file(&args.path))?;
    if !root.is_dir() {
        return Err(ClientError::Usage(format!("{} is not a folder", args.path.display())).into());
    }
    let file = ProjectFile::read(&root)?;
    let project = choose_project(args, &file, session, &root).await?;
    let output = &session.output;
    let path = path_of(&project)?;
    let (folder, limits, found) = tokio::join!(
        scan(root.clone()),
        read_limits(client),
        client.get::<ProjectBody>(&path)
    );
    let folder = folder?;
    for skipped in &folder.skipped {
        output
            .printer
            .warning(format_args!("left out {}", neutralize_line(skipped)));
    }
    check_limits(&folder, limits?)?;
    let url = match found {
        Ok(body) => body.project.project.url,
        Err(error) if error.refusal().is_some_and(|refusal| refusal.status == 404) => {
            make_project(args, &file, session, client, &project, &folder, error).await?
        }
        Err(error) => return Err(error.into()),
    };
    let options = ReleaseOptions {
        platform: args.platform.clone(),
        port: args.port.or(file.port),
        message: args.message.clone(),
    };
    let release = send(session, client, &project, folder, &options, stage).await?;
    // The release is made, whatever becomes of a file here.
    if file.project.is_none()
        && let Err(error) = remember(session, &root, &project)
    {
        output.printer.warning(neutralize_line(&format!(
            "which project this folder is deployed to is not remembered: {error}"
        )));
    }
    if args.detach {
        let document = json!({"release": {"_id": release}, "url": url});
        if output.is_json() {
            output.document(&document)?;
        } else {
            output.printer.data(neutralize_line(&release))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    finish(session, client, &release, &url).await
}

/// Follows the release to its end and prints the address.
async fn finish(
    session: &Session<'_>,
    client: &Client,
    release: &str,
    url: &str,
) -> anyhow::Result<ExitCode> {
    let output = &session.output;
    let mut document = watch(client, release, output).await?;
    let ended: ReleaseBody = serde_json::from_value(document.clone())?;
    let ended = ended.release;
    document["url"] = json!(url);
    for warning in &ended.warnings {
        output.printer.warning(neutralize_line(warning));
    }
    if output.is_json() {
        output.document(&document)?;
    } else if ended.is_ready() {
        output
            .printer
            .note(format_args!("{} is live", neutralize_line(&ended.tag)));
        output.printer.data(neutralize_line(url))?;
    }
    if !ended.is_ready() {
        let (reason, details) = ended
            .failure()
            .unwrap_or(("no reason was given", Vec::new()));
        let text = format!("release {} ended as {}: {reason}", ended.tag, ended.state);
        output.printer.error(neutralize_line(&text));
        for line in details {
            output.printer.note(neutralize_line(line));
        }
        output
            .printer
            .hint("what was live before still is; put it right and deploy again");
    }
    Ok(exit_code(&ended))
}

/// Hashes the files and makes the release.
async fn send(
    session: &Session<'_>,
    client: &Client,
    project: &str,
    folder: Folder,
    options: &ReleaseOptions,
    stage: &watch::Sender<Stage>,
) -> anyhow::Result<String> {
    let printer = session.output.printer;
    let reading = ByteProgress::new(printer, "reading");
    reading.start(folder.bytes());
    let hashed = tokio::task::spawn_blocking(move || {
        let digests = folder::hash(&folder.files, &|bytes| reading.add(bytes));
        reading.clear();
        digests.map(|digests| (folder, digests))
    });
    let (folder, digests) = hashed.await??;
    let sending = StageProgress {
        shown: ByteProgress::new(printer, "sending"),
        stage,
    };
    let made = create_release(client, project, &folder, &digests, options, &sending).await;
    sending.shown.clear();
    Ok(made?)
}

/// Finds the files of a folder, on a thread of its own.
pub async fn scan(root: PathBuf) -> Result<Folder> {
    let scanned = tokio::task::spawn_blocking(move || folder::scan(&root)).await;
    scanned.map_err(|error| ClientError::Usage(error.to_string()))?
}

/// Servers before this client did not tell their limits; they refuse by themselves.
async fn read_limits(client: &Client) -> Result<Limits> {
    match ServerInfo::read(client).await {
        Ok(info) => Ok(info.limits),
        Err(ClientError::Refused(refusal)) if matches!(refusal.status, 401 | 404 | 405) => {
            Ok(Limits::default())
        }
        Err(error) => Err(error),
    }
}

async fn choose_project(
    args: &DeployArgs,
    file: &ProjectFile,
    session: &Session<'_>,
    root: &Path,
) -> Result<String> {
    if let Some(project) = args.project.as_ref().or(file.project.as_ref()) {
        return Ok(project.clone());
    }
    if let Some(project) = remembered(session, root)? {
        return Ok(project);
    }
    if !prompt::can_ask() {
        return Err(ClientError::Usage(
            "which project? name it with --project NAME, or write {\"project\": \"NAME\"} to estrade.json".to_owned(),
        ));
    }
    let suggestion = suggest_name(root);
    prompt::ask_aside(move || prompt::ask("Project", &suggestion)).await
}

/// The name of the folder, as far as a project can have it.
fn suggest_name(root: &Path) -> String {
    let name = root
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    name.trim_matches('-').chars().take(50).collect()
}

/// Makes the project that is deployed to; its address.
async fn make_project(
    args: &DeployArgs,
    file: &ProjectFile,
    session: &Session<'_>,
    client: &Client,
    project: &str,
    folder: &Folder,
    not_found: ClientError,
) -> anyhow::Result<String> {
    let platform = match args.platform.as_ref().or(file.platform.as_ref()) {
        Some(platform) => platform.clone(),
        None => detect(&OnDisk(folder), &Settings::default())?
            .platform
            .to_string(),
    };
    if !args.create && !args.yes {
        if !prompt::can_ask() {
            return Err(without_project(not_found, project).into());
        }
        let question = format!(
            "There is no project {project}. Make it ({platform}, plan {})?",
            args.plan
        );
        prompt::ask_aside(move || prompt::confirm(&question, false)).await?;
    }
    let body = json!({"name": project, "platform": platform, "planID": args.plan});
    let document = create_project(client, &body).await?;
    let made: ProjectCreated = serde_json::from_value(document)?;
    session.output.printer.note(neutralize_line(&format!(
        "made {project} ({platform}, plan {})",
        args.plan
    )));
    Ok(made.project.url)
}

/// The server's refusal, with what to do about it here.
fn without_project(not_found: ClientError, project: &str) -> ClientError {
    match not_found {
        ClientError::Refused(mut refusal) => {
            refusal.message = format!("there is no project {project}; --create makes the project");
            ClientError::Refused(refusal)
        }
        other => other,
    }
}

/// A folder as the detection of platforms sees it.
struct OnDisk<'f>(&'f Folder);

impl Sources for OnDisk<'_> {
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.files.iter().map(|file| file.path.as_str()))
    }

    fn read(
        &self,
        path: &str,
        most: usize,
    ) -> std::result::Result<Cow<'_, [u8]>, Box<dyn Error + Send + Sync>> {
        let file = self
            .0
            .files
            .iter()
            .find(|file| file.path == path)
            .ok_or("there is no such file")?;
        let mut bytes = Vec::new();
        std::fs::File::open(&file.source)?
            .take(most as u64)
            .read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_suggests_a_name() {
        for (folder, name) in [("/x/My Site", "my-site"), ("/x/_app_", "app"), ("/", "")] {
            assert_eq!(suggest_name(Path::new(folder)), name);
        }
    }
}
