//! Custom host names of projects.

use crate::id::kind;
use crate::{Id, Invalid, ProjectId, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Identifies a custom domain.
pub type DomainId = Id<kind::Domain>;

/// Longest host name in its written form.
const MAX_BYTES: usize = 253;

/// A full host name in lower case, with at least two labels; names in other scripts in their ASCII
/// form (`xn--…`).
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 253, example = "www.example.com")]
pub struct HostName(String);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `domain` or a name below it.
    pub fn is_within(&self, domain: &str) -> bool {
        self.0
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl FromStr for HostName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.contains('*') {
            return Err("must be one host name; wildcards are not possible".into());
        }
        if text.ends_with('.') {
            return Err("must not end with a dot".into());
        }
        // Far above any valid name: the conversion is not cheap for long texts.
        let ascii = (text.len() <= 4 * MAX_BYTES)
            .then(|| idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::URL).ok())
            .flatten()
            .ok_or_else(malformed)?;
        if ascii.len() > MAX_BYTES || !ascii.split('.').all(is_label) {
            return Err(malformed());
        }
        // The last label of an IP address is a number, that of a name never is.
        let (_, last) = ascii.rsplit_once('.').ok_or_else(malformed)?;
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return Err("must be a host name, not an IP address".into());
        }
        Ok(Self(ascii.into_owned()))
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn malformed() -> Invalid {
    "must be a full host name, such as www.example.com".into()
}

impl TryFrom<String> for HostName {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}
impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}
impl std::borrow::Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a domain serves its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DomainStatus {
    /// Nobody has proved yet that it is theirs: it serves nothing.
    Pending,
    /// It serves its project.
    Active,
}

/// A custom domain.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: DomainId,
    /// The host name.
    pub name: String,
    /// Whether it serves its project.
    pub status: DomainStatus,
    /// The project that it serves.
    pub project: DomainProject,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it became `ACTIVE`.
    pub verified_at: Option<Timestamp>,
    /// When DNS was last asked.
    pub checked_at: Option<Timestamp>,
    /// What DNS lacked then.
    pub problem: Option<String>,
    /// Records that prove whose it is: one of them is enough. The CNAME also brings visitors here.
    pub records: Vec<DnsRecord>,
}

/// The project of a domain.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct DomainProject {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: ProjectId,
    /// Its name.
    pub project_id: String,
}

/// A DNS record to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct DnsRecord {
    /// Its type, `TXT` or `CNAME`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Where it stands.
    pub name: String,
    /// What it says.
    pub value: String,
}

/// `POST /v1/domains`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
pub struct CreateDomain {
    /// The host name; `domain` means the same.
    #[serde(alias = "domain")]
    pub name: HostName,
    /// The project that it shall serve, by name or `_id`.
    #[schema(example = "my-site")]
    pub project: String,
}

/// One domain.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct DomainBody {
    /// The domain.
    pub domain: Domain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_have_one_spelling() {
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        for (text, name) in [
            ("www.example.com", "www.example.com"),
            ("Example.COM", "example.com"),
            ("a-b.3com.xn--p1ai", "a-b.3com.xn--p1ai"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER。example", "xn--bcher-kva.example"),
            (&longest, &longest),
        ] {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_is_no_host_name_is_refused() {
        let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(62));
        for bad in [
            "",
            ".",
            "localhost",
            "a..b",
            ".a.b",
            "a.b.",
            "*.example.com",
            "127.0.0.1",
            "1.2.3.4.5",
            "[::1]",
            "::1",
            "a.com:80",
            "a b.com",
            "a_b.com",
            "-a.com",
            "a-.com",
            "http://a.com",
            "a.com/",
            "a\0.com",
            "xn--a.com",
            "é\u{301}\u{200d}.com",
            &long,
            &"a".repeat(10_000),
        ] {
            assert!(bad.parse::<HostName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_below_a_domain() {
        let name: HostName = "a.b.example.com".parse().unwrap();
        for (domain, within) in [
            ("a.b.example.com", true),
            ("example.com", true),
            ("com", true),
            ("xample.com", false),
            ("x.a.b.example.com", false),
        ] {
            assert_eq!(name.is_within(domain), within, "{domain}");
        }
    }
}
