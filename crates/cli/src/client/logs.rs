//! `estrade logs`: what the instances of a project write.

use super::format::now;
use super::releases::find_release;
use super::selection::ProjectOption;
use super::session::Session;
use clap::Args;
use estrade_client::http::Request;
use estrade_client::sse::{Event, EventStream};
use estrade_client::text::neutralize_line;
use estrade_client::url::segment;
use estrade_client::wire::{Logs, StreamedLine};
use estrade_client::{Client, ClientError, Result};
use estrade_model::Timestamp;
use estrade_model::time::Lifetime;
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How often a broken stream is resumed before the command gives up.
const MAX_RECONNECTS: u32 = 8;
/// Before the first attempt to resume it; doubled before each further one.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Longest of these. All together a server has about a minute for its restart.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(8);
/// How long a server may take to begin the stream.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

/// `estrade logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade logs --project my-app --follow
  estrade logs --since 2h --search error
  estrade logs --since 2026-11-15T08:00:00Z --lines 1000 --json")]
pub struct LogsArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Go on with what is written from now on
    #[arg(long, short)]
    follow: bool,
    /// From this time on: 90s, 15m, 2h, 7d ago, or 2026-11-15T08:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only lines with this text in them, in whatever case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only lines of this release, by id or tag (v3)
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// The newest so many lines, 5000 at most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    lines: u32,
}

pub async fn run(args: &LogsArgs, session: &Session<'_>) -> anyhow::Result<()> {
    let output = &session.output;
    if args.follow && output.is_json() {
        let reason = "--json prints one document, and --follow never ends; use one of them";
        return Err(ClientError::Usage(reason.to_owned()).into());
    }
    let client = session.client().await?;
    let project = args.project.resolve(session)?;
    let mut request = request(args, &client, &project)?;
    if let Some(release) = &args.release {
        let id = find_release(&client, &project, release).await?;
        request = request.query("releaseId", id);
    }
    if args.follow {
        return follow(request, session).await;
    }
    let document: Value = request.json().await?;
    output.response(document, |logs| {
        let lines = show(logs);
        if lines.is_empty() {
            output.printer.note("no lines; --follow waits for some");
        }
        lines
    })
}

fn request(args: &LogsArgs, client: &Client, project: &str) -> Result<Request> {
    let path = format!("/v2/projects/{}/logs", segment(project)?);
    let start = args.since.as_deref().map(parse_since).transpose()?;
    Ok(client
        .request(Method::GET, &path)
        .query("last_lines", args.lines)
        .maybe_query("start", start)
        .maybe_query("search", args.search.as_ref()))
}

/// Seconds since the epoch.
fn parse_since(text: &str) -> Result<i64> {
    if let Ok(Lifetime(Some(span))) = text.parse() {
        return Ok(now().before(span).seconds());
    }
    let at: Result<Timestamp, _> = text.parse();
    at.map(Timestamp::seconds).map_err(|_| {
        ClientError::Usage(format!(
            "--since `{text}`: write how long ago (15m, 2h, 7d), or a time (2026-11-15T08:00:00Z)"
        ))
    })
}

fn show(logs: Logs) -> String {
    let mut lines: Vec<(u128, String)> = Vec::new();
    for (time, entry) in logs.data.into_iter().flat_map(|release| release.values) {
        let entry: Value = serde_json::from_str(&entry).unwrap_or_default();
        let text = entry["_entry"].as_str().unwrap_or_default();
        lines.push((time.parse().unwrap_or_default(), text.to_owned()));
    }
    // Stable: lines of one moment stay in their order.
    lines.sort_by_key(|(time, _)| *time);
    let shown: Vec<_> = lines
        .iter()
        .map(|(time, text)| show_line(*time, text))
        .collect();
    shown.join("\n")
}

/// A line of a log with its time; what it says cannot steer the terminal.
fn show_line(nanos: u128, text: &str) -> String {
    let millis = i64::try_from(nanos / 1_000_000).unwrap_or_default();
    let text = neutralize_line(text.trim_end_matches(['\n', '\r']));
    format!("{} {text}", Timestamp::from_millis(millis))
}

/// Prints lines as they come. A stream that breaks is resumed after the last line that was seen, also when the server is
/// away for a while.
async fn follow(request: Request, session: &Session<'_>) -> anyhow::Result<()> {
    let request = request.query("follow", true).timeout(None);
    let server = session.target()?.server;
    let mut last_seen = None;
    let (mut was_open, mut failures) = (false, 0);
    loop {
        let mut error = lost(&server, "the server ends the stream again and again");
        match open(&request, last_seen.as_deref(), &server).await {
            Ok(mut stream) => {
                was_open = true;
                let opened = Instant::now();
                loop {
                    let events = match stream.next().await {
                        Ok(Some(events)) => events,
                        Ok(None) => break,
                        Err(broken) if broken.may_pass() => {
                            error = broken;
                            break;
                        }
                        Err(broken) => return Err(broken.into()),
                    };
                    // A quiet project's stream has keep-alives only, and a proxy may cut it each time after a while.
                    if !events.is_empty() || opened.elapsed() > MAX_RECONNECT_DELAY {
                        failures = 0;
                    }
                    for event in events {
                        if !print_event(&event)? {
                            return Ok(());
                        }
                        last_seen = event.id.or(last_seen);
                    }
                }
            }
            Err(broken) if was_open && broken.may_pass() => error = broken,
            Err(broken) => return Err(broken.into()),
        }
        failures += 1;
        if failures > MAX_RECONNECTS {
            return Err(error.into());
        }
        let delay = RECONNECT_DELAY * (1 << (failures - 1));
        tokio::time::sleep(delay.min(MAX_RECONNECT_DELAY)).await;
    }
}

/// The stream after the line with this id.
async fn open(request: &Request, last_seen: Option<&str>, server: &str) -> Result<EventStream> {
    let mut attempt = request.clone();
    if let Some(Ok(id)) = last_seen.map(HeaderValue::from_str) {
        attempt = attempt.header(HeaderName::from_static("last-event-id"), id);
    }
    let sent = tokio::time::timeout(OPEN_TIMEOUT, attempt.send()).await;
    let late = |_| ClientError::TimedOut {
        url: server.to_owned(),
    };
    sent.map_err(late)?.map(EventStream::new)
}

fn lost(server: &str, cause: &str) -> ClientError {
    ClientError::Unreachable {
        url: server.to_owned(),
        cause: cause.to_owned(),
    }
}

/// Prints a line; whether somebody still reads.
fn print_event(event: &Event) -> anyhow::Result<bool> {
    let Ok(line) = serde_json::from_str::<StreamedLine>(&event.data) else {
        return Ok(true);
    };
    let shown = show_line(line.time.parse().unwrap_or_default(), &line.entry);
    Ok(crate::printer::write(format!("{shown}\n").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_sorted_and_cannot_steer_the_terminal() {
        let document = json!({"data": [
            {"metaData": {"releaseId": "b"}, "values": [["2000000000", "{\"_entry\":\"\\u001b[2Jsecond\\n\"}"]]},
            {"metaData": {"releaseId": "a"}, "values": [["1000000000", "{\"_entry\":\"first\"}"]]},
        ]});
        let shown = show(serde_json::from_value(document).unwrap());
        assert_eq!(
            shown,
            "1970-01-01T00:00:01.000Z first\n1970-01-01T00:00:02.000Z second"
        );
    }

    #[test]
    fn since_is_a_span_or_a_time() {
        assert_eq!(parse_since("1970-01-01T00:01:00Z").unwrap(), 60);
        let hour = now().seconds() - parse_since("1h").unwrap();
        assert!((3599..=3601).contains(&hour));
        for bad in ["", "x", "never", "1 h", "yesterday"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
