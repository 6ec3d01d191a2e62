//! What instances write.

use crate::docker::engine::Engine;
use crate::error::Error;
use crate::instance::InstanceId;
use crate::lines::LONGEST;
use crate::log_line::{LogLine, LogsFrom};
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::future::ready;

const WHAT: &str = "reading an instance's log";

impl Engine {
    /// The lines of an instance's log. To drop it is to stop; it ends with the instance, or with an error when
    /// the engine breaks off: begin again after the last line then.
    pub fn logs(
        &self,
        id: &InstanceId,
        from: LogsFrom,
    ) -> impl Stream<Item = Result<LogLine, Error>> + Send + use<> {
        let options = LogsOptions {
            follow: from.follow,
            stdout: true,
            stderr: true,
            // bollard supports whole seconds only; earlier lines are filtered below.
            since: i32::try_from(from.after.div_euclid(1_000_000_000)).unwrap_or(i32::MAX),
            timestamps: true,
            tail: from
                .last
                .map_or_else(|| "all".to_owned(), |last| last.to_string()),
            ..Default::default()
        };
        let output = self.docker.logs(&id.0, Some(options));
        output.filter_map(move |output| {
            ready(match output {
                Ok(output) => read(output).filter(|line| line.at > from.after).map(Ok),
                Err(error) => Some(Err(Error::from_bollard(WHAT, error))),
            })
        })
    }
}

fn read(output: LogOutput) -> Option<LogLine> {
    match output {
        LogOutput::StdOut { message } | LogOutput::Console { message } => parse(&message, false),
        LogOutput::StdErr { message } => parse(&message, true),
        LogOutput::StdIn { .. } => None,
    }
}

/// `2026-11-15T01:02:03.004567891Z text\n`
fn parse(message: &Bytes, stderr: bool) -> Option<LogLine> {
    let space = memchr::memchr(b' ', message)?;
    let at: jiff::Timestamp = std::str::from_utf8(&message[..space]).ok()?.parse().ok()?;
    let text = &message[space + 1..];
    let (text, cut) = match text.strip_suffix(b"\n") {
        Some(text) => (text.strip_suffix(b"\r").unwrap_or(text), false),
        None => (text, true),
    };
    let text = &text[..text.len().min(LONGEST)];
    Some(LogLine {
        at: i64::try_from(at.as_nanosecond()).ok()?,
        stderr,
        text: String::from_utf8_lossy(text).into_owned(),
        cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_moment_and_its_text() {
        let line = |text: &'static str| parse(&Bytes::from(text), false);
        let stamp = "2026-11-15T01:02:03.000000001Z";
        assert_eq!(
            line("2026-11-15T01:02:03.000000001Z two words\r\n"),
            Some(LogLine {
                at: 1_794_704_523_000_000_001,
                stderr: false,
                text: "two words".into(),
                cut: false
            }),
            "{stamp}"
        );
        assert!(line("2026-11-15T01:02:03.000000001Z begun").unwrap().cut);
        assert_eq!(line("2026-11-15T01:02:03.000000001Z \n").unwrap().text, "");
        assert_eq!(line("no stamp\n"), None);
    }
}
