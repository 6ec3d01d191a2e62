//! `estrade deploy --watch`: deploys a folder again whenever something in it changes.

use super::deploy::{DeployArgs, Outcome, deploy_once, scan};
use super::failure;
use super::interrupts::Interrupts;
use super::session::Session;
use estrade_client::folder::FolderFile;
use estrade_client::{ClientError, Result};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How often the folder is looked at.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Runs until it is interrupted. A deployment that fails is reported and the next change waited for.
pub async fn run(args: &DeployArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    if session.output.is_json() {
        let reason = "--json prints one document, and --watch never ends; use one of them";
        return Err(ClientError::Usage(reason.to_owned()).into());
    }
    let mut interrupts = Interrupts::listen()?;
    let client = tokio::select! {
        client = session.client() => client?,
        code = interrupts.next() => return Ok(ExitCode::from(code)),
    };
    let printer = &session.output.printer;
    let mut is_first = true;
    loop {
        let deployed = tokio::select! {
            deployed = list(args.path()) => deployed?,
            code = interrupts.next() => return Ok(ExitCode::from(code)),
        };
        match deploy_once(args, session, &client, &mut interrupts).await {
            Ok(Outcome::Interrupted(code)) => return Ok(code),
            Ok(Outcome::Ended(_)) => {}
            // No change of a file gives what the command line lacks.
            Err(error) if is_first && is_usage(&error) => return Err(error),
            Err(error) => {
                failure::report(&error, printer);
            }
        }
        is_first = false;
        printer.note("waiting for changes; Ctrl-C ends it");
        tokio::select! {
            () = wait_for_change(args.path(), deployed) => {}
            code = interrupts.next() => return Ok(ExitCode::from(code)),
        }
    }
}

fn is_usage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Usage(_)))
}

/// Ends when the folder differs from what was deployed and has not changed for one interval: a build that writes its
/// files one after the other is deployed whole.
async fn wait_for_change(folder: &Path, deployed: Vec<FolderFile>) {
    let mut before = deployed.clone();
    loop {
        tokio::time::sleep(SCAN_INTERVAL).await;
        // What a build removes during the walk is an error that passes.
        let Ok(now) = list(folder).await else {
            continue;
        };
        if now != deployed && now == before && !now.is_empty() {
            return;
        }
        before = now;
    }
}

async fn list(folder: &Path) -> Result<Vec<FolderFile>> {
    Ok(scan(folder.to_owned()).await?.files)
}
