//! Secrets of the configuration: readable on purpose only, masked when printed.

use super::text::{Invalid, serde_as_text};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use std::str::FromStr;

/// What stands in for a secret wherever a configuration is shown.
pub const MASK: &str = "***";

/// A secret that was written into the configuration itself.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The secret; every call is a place to look at twice.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl FromStr for Secret {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err("must not be empty".into());
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

serde_as_text!(Secret);

/// A URL that may hold a password. Prints itself without it.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// Takes a URL whose password can be found without guessing.
    ///
    /// A raw `@`, `/` or `?` inside a password makes different parsers cut the URL at
    /// different places. Masking would then show a part of it, so such a URL is refused.
    pub(super) fn new(url: &str) -> Result<Self, Invalid> {
        if url
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == '#')
        {
            return Err("the URL must not hold spaces or `#`; write them as %20 and %23".into());
        }
        let (authority, rest) = split_authority(url);
        if authority.matches('@').count() > 1 || rest.contains('@') {
            return Err(
                "the special characters of a user name or password must be percent-encoded \
                 (@ as %40, : as %3A, / as %2F, ? as %3F)"
                    .into(),
            );
        }
        Ok(Self(url.into()))
    }

    /// The URL with its password; every call is a place to look at twice.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked_url(self.expose()))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Splits a URL after its authority (`scheme://user:password@host:port`).
fn split_authority(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?'])
        .map_or(url.len(), |at| start + at);
    url.split_at(end)
}

/// The URL with its password, and every parameter that is named like a secret, masked.
fn masked_url(url: &str) -> String {
    let (authority, rest) = split_authority(url);
    let mut shown = match authority.rsplit_once('@') {
        Some((credentials, host)) => {
            let start = credentials.find("://").map_or(0, |at| at + 3);
            match credentials[start..].find(':') {
                Some(colon) => format!("{}:{MASK}@{host}", &credentials[..start + colon]),
                None => authority.to_owned(),
            }
        }
        None => authority.to_owned(),
    };
    let Some((path, query)) = rest.split_once('?') else {
        shown.push_str(rest);
        return shown;
    };
    let parameters: Vec<_> = query.split('&').map(masked_parameter).collect();
    shown.push_str(path);
    shown.push('?');
    shown.push_str(&parameters.join("&"));
    shown
}

/// `name=value`, without the value when the name says that it is a secret.
fn masked_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if is_secret_name(name) => format!("{name}={MASK}"),
        _ => parameter.to_owned(),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // A percent-encoded name is not worth decoding: nobody writes one in good faith.
    name.contains('%')
        || ["password", "secret", "token", "key"]
            .iter()
            .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        SecretUrl::new(url).unwrap().to_string()
    }

    #[test]
    fn only_the_password_is_masked() {
        assert_eq!(
            shown("postgres://u:pw@h:5432/db"),
            "postgres://u:***@h:5432/db"
        );
        assert_eq!(shown("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(shown("postgres://h:5432/db"), "postgres://h:5432/db");
        assert_eq!(shown("postgres://:pw@h"), "postgres://:***@h");
        assert_eq!(shown("s3://bucket/prefix"), "s3://bucket/prefix");
    }

    #[test]
    fn parameters_named_like_secrets_are_masked() {
        assert_eq!(
            shown("postgres:///db?host=/run/pg&password=pw&sslmode=require"),
            "postgres:///db?host=/run/pg&password=***&sslmode=require"
        );
        assert_eq!(
            shown("s3://b/p?region=eu&secret_access_key=pw"),
            "s3://b/p?region=eu&secret_access_key=***"
        );
        assert_eq!(
            shown("postgres://h/db?p%61ssword=pw"),
            "postgres://h/db?p%61ssword=***"
        );
    }

    #[test]
    fn a_url_that_cannot_be_masked_safely_is_refused_without_repeating_it() {
        for url in [
            "postgres://u:p@ss@h/db",
            "postgres://u:pa/ss@h/db",
            "postgres://u:pa?ss@h/db",
            "postgres://u:pa#ss@h/db",
            "postgres://u:pa ss@h/db",
        ] {
            let refused = SecretUrl::new(url).unwrap_err();
            assert!(!refused.0.contains("ss@h"), "{refused}");
        }
    }

    #[test]
    fn debug_says_nothing() {
        let secret: Secret = "sk-123".parse().unwrap();
        assert_eq!(format!("{secret:?} {secret}"), "*** ***");
        assert_eq!(secret.expose(), "sk-123");
        let url = SecretUrl::new("postgres://u:pw@h/db").unwrap();
        assert_eq!(format!("{url:?}"), "postgres://u:***@h/db");
    }
}
