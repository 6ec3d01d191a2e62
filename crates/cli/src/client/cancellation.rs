//! What becomes of a deployment that is interrupted: the release that it made, or is about to make, is canceled.

use super::interrupts::Interrupts;
use super::progress::ByteProgress;
use crate::printer::Printer;
use estrade_client::Client;
use estrade_client::deploy::SendProgress;
use estrade_client::text::neutralize_line;
use estrade_client::upload::SentBytes;
use estrade_client::url::segment;
use serde_json::{Value, json};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;

/// How long it is tried to cancel a release.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// How far the server is with the release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stage {
    /// It was not asked for one.
    #[default]
    NotAsked,
    /// It was asked, and makes one also when nobody waits for its answer.
    Asked,
    Made(String),
}

/// Notes how far the server is, beside the progress that is shown.
pub struct StageProgress<'s> {
    pub shown: ByteProgress,
    pub stage: &'s watch::Sender<Stage>,
}

impl SendProgress for StageProgress<'_> {
    fn asked(&self) {
        self.stage.send_replace(Stage::Asked);
    }

    fn answered(&self, release: Option<&str>) {
        let made = |id: &str| Stage::Made(id.to_owned());
        self.stage
            .send_replace(release.map_or(Stage::NotAsked, made));
    }

    fn begin(&self, contents: usize, bytes: u64) {
        self.shown.begin(contents, bytes);
    }

    fn sent_bytes(&self) -> SentBytes {
        self.shown.sent_bytes()
    }
}

/// Ends `deploying`, which was interrupted. While the server is being asked for the release, its answer is waited for:
/// without its id nothing can be canceled.
pub async fn cancel<F: Future>(
    deploying: Pin<&mut F>,
    stage: &watch::Sender<Stage>,
    client: &Client,
    printer: Printer,
    interrupts: &mut Interrupts,
) {
    let mut seen = stage.subscribe();
    if *seen.borrow() == Stage::Asked {
        printer.note("\nstopping: waiting for the server's answer, to cancel the release");
        let answered = seen.wait_for(|stage| *stage != Stage::Asked);
        tokio::select! {
            // In this order: the deployment yields after the answer, so that what it does then, such as printing the id, is
            // not begun.
            biased;
            _ = answered => {}
            _ = interrupts.next() => {}
            () = tokio::time::sleep(CANCEL_TIMEOUT) => {}
            _ = deploying => {}
        }
    }
    let stage = stage.borrow().clone();
    match stage {
        Stage::NotAsked => {
            printer.note("\nstopped; no release was made, and what was sent is kept for a day");
        }
        Stage::Asked => printer.warning(
            "stopped; a release may have been made all the same: `estrade releases list` shows it, `estrade releases cancel ID` ends it",
        ),
        Stage::Made(release) => cancel_release(&release, client, printer, interrupts).await,
    }
}

async fn cancel_release(
    release: &str,
    client: &Client,
    printer: Printer,
    interrupts: &mut Interrupts,
) {
    let post = async {
        let path = format!("/v2/releases/{}/cancel", segment(release)?);
        client.post::<Value>(&path, &json!({})).await
    };
    let outcome = tokio::select! {
        outcome = post => outcome.map(drop).map_err(|error| error.to_string()),
        () = tokio::time::sleep(CANCEL_TIMEOUT) => Err("the server does not answer".to_owned()),
        _ = interrupts.next() => Err("stopped again".to_owned()),
    };
    let release = neutralize_line(release);
    match outcome {
        Ok(()) => printer.note(format_args!("\ncanceled release {release}")),
        Err(error) => printer.warning(neutralize_line(&format!(
            "release {release} was not canceled: {error}"
        ))),
    }
}
