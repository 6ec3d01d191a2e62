//! The `ESTRADE_…` variables of a process.

use super::ConfigError;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// What every variable of ours starts with.
const PREFIX: &str = "ESTRADE_";

/// Variables that other parts read: not keys of the configuration, and not mistakes.
const FOREIGN: [&str; 6] = [
    "ESTRADE_CONFIG",
    "ESTRADE_TOKEN",
    "ESTRADE_URL",
    "ESTRADE_AI_URL",
    "ESTRADE_AI_KEY",
    "ESTRADE_KEYRING",
];

/// The `ESTRADE_…` variables that are set. An empty one counts as not set, so that
/// `ESTRADE_DATABASE_URL= estrade serve` does what it looks like.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        std::env::vars_os().filter_map(named).collect()
    }

    /// The text of a variable, if it is set.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, ConfigError> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        value
            .to_str()
            .map(Some)
            .ok_or_else(|| ConfigError::Variable {
                name: name.to_owned(),
                message: "not UTF-8 text".to_owned(),
            })
    }

    /// The variables that nobody reads; `known` are those that are keys.
    pub(super) fn unknown(&self, known: impl Fn(&str) -> bool) -> Vec<String> {
        let foreign = |name: &str| FOREIGN.contains(&name) || name.starts_with("ESTRADE_TEST_");
        self.0
            .keys()
            .filter(|name| !known(name) && !foreign(name))
            .cloned()
            .collect()
    }

    /// The variable of a key: `["platform", "listen"]` is `ESTRADE_PLATFORM_LISTEN`.
    pub(super) fn name_of(path: &[String]) -> String {
        format!("{PREFIX}{}", path.join("_").to_ascii_uppercase())
    }
}

impl<V: Into<OsString>> FromIterator<(String, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(variables: I) -> Self {
        let ours = variables
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty());
        Self(ours.collect())
    }
}
