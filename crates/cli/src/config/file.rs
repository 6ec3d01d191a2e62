//! The configuration file, checked on its own so that an error can point into it.

use super::{Config, ConfigError};
use serde::Deserialize;
use serde_path_to_error::Segment;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table};

/// A configuration file that is valid by itself.
#[derive(Debug, Default)]
pub(super) struct ConfigFile(Table);

impl ConfigFile {
    /// Reads and checks the file.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or(&[]));
                Err(error_at(path, &before, before.len(), "not UTF-8 text"))
            }
        }
    }

    /// Checks the text of the file.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let syntax = |error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            error_at(path, text, at, error.message())
        };
        let document = toml::Deserializer::parse(text).map_err(syntax)?;
        serde_path_to_error::deserialize::<_, Config>(document).map_err(|error| {
            let at = place_of(&error, text);
            let reason = error.inner().message();
            let message = match error.path().to_string().as_str() {
                "." => reason.to_owned(),
                key => format!("{key}: {reason}"),
            };
            error_at(path, text, at, &message)
        })?;
        let document = toml::Deserializer::parse(text).map_err(syntax)?;
        Table::deserialize(document).map(Self).map_err(syntax)
    }

    /// What the file says, as a tree.
    pub(super) fn into_table(self) -> Table {
        self.0
    }
}

/// The byte offset that an error is about.
///
/// The parser places an error about one item of a list at the start of the list; the
/// error's path knows which item it is.
fn place_of(error: &serde_path_to_error::Error<toml::de::Error>, text: &str) -> usize {
    let path = error.path();
    let item = match path.iter().next_back() {
        Some(Segment::Seq { .. }) => locate(path, text),
        _ => None,
    };
    item.or(error.inner().span()).map_or(0, |place| place.start)
}

/// Where the value at this path stands in the text.
fn locate(path: &serde_path_to_error::Path, text: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut value = &Spanned::new(root.span(), DeValue::Table(root.into_inner()));
    for segment in path {
        value = match segment {
            Segment::Map { key } => value.get_ref().get(key.as_str())?,
            Segment::Seq { index } => value.get_ref().get(*index)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    Some(value.span())
}

/// An error at a byte offset of the text.
fn error_at(path: &Path, text: &str, offset: usize, message: &str) -> ConfigError {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ConfigError::File {
        file: PathBuf::from(path),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message: message.trim_end().replace('\n', ", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        ConfigFile::parse(Path::new("e.toml"), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        let error = refusal("data_dir = 'x'\n\n[platform]\n  lisen = '127.0.0.1:1'\n");
        assert!(error.starts_with("e.toml, line 4, column 3: "), "{error}");
        assert!(
            error.contains("`lisen`") && error.contains("`listen`"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_type_is_named_with_its_place() {
        let error = refusal("[edge]\nskew_seconds = 'long'");
        assert!(
            error.starts_with("e.toml, line 2, column 16: edge.skew_seconds: "),
            "{error}"
        );
        let error = refusal("[limits]\nburst = 0");
        assert!(
            error.starts_with("e.toml, line 2, column 9: limits.burst: "),
            "{error}"
        );
    }

    #[test]
    fn a_bad_value_is_named_with_its_place() {
        for (text, place) in [
            (
                "[platform]\nlisten = 'localhost:80'",
                "line 2, column 10: platform.listen: ",
            ),
            (
                "[ai]\nunknown_workspace = 'maybe'",
                "line 2, column 21: ai.unknown_workspace: ",
            ),
            (
                "trusted_proxies = ['::1',\n  'proxy']",
                "line 2, column 3: trusted_proxies[1]: ",
            ),
            (
                "[docker.images]\nnod = 'x'",
                "line 2, column 1: docker.images",
            ),
            ("[plans.Big]\ncpus = 1", "line 1, column 8: plans"),
            (
                "platform.tls = { cert = 'c' }",
                "line 1, column 16: platform.tls: missing field `key`",
            ),
        ] {
            let error = refusal(text);
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn an_error_inside_a_list_is_placed_at_its_item() {
        let provider = "[[ai.providers]]\nname = 'a'\nbase_url = 'http://h/v1'\n";
        let keyed = provider.replace("'a'", "'b'") + "api_key = 'k'\napi_key_env = 'K'\n";
        let error = refusal(&format!("{provider}{keyed}"));
        assert!(
            error.contains("line 4, column 1: ai.providers[1]: "),
            "{error}"
        );
        let error = refusal("[edge]\ndomains = ['a.com', 'b.com:80']");
        assert!(
            error.contains("line 2, column 21: edge.domains[1]: "),
            "{error}"
        );
    }

    #[test]
    fn a_syntax_error_is_named_with_its_place() {
        let error = refusal("[platform]\nlisten = = 1");
        assert!(error.starts_with("e.toml, line 2, column "), "{error}");
        let error = refusal("a = 1\na = 2");
        assert!(error.starts_with("e.toml, line 2, column "), "{error}");
    }

    #[test]
    fn a_message_is_one_line_without_secrets() {
        let error = refusal("database_url = 'mysql://root:hunter2@h/db'");
        assert!(
            error.contains("line 1, column 16: database_url: "),
            "{error}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains('\n'),
            "{error}"
        );
    }
}
