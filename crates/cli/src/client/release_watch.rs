//! Follows a release: its build log line by line, until its state is final.

use super::output::Output;
use estrade_client::text::neutralize;
use estrade_client::url::segment;
use estrade_client::wire::{BuildLine, BuildLogs, ReleaseBody};
use estrade_client::{Client, Result};
use reqwest::Method;
use serde_json::Value;
use std::time::Duration;

/// How often the build log is asked for.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// How long one request waits for the end of the release.
const WAIT_SECONDS: u64 = 25;
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// How long its response may take.
const WAIT_TIMEOUT: Duration = Duration::from_secs(WAIT_SECONDS + 30);

/// The path of a release.
pub fn release_path(id: &str) -> Result<String> {
    Ok(format!("/v1/releases/{}", segment(id)?))
}

/// Writes the build log to stderr and returns the document of the release when it has ended.
///
/// Two requests at once: a long poll for the end, so that it is known at once, and the log.
pub async fn watch(client: &Client, id: &str, output: &Output) -> Result<Value> {
    let mut log = BuildLog {
        client,
        path: format!("/v2/releases/{}/build-logs", segment(id)?),
        since: None,
    };
    let path = release_path(id)?;
    let ended = wait_for_end(client, &path);
    tokio::pin!(ended);
    let document = loop {
        tokio::select! {
            document = &mut ended => break document?,
            () = tokio::time::sleep(POLL_INTERVAL) => log.print_new(output).await?,
        }
    };
    log.print_new(output).await?;
    Ok(document)
}

async fn wait_for_end(client: &Client, path: &str) -> Result<Value> {
    loop {
        let request = client
            .request(Method::GET, path)
            .timeout(Some(WAIT_TIMEOUT));
        let document: Value = request
            .query("wait", "READY")
            .query("timeout", WAIT_SECONDS)
            .json()
            .await?;
        match serde_json::from_value::<ReleaseBody>(document.clone()) {
            // A server that shuts down does not wait.
            Ok(body) if !body.release.is_finished() => tokio::time::sleep(ROUND_INTERVAL).await,
            _ => return Ok(document),
        }
    }
}

struct BuildLog<'c> {
    client: &'c Client,
    path: String,
    since: Option<String>,
}

impl BuildLog<'_> {
    /// Prints the lines that came since the last time.
    async fn print_new(&mut self, output: &Output) -> Result<()> {
        loop {
            let request = self.client.request(Method::GET, &self.path);
            let logs: BuildLogs = request
                .maybe_query("since", self.since.as_ref())
                .json()
                .await?;
            let new = lines_after(self.since.as_deref(), logs.build_output);
            let Some(last) = new.last() else {
                return Ok(());
            };
            self.since = Some(last.created_at.clone());
            for line in &new {
                output
                    .printer
                    .note(neutralize(line.line.trim_end_matches('\n')));
            }
        }
    }
}

/// The lines after this time. Without this a server that ignores `since` would be asked for the same lines for ever.
/// Times are UTC with as many digits each, so that they are in the order of their texts.
fn lines_after(since: Option<&str>, mut lines: Vec<BuildLine>) -> Vec<BuildLine> {
    lines.retain(|line| since.is_none_or(|since| line.created_at.as_str() > since));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_come_again_are_not_new() {
        let line = |second: u32| BuildLine {
            line: String::new(),
            created_at: format!("2026-11-15T01:02:{second:02}.000Z"),
        };
        let after = |since, lines| lines_after(since, lines).len();
        assert_eq!(after(None, vec![line(1), line(2)]), 2);
        let since = line(2).created_at;
        assert_eq!(after(Some(&since), vec![line(1), line(2), line(3)]), 1);
        assert_eq!(after(Some(&since), vec![line(1), line(2)]), 0);
    }
}
