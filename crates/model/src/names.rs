//! Names that are valid by construction.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Gives a text newtype its parser on every road: serde, `FromStr`, and back to text.
macro_rules! text_type {
    ($name:ident) => {
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::check(&text)?;
                Ok(Self(text))
            }
        }
        impl std::str::FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::try_from(text.to_owned())
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// The name of an AI key: 3 to 15 of `A-Z a-z 0-9 . _ ~ | -` and space.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 15, pattern = "^[A-Za-z0-9._~| -]+$", example = "ci-bot")]
pub struct KeyName(String);
text_type!(KeyName);

impl KeyName {
    fn check(text: &str) -> Result<(), Invalid> {
        if !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._~| -".contains(&b))
        {
            return Err("may only contain letters, digits, spaces and . _ ~ | -".into());
        }
        if !(3..=15).contains(&text.len()) {
            return Err("must be 3 to 15 characters long".into());
        }
        Ok(())
    }
}

/// The name of a project, which is also its host name: 3 to 50 of `a-z 0-9 -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 50, pattern = "^[a-z0-9][a-z0-9-]*[a-z0-9]$", example = "my-site")]
pub struct ProjectName(String);
text_type!(ProjectName);

/// Names that are, or may become, hosts or routes of our own.
const RESERVED: [&str; 6] = [
    "www",
    "api",
    "panel",
    "console",
    "update-envs",
    "update-port",
];

impl ProjectName {
    fn check(text: &str) -> Result<(), Invalid> {
        check_slug(text)?;
        if RESERVED.contains(&text) {
            return Err(format!("`{text}` is reserved; choose another name").into());
        }
        if text.starts_with("xn--") {
            return Err("must not start with `xn--`".into());
        }
        check_no_id(text)
    }
}

/// The name of a workspace made through the workspace routes: 3 to 50 of `a-z 0-9 -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 50, pattern = "^[a-z0-9][a-z0-9-]*[a-z0-9]$", example = "main")]
pub struct WorkspaceName(String);
text_type!(WorkspaceName);

impl WorkspaceName {
    fn check(text: &str) -> Result<(), Invalid> {
        check_slug(text)?;
        check_no_id(text)
    }
}

impl From<WorkspaceName> for WorkspaceLabel {
    fn from(name: WorkspaceName) -> Self {
        Self(name.0)
    }
}

/// The name of a workspace as a key request may give it: 1 to 50 printable characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 50, example = "main")]
pub struct WorkspaceLabel(String);
text_type!(WorkspaceLabel);

impl WorkspaceLabel {
    fn check(text: &str) -> Result<(), Invalid> {
        check_printable(text, 50)?;
        check_no_id(text)
    }
}

/// The name of a private network: 1 to 50 of `a-z 0-9 -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 50, pattern = "^[a-z0-9][a-z0-9-]*[a-z0-9]$", example = "default")]
pub struct NetworkName(String);
text_type!(NetworkName);

impl NetworkName {
    fn check(text: &str) -> Result<(), Invalid> {
        check_slug(text)?;
        check_no_id(text)
    }
}

/// A label for people: the name of a team, a token or an account's full name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 100)]
pub struct Label(String);
text_type!(Label);

impl Label {
    fn check(text: &str) -> Result<(), Invalid> {
        check_printable(text, 100)
    }
}

/// An e-mail address, kept in lower case so that one person has one account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 254, example = "ada@example.com")]
pub struct Email(String);

impl Email {
    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl TryFrom<String> for Email {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let halves = text
            .rsplit_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
        let clean = !text.chars().any(|c| c.is_whitespace() || c.is_control());
        if !halves || !clean || text.len() > 254 {
            return Err("must be an e-mail address".into());
        }
        Ok(Self(text.to_lowercase()))
    }
}
impl std::str::FromStr for Email {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::try_from(text.to_owned())
    }
}
impl From<Email> for String {
    fn from(email: Email) -> Self {
        email.0
    }
}
impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an environment variable: a letter or `_`, then letters, digits and `_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 128, pattern = "^[A-Za-z_][A-Za-z0-9_.-]*$", example = "DATABASE_URL")]
pub struct EnvKey(String);
text_type!(EnvKey);

impl EnvKey {
    fn check(text: &str) -> Result<(), Invalid> {
        let mut bytes = text.bytes();
        let starts = bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !starts
            || !bytes.all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            || text.len() > 128
        {
            return Err("must start with a letter or _ and hold only letters, digits, _ . and -, at most 128".into());
        }
        Ok(())
    }
}

fn check_slug(text: &str) -> Result<(), Invalid> {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    if !(3..=50).contains(&bytes.len()) {
        return Err("must be 3 to 50 characters long".into());
    }
    if !inside(bytes[0])
        || !inside(bytes[bytes.len() - 1])
        || !bytes.iter().all(|&b| inside(b) || b == b'-')
    {
        return Err(
            "may only contain a-z, 0-9 and -, and must start and end with a letter or digit".into(),
        );
    }
    Ok(())
}

/// Where a thing is asked for by name or id, one thing's name must not be another one's id.
fn check_no_id(text: &str) -> Result<(), Invalid> {
    match text.parse::<crate::Id<()>>() {
        Ok(_) => Err("must not look like an id (24 hexadecimal characters)".into()),
        Err(_) => Ok(()),
    }
}

fn check_printable(text: &str, most: usize) -> Result<(), Invalid> {
    if text.trim().is_empty() || text.chars().count() > most {
        return Err(format!("must be 1 to {most} characters long").into());
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_at_every_boundary() {
        for good in [
            "abc",
            "abcdefghijklmno",
            "a.b",
            "a_b",
            "a~b",
            "a|b",
            "a b",
            "a-b",
            "   ",
            "...",
        ] {
            assert!(good.parse::<KeyName>().is_ok(), "{good:?}");
        }
        for bad in [
            "",
            "ab",
            "abcdefghijklmnop",
            "abc\n",
            "ab\u{e9}",
            "a/b",
            "a,b",
            "a\0b",
            "a\tb",
            "a+b",
        ] {
            assert!(bad.parse::<KeyName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn project_names() {
        for good in ["abc", "a-b", "0a0", "my-site", "a--b", &"a".repeat(50)] {
            assert!(good.parse::<ProjectName>().is_ok(), "{good:?}");
        }
        let long = "a".repeat(51);
        for bad in [
            "ab",
            "-ab",
            "ab-",
            "Abc",
            "a_b",
            "www",
            "api",
            "update-envs",
            "xn--abc",
            "0123456789abcdef01234567",
            "abc\n",
            &long,
        ] {
            assert!(bad.parse::<ProjectName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_also_asked_for_by_id_is_not_named_like_one() {
        let id = "0123456789abcdef01234567";
        assert!(id.parse::<ProjectName>().is_err());
        assert!(id.parse::<WorkspaceName>().is_err());
        assert!(id.parse::<WorkspaceLabel>().is_err());
        assert!(id.parse::<NetworkName>().is_err());
        assert!(id[1..].parse::<WorkspaceLabel>().is_ok());
    }

    #[test]
    fn emails_are_lowered() {
        assert_eq!(
            "Ada@Example.COM".parse::<Email>().unwrap().as_str(),
            "ada@example.com"
        );
        for bad in ["", "ada", "@x", "x@", "a b@c", "a\0@c"] {
            assert!(bad.parse::<Email>().is_err(), "{bad:?}");
        }
    }
}
