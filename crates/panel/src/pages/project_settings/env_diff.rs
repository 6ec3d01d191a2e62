//! What a change of a project's variables does: shown before it is saved, and applied to what is there then.

use estrade_model::dotenv::{self, LineError};
use estrade_model::names::EnvKey;
use estrade_model::project::{EnvId, EnvSetting, EnvVar};
use serde::{Deserialize, Serialize};

/// A variable that gets a value, or is removed. `Debug` does not show the value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EnvChange {
    pub(super) key: EnvKey,
    /// None: it is removed.
    pub(super) value: Option<String>,
}

impl std::fmt::Debug for EnvChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.value.is_some() { '+' } else { '-' };
        write!(f, "{sign}{}", self.key)
    }
}

/// What happens to a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffKind {
    Added,
    Changed,
    Removed,
}

impl DiffKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Changed => "Changed",
            Self::Removed => "Removed",
        }
    }

    /// The colour of the badge.
    pub(super) fn badge(self) -> &'static str {
        match self {
            Self::Added => "ok",
            Self::Changed => "warn",
            Self::Removed => "bad",
        }
    }
}

/// A line of the comparison.
pub(super) struct DiffRow {
    pub(super) kind: DiffKind,
    pub(super) key: EnvKey,
    /// The new value; empty when it is removed.
    pub(super) value: String,
}

/// What would be different.
pub(super) struct EnvDiff {
    pub(super) rows: Vec<DiffRow>,
    /// How many variables stay as they are.
    pub(super) unchanged: usize,
}

impl EnvDiff {
    /// Compares what is there with what it would be.
    pub(super) fn new(current: &[EnvVar], changes: &[EnvChange]) -> Self {
        let find = |key: &EnvKey| current.iter().find(|it| it.key == *key);
        let row = |change: &EnvChange| {
            let kind = match (find(&change.key), &change.value) {
                (None, Some(_)) => DiffKind::Added,
                (Some(old), Some(new)) if old.value != *new => DiffKind::Changed,
                (Some(_), None) => DiffKind::Removed,
                _ => return None,
            };
            Some(DiffRow {
                kind,
                key: change.key.clone(),
                value: change.value.clone().unwrap_or_default(),
            })
        };
        let rows: Vec<_> = changes.iter().filter_map(row).collect();
        let touched = rows.iter().filter(|row| row.kind != DiffKind::Added);
        Self {
            unchanged: current.len().saturating_sub(touched.count()),
            rows,
        }
    }

    pub(super) fn count(&self, kind: DiffKind) -> usize {
        self.rows.iter().filter(|row| row.kind == kind).count()
    }

    /// The number of changes of each kind, as a sentence's part.
    pub(super) fn summary(&self) -> String {
        let kinds = [DiffKind::Added, DiffKind::Changed, DiffKind::Removed];
        let part = |kind: DiffKind| match self.count(kind) {
            0 => None,
            count => Some(format!("{count} {}", kind.word().to_lowercase())),
        };
        let parts: Vec<_> = kinds.into_iter().filter_map(part).collect();
        parts.join(", ")
    }
}

/// The whole new set: what is there, with the changes, new ones at the end.
pub(super) fn apply(current: Vec<EnvVar>, changes: Vec<EnvChange>) -> Vec<EnvSetting> {
    let mut all: Vec<_> = current
        .into_iter()
        .map(|EnvVar { key, value, .. }| EnvSetting { key, value })
        .collect();
    for EnvChange { key, value } in changes {
        let at = all.iter().position(|it| it.key == key);
        match (at, value) {
            (Some(at), Some(value)) => {
                if let Some(setting) = all.get_mut(at) {
                    setting.value = value;
                }
            }
            (Some(at), None) => drop(all.remove(at)),
            (None, Some(value)) => all.push(EnvSetting { key, value }),
            (None, None) => {}
        }
    }
    all
}

/// The changes that the text of a `.env` file means; with `replace` also the removal of what it does not name.
pub(super) fn from_text(
    text: &str,
    replace: bool,
    current: &[EnvVar],
) -> Result<Vec<EnvChange>, Vec<LineError>> {
    let named = dotenv::parse(text)?;
    let is_named = |key: &EnvKey| named.iter().any(|it| it.key == *key);
    let removed: Vec<_> = current
        .iter()
        .filter(|it| replace && !is_named(&it.key))
        .map(|it| EnvChange {
            key: it.key.clone(),
            value: None,
        })
        .collect();
    let set = named
        .into_iter()
        .map(|EnvSetting { key, value }| EnvChange {
            key,
            value: Some(value),
        });
    Ok(set.chain(removed).collect())
}

/// Identifies a state of a project's variables: every change gives all of them new ids.
pub(super) fn state_of(current: &[EnvVar]) -> String {
    let first = current.first().map(|it| it.id.to_string());
    first.unwrap_or_else(|| "none".into())
}

/// The ids of a state, to be compared when it is replaced.
pub(super) fn ids_of(current: &[EnvVar]) -> Vec<EnvId> {
    current.iter().map(|it| it.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> Vec<EnvVar> {
        let row = |(at, (key, value)): (usize, (&str, &str))| EnvVar {
            id: format!("{at:024x}").parse().unwrap(),
            key: key.parse().unwrap(),
            value: value.to_owned(),
            encrypted: true,
        };
        let rows = [("A", "1"), ("B", "2"), ("C", "3")];
        rows.into_iter().enumerate().map(row).collect()
    }

    fn change(key: &str, value: Option<&str>) -> EnvChange {
        EnvChange {
            key: key.parse().unwrap(),
            value: value.map(str::to_owned),
        }
    }

    #[test]
    fn a_diff_names_only_what_becomes_different() {
        let changes = [
            change("A", Some("1")),
            change("B", Some("two")),
            change("C", None),
            change("D", Some("")),
            change("E", None),
        ];
        let diff = EnvDiff::new(&current(), &changes);
        let rows: Vec<_> = diff
            .rows
            .iter()
            .map(|row| (row.kind, row.key.as_str(), row.value.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                (DiffKind::Changed, "B", "two"),
                (DiffKind::Removed, "C", ""),
                (DiffKind::Added, "D", "")
            ]
        );
        assert_eq!(diff.unchanged, 1);
        assert_eq!(diff.summary(), "1 added, 1 changed, 1 removed");
        let applied: Vec<_> = apply(current(), changes.to_vec())
            .into_iter()
            .map(|it| (it.key.to_string(), it.value))
            .collect();
        let expected = [("A", "1"), ("B", "two"), ("D", "")];
        assert_eq!(
            applied,
            expected.map(|(key, value)| (key.into(), value.into()))
        );
    }

    #[test]
    fn a_text_adds_to_what_is_there_or_replaces_it() {
        let text = "B=2\nD=4";
        let added = from_text(text, false, &current()).unwrap();
        assert_eq!(added, [change("B", Some("2")), change("D", Some("4"))]);
        let replaced = from_text(text, true, &current()).unwrap();
        let diff = EnvDiff::new(&current(), &replaced);
        assert_eq!(diff.summary(), "1 added, 2 removed");
        assert_eq!(diff.unchanged, 1);
    }

    #[test]
    fn debug_output_has_no_values() {
        let text = format!("{:?}", [change("A", Some("secret")), change("B", None)]);
        assert_eq!(text, "[+A, -B]");
    }
}
