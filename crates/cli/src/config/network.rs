//! Host names.

use super::text::{Invalid, serde_as_text};
use std::fmt;
use std::str::FromStr;

/// A host name in lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A last label of digits would make it an IP address, which has no sub-domains.
        let numeric = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
        let valid = text.len() <= 253
            && text.split('.').all(label)
            && text.rsplit('.').next().is_some_and(|last| !numeric(last));
        if !valid {
            return Err(Invalid(format!(
                "`{text}` is not a domain name, such as apps.example.com"
            )));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(DomainName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_names_have_labels() {
        let shown = |text: &str| text.parse::<DomainName>().map(|name| name.to_string());
        assert_eq!(shown("Apps.Example.COM").unwrap(), "apps.example.com");
        assert_eq!(shown("localhost").unwrap(), "localhost");
        for bad in [
            "",
            ".",
            "a..b",
            "-a.com",
            "a-.com",
            "127.0.0.1",
            "a.com:80",
            "*.a.com",
            "é.fr",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
