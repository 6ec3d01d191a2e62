//! The log of a running server: stderr, for eyes on a terminal, as JSON otherwise.

use crate::config::{Log, LogFormat, LogLevel};
use crate::printer::wants_colour;
use anyhow::Context;
use estrade_service::Clock;
use estrade_service::recent_errors::{self, LoggedProblem};
use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging. `RUST_LOG`, if set, decides instead of the configured level.
pub fn init(log: &Log) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            EnvFilter::try_new(directives).context("RUST_LOG is not a log filter")?
        }
        _ => EnvFilter::new(directives(log.level)),
    };
    let human = match log.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let builder = Subscriber::builder()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Reporting a failed write to stderr would itself write to stderr, and panic.
        .log_internal_errors(false);
    let started = if human {
        let human = builder.with_ansi(wants_colour(&io::stderr())).finish();
        human.with(RecentErrors::default()).try_init()
    } else {
        let json = builder.json().flatten_event(true).with_span_list(false);
        json.finish().with(RecentErrors::default()).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))
}

/// Keeps the last warnings and errors for the status page of the account panel.
#[derive(Default)]
struct RecentErrors {
    clock: Clock,
}

impl<S: tracing::Subscriber> Layer<S> for RecentErrors {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::WARN {
            return;
        }
        let mut text = LineText::default();
        event.record(&mut text);
        recent_errors::record(LoggedProblem {
            at: self.clock.now(),
            is_error: level == Level::ERROR,
            message: format!("{}{}", text.message, text.fields),
        });
    }
}

/// A line of the log as one text: the message, then its fields.
#[derive(Default)]
struct LineText {
    message: String,
    fields: String,
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

/// The level for our own crates; libraries are heard only when something is wrong.
fn directives(level: LogLevel) -> String {
    let name = |level| match level {
        LogLevel::Off => "off",
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    format!(
        "{},estrade={}",
        name(level.min(LogLevel::Warn)),
        name(level)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_never_say_more_than_warnings() {
        assert_eq!(directives(LogLevel::Trace), "warn,estrade=trace");
        assert_eq!(directives(LogLevel::Error), "error,estrade=error");
        assert_eq!(directives(LogLevel::Off), "off,estrade=off");
    }
}
