//! The keys of the configuration, and the environment variable of each.
//!
//! They are read from `reference.toml`, which names every key once: so documentation and
//! environment cannot drift apart, and nobody writes a line per variable.

use super::Environment;
use toml::{Table, Value};

/// Every key with its meaning, as a configuration file.
pub const REFERENCE: &str = include_str!("reference.toml");

/// Tables whose keys the user chooses: their variable holds the whole table.
const FREE_TABLES: [&str; 1] = ["plans"];

/// A key that can be set, such as `platform.tls.cert`.
#[derive(Debug)]
pub(super) struct Key {
    /// The way to it from the root.
    pub(super) path: Vec<String>,
    /// Its variable, such as `ESTRADE_PLATFORM_TLS_CERT`.
    pub(super) variable: String,
    /// How the variable's text is read.
    kind: Kind,
}

/// How the text of a variable becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Boolean,
    /// Texts with commas between them.
    List,
    /// One TOML value: a table, or a list of tables.
    Toml,
}

impl Key {
    /// Every key of the configuration.
    pub(super) fn all() -> Vec<Self> {
        #[expect(
            clippy::expect_used,
            reason = "embedded text, parsed by every test below"
        )]
        let reference: Table = REFERENCE.parse().expect("the reference is valid TOML");
        let mut keys = Vec::new();
        collect(&reference, &mut Vec::new(), &mut keys);
        keys
    }

    /// Reads the text of this key's variable.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Text => Ok(Value::String(text.to_owned())),
            Kind::Integer => match text.trim().parse() {
                Ok(number) => Ok(Value::Integer(number)),
                Err(_) => Err(format!("`{text}` is not a whole number")),
            },
            Kind::Boolean => match text.trim() {
                "true" | "1" => Ok(Value::Boolean(true)),
                "false" | "0" => Ok(Value::Boolean(false)),
                _ => Err(format!("`{text}` is neither true nor false")),
            },
            Kind::List => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                Ok(items.map(Value::from).collect::<Vec<_>>().into())
            }
            // Only the parser's reason: its full text would repeat the value, which may
            // hold a provider's key.
            Kind::Toml => text.parse().map_err(|error: toml::de::Error| {
                format!("expected one line of TOML: {}", error.message())
            }),
        }
    }

    /// Whether an error at this path (`ai.providers[0].name`) can stem from this key.
    /// A missing field is reported at its table, so the way up counts too.
    pub(super) fn concerns(&self, error_path: &str) -> bool {
        let own = self.path.join(".");
        let below = error_path.strip_prefix(&own);
        let above = own.strip_prefix(error_path);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            || above.is_some_and(|rest| rest.starts_with('.'))
    }
}

/// Adds the keys of a table.
fn collect(table: &Table, path: &mut Vec<String>, keys: &mut Vec<Key>) {
    for (name, value) in table {
        path.push(name.clone());
        let kind = match value {
            Value::Table(inner) if !FREE_TABLES.contains(&name.as_str()) => {
                collect(inner, path, keys);
                None
            }
            Value::Table(_) => Some(Kind::Toml),
            Value::Array(items) if items.iter().any(Value::is_table) => Some(Kind::Toml),
            Value::Array(_) => Some(Kind::List),
            Value::Integer(_) => Some(Kind::Integer),
            Value::Boolean(_) => Some(Kind::Boolean),
            Value::String(_) | Value::Float(_) | Value::Datetime(_) => Some(Kind::Text),
        };
        keys.extend(kind.map(|kind| Key {
            variable: Environment::name_of(path),
            path: path.clone(),
            kind,
        }));
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    /// The paths of all values, `null`s marked.
    fn paths(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    paths(value, &format!("{path}.{name}"), found);
                }
            }
            serde_json::Value::Null => found.push(format!("{path} is not in the reference")),
            _ => found.push(path.to_owned()),
        }
    }

    #[test]
    fn the_reference_names_every_key() {
        let text: Table = REFERENCE.parse().unwrap();
        let loaded: Config = toml::from_str(REFERENCE).unwrap();
        let (mut written, mut understood) = (Vec::new(), Vec::new());
        paths(&serde_json::to_value(text).unwrap(), "", &mut written);
        paths(&serde_json::to_value(loaded).unwrap(), "", &mut understood);
        written.sort();
        understood.sort();
        assert_eq!(written, understood);
    }

    #[test]
    fn variables_are_the_path_in_capitals() {
        let variables: Vec<_> = Key::all().into_iter().map(|key| key.variable).collect();
        for name in [
            "ESTRADE_DATA_DIR",
            "ESTRADE_DATABASE_URL",
            "ESTRADE_MASTER_KEY_FILE",
            "ESTRADE_TRUSTED_PROXIES",
            "ESTRADE_PLATFORM_TLS_CERT",
            "ESTRADE_DOCKER_IMAGES_NODE",
            "ESTRADE_AI_PROVIDERS",
            "ESTRADE_PLANS",
            "ESTRADE_LOG_LEVEL",
        ] {
            assert!(variables.iter().any(|variable| variable == name), "{name}");
        }
        let mut unique = variables.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), variables.len(), "two keys share a variable");
    }
}
