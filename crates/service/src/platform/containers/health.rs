//! Health checks of instances, as their release configures them.

use estrade_runtime::Probe;
use serde_json::{Map, Value};
use std::time::Duration;

/// The longest that instances may take: a release may not stay DEPLOYING for much longer.
const MAX_DURATION: Duration = Duration::from_secs(100);

/// How an instance is found to be healthy, and how long that may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthCheck {
    kind: Kind,
    pub(super) limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Tcp,
    Http(String),
    Command(Vec<String>),
}

impl HealthCheck {
    /// Reads `healthCheck` of a release: `{path}` or just the path is an HTTP check, `{command}` runs it in
    /// the instance, `deadline` is in seconds. Without any of them a connection is enough.
    pub(super) fn read(settings: &Map<String, Value>, usual: Duration) -> Self {
        let check = settings.get("healthCheck").unwrap_or(&Value::Null);
        let path = check.as_str().or_else(|| check.get("path")?.as_str());
        let kind = match (path, check.get("command")) {
            (Some(path), _) if path.starts_with('/') => Kind::Http(path.to_owned()),
            (_, Some(command)) => words(command).map_or(Kind::Tcp, Kind::Command),
            _ => Kind::Tcp,
        };
        let mut names = ["deadline", "startPeriod"].iter();
        let seconds = names.find_map(|name| check.get(name)?.as_u64());
        let limit = seconds
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        Self {
            kind,
            limit: limit.unwrap_or(usual).min(MAX_DURATION),
        }
    }

    /// The probe of an instance of the project with this host name.
    pub(super) fn probe(&self, host: &str) -> Probe {
        match &self.kind {
            Kind::Tcp => Probe::Tcp,
            Kind::Http(path) => Probe::Http {
                path: path.clone(),
                host: host.to_owned(),
            },
            Kind::Command(words) => Probe::Command(words.clone()),
        }
    }
}

/// A command as a list of words, or as a line for a shell.
fn words(command: &Value) -> Option<Vec<String>> {
    match command {
        Value::String(line) if !line.trim().is_empty() => {
            Some(["sh", "-c", line].map(str::to_owned).to_vec())
        }
        Value::Array(words) if !words.is_empty() => words
            .iter()
            .map(|word| Some(word.as_str()?.to_owned()))
            .collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(check: &Value) -> HealthCheck {
        let settings = json!({ "healthCheck": check });
        HealthCheck::read(settings.as_object().unwrap(), Duration::from_mins(1))
    }

    #[test]
    fn what_a_release_may_say() {
        assert_eq!(read(&Value::Null).probe("h"), Probe::Tcp);
        let http = Probe::Http {
            path: "/up".into(),
            host: "h".into(),
        };
        assert_eq!(read(&json!("/up")).probe("h"), http);
        assert_eq!(read(&json!({"path": "/up"})).probe("h"), http);
        let command =
            |words: &[&str]| Probe::Command(words.iter().map(|word| (*word).into()).collect());
        assert_eq!(
            read(&json!({"command": "test -e x"})).probe("h"),
            command(&["sh", "-c", "test -e x"])
        );
        assert_eq!(
            read(&json!({"command": ["ok", "1"]})).probe("h"),
            command(&["ok", "1"])
        );
        assert_eq!(read(&json!({"command": [1]})).probe("h"), Probe::Tcp);
        assert_eq!(read(&json!({"deadline": 5})).limit, Duration::from_secs(5));
        assert_eq!(read(&json!({"deadline": 5000})).limit, MAX_DURATION);
        assert_eq!(read(&json!({"deadline": 0})).limit, Duration::from_mins(1));
    }
}
