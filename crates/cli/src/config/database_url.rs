//! Where the facts are kept: PostgreSQL, or one SQLite file.

use super::secret::SecretUrl;
use super::text::{Invalid, serde_as_text};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The database of an installation.
#[derive(Debug, Clone)]
pub enum DatabaseUrl {
    /// `postgres://…` or `postgresql://…`.
    Postgres(SecretUrl),
    /// `sqlite:PATH`.
    Sqlite(PathBuf),
}

impl FromStr for DatabaseUrl {
    type Err = Invalid;

    // The messages never repeat the value: it may hold a password.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return SecretUrl::new(text).map(Self::Postgres);
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err(
                "not a database that Estrade knows: write postgres://USER:PASSWORD@HOST/DATABASE \
                 or sqlite:PATH"
                    .into(),
            );
        };
        // `sqlite://data.db` is a common spelling elsewhere; taken literally, it would
        // be a file in the root directory.
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("sqlite: needs the path of a file, as in sqlite:estrade.db".into());
        }
        if path == ":memory:" {
            return Err("a database in memory would be lost at the next start; name a file".into());
        }
        if path.contains('?') {
            return Err("sqlite:PATH takes no `?` options".into());
        }
        Ok(Self::Sqlite(path.into()))
    }
}

/// Without the password, so safe to show.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(url) => url.fmt(f),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

serde_as_text!(DatabaseUrl);

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(text: &str) -> PathBuf {
        match text.parse().unwrap() {
            DatabaseUrl::Sqlite(path) => path,
            DatabaseUrl::Postgres(_) => panic!("{text} became PostgreSQL"),
        }
    }

    #[test]
    fn both_spellings_of_postgres_are_taken_and_masked() {
        for scheme in ["postgres", "postgresql"] {
            let url: DatabaseUrl = format!("{scheme}://u:pw@h/db").parse().unwrap();
            assert_eq!(url.to_string(), format!("{scheme}://u:***@h/db"));
            assert!(!format!("{url:?}").contains("pw"));
        }
    }

    #[test]
    fn sqlite_paths_mean_what_they_look_like() {
        assert_eq!(sqlite("sqlite:a.db"), PathBuf::from("a.db"));
        assert_eq!(sqlite("sqlite://a.db"), PathBuf::from("a.db"));
        assert_eq!(sqlite("sqlite:/var/a.db"), PathBuf::from("/var/a.db"));
        assert_eq!(sqlite("sqlite:///var/a.db"), PathBuf::from("/var/a.db"));
    }

    #[test]
    fn anything_else_is_refused_without_repeating_it() {
        for bad in [
            "mysql://root:hunter2@h/db",
            "hunter2",
            "",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:a.db?mode=rwc",
        ] {
            let refused = bad.parse::<DatabaseUrl>().unwrap_err();
            assert!(!refused.0.contains("hunter2"), "{refused}");
        }
    }
}
