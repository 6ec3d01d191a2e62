//! `estrade deploy`: a folder becomes a release.

use super::failure::INTERRUPTED;
use super::progress::ByteProgress;
use super::projects::{create_project, path_of};
use super::prompt;
use super::release_watch::watch;
use super::releases::exit_code;
use super::selection::{ProjectFile, remembered};
use super::session::Session;
use clap::Args;
use estrade_buildpacks::{Settings, Sources, detect};
use estrade_client::deploy::{ReleaseOptions, check_limits, create_release};
use estrade_client::folder::{self, Folder};
use estrade_client::server_info::{Limits, ServerInfo};
use estrade_client::text::neutralize_line;
use estrade_client::url::segment;
use estrade_client::wire::{ProjectBody, ProjectCreated, ReleaseBody};
use estrade_client::{Client, ClientError, Result};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it is tried to cancel a release.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// `estrade deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade deploy                               the folder you are in
  estrade deploy dist --project my-site --message 'New prices'
  URL=$(estrade deploy --project my-app --create --yes)

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
    /// Make the project if there is none
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
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// What Ctrl-C has to cancel.
#[derive(Default)]
struct Created {
    /// Whether the server was asked for a release. It makes one also when nobody waits for its response.
    is_asked: AtomicBool,
    release: OnceLock<String>,
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
    /// By Ctrl-C.
    Interrupted(ExitCode),
}

pub async fn run(args: &DeployArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    let client = session.client().await?;
    match deploy_once(args, session, &client).await? {
        Outcome::Ended(code) | Outcome::Interrupted(code) => Ok(code),
    }
}

/// Deploys the folder; Ctrl-C cancels the release.
pub async fn deploy_once(
    args: &DeployArgs,
    session: &Session<'_>,
    client: &Client,
) -> anyhow::Result<Outcome> {
    let created = Created::default();
    tokio::select! {
        outcome = deploy(args, session, client, &created) => outcome.map(Outcome::Ended),
        _ = tokio::signal::ctrl_c() => cancel(session, client, &created).await.map(Outcome::Interrupted),
    }
}

async fn deploy(
    args: &DeployArgs,
    session: &Session<'_>,
    client: &Client,
    created: &Created,
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
    let release = send(session, client, &project, folder, &options, created).await?;
    // Set once: this is the only place.
    let _ = created.release.set(release.clone());
    remember(args, &file, session, &root, &project)?;
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
    created: &Created,
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
    let sending = ByteProgress::new(printer, "sending");
    created.is_asked.store(true, Ordering::Relaxed);
    let made = create_release(client, project, &folder, &digests, options, &sending).await;
    sending.clear();
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
        Err(error @ (ClientError::Unreachable { .. } | ClientError::TimedOut { .. })) => Err(error),
        Err(_) => Ok(Limits::default()),
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

/// Remembers where the folder belongs, unless it says so itself. `--project` counts for a folder that was not deployed
/// before; later it means this one time.
fn remember(
    args: &DeployArgs,
    file: &ProjectFile,
    session: &Session<'_>,
    root: &Path,
    project: &str,
) -> Result<()> {
    let Ok(store) = session.store() else {
        return Ok(());
    };
    let is_known = match remembered(session, root)? {
        Some(before) => args.project.is_some() || before == project,
        None => file.project.is_some(),
    };
    if is_known {
        return Ok(());
    }
    store.change(|contexts| {
        contexts
            .folders
            .insert(root.display().to_string(), project.to_owned());
        Ok(())
    })
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
    if !args.create {
        if !prompt::can_ask() {
            return Err(without_project(not_found, project).into());
        }
        let question = format!(
            "There is no project {project}. Make it ({platform}, plan {})?",
            args.plan
        );
        let is_confirmed = args.yes;
        prompt::ask_aside(move || prompt::confirm(&question, is_confirmed)).await?;
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

/// Ends a deployment that was interrupted.
async fn cancel(
    session: &Session<'_>,
    client: &Client,
    created: &Created,
) -> anyhow::Result<ExitCode> {
    let printer = &session.output.printer;
    match created.release.get() {
        None if created.is_asked.load(Ordering::Relaxed) => printer.warning(
            "stopped; a release may have been made all the same: `estrade releases list` shows it, `estrade releases cancel ID` ends it",
        ),
        None => printer.note("\nstopped; no release was made, and what was sent is kept for a day"),
        Some(release) => {
            let path = format!("/v2/releases/{}/cancel", segment(release)?);
            let body = json!({});
            let outcome = tokio::select! {
                outcome = client.post::<Value>(&path, &body) => outcome.map_err(|error| error.to_string()),
                () = tokio::time::sleep(CANCEL_TIMEOUT) => Err("the server does not answer".to_owned()),
                _ = tokio::signal::ctrl_c() => Err("stopped again".to_owned()),
            };
            let release = neutralize_line(release);
            match outcome {
                Ok(_) => printer.note(format_args!("\ncanceled release {release}")),
                Err(error) => printer.warning(neutralize_line(&format!(
                    "release {release} was not canceled: {error}"
                ))),
            }
        }
    }
    Ok(ExitCode::from(INTERRUPTED))
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
