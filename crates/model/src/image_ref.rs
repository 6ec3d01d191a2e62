//! Names of images, by the grammar of distribution/reference: what engines and registries take.
//!
//! Narrower in three points: digests are SHA-256, a port is one that can be connected to, and a registry is not an IPv6
//! address in brackets.

use crate::{Invalid, built_image};
use std::fmt;
use std::str::FromStr;

/// The name of an image: `nginx`, `ghcr.io/a/b:1.2`, `a/b@sha256:…`, or an image's id. It is checked, because
/// it becomes part of a path of the engine's API.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageRef(String);

impl ImageRef {
    /// The name as the engine takes it; a name without a tag means `latest`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of an image that an installation made, this one or another.
    pub fn is_built(&self) -> bool {
        built_image::is_built(&self.0)
    }

    /// The registry that it comes from; none: Docker Hub, or nowhere because it is an id.
    pub fn registry(&self) -> Option<&str> {
        let is_hub = built_image::without_registry(&self.0) != self.0;
        let (first, _) = self.0.split_once('/').filter(|_| !is_hub)?;
        is_named_registry(first).then_some(first)
    }

    /// For names that the installation or its engine made.
    pub fn trusted(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ImageRef {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid(format!("`{text}` is not the name of an image"));
        if text.len() > 400 {
            return Err("the name of the image is too long".into());
        }
        if is_digest(text) {
            return Ok(Self(text.to_owned()));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        // A colon after the last slash begins a tag; before it, a port.
        let slash = name.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match name[slash..].find(':') {
            Some(at) => (&name[..slash + at], Some(&name[slash + at + 1..])),
            None => (name, None),
        };
        let good = is_path(path) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        match (good, tag, digest) {
            (false, ..) => Err(refused()),
            (true, None, None) => Ok(Self(format!("{text}:latest"))),
            (true, ..) => Ok(Self(text.to_owned())),
        }
    }
}

fn is_path(path: &str) -> bool {
    let mut parts = path.split('/').peekable();
    let first = parts.peek().copied().unwrap_or_default();
    let has_more = path.contains('/');
    if has_more && is_named_registry(first) {
        parts.next();
        if !is_registry(first) {
            return false;
        }
    }
    parts.all(is_component)
}

/// Whether engines take the first part of a name for a registry.
fn is_named_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    let label = |label: &str| {
        let is_edge = |c: char| c.is_ascii_alphanumeric();
        label.starts_with(is_edge)
            && label.ends_with(is_edge)
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(label) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Lower-case letters and digits, with single dots, one or two underscores or any dashes between.
fn is_component(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends =
        bytes.first().is_some_and(|b| letter(*b)) && bytes.last().is_some_and(|b| letter(*b));
    let inner = bytes.split(|b| letter(*b)).all(|between| {
        matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|b| *b == b'-')
    });
    ends && inner
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_use() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, full) in [
            ("nginx", "nginx:latest"),
            ("node:22-slim", "node:22-slim"),
            ("localhost/app:1", "localhost/app:1"),
            (
                "registry.example:5000/team/app:v1.2_3",
                "registry.example:5000/team/app:v1.2_3",
            ),
            ("bitnami/redis", "bitnami/redis:latest"),
            ("ghcr.io/a/b-c/d__e.f:V1.2_x", "ghcr.io/a/b-c/d__e.f:V1.2_x"),
            ("localhost:5000/app", "localhost:5000/app:latest"),
            (
                "Registry.example.com:5000/app:1",
                "Registry.example.com:5000/app:1",
            ),
        ] {
            assert_eq!(text.parse::<ImageRef>().unwrap().as_str(), full);
        }
        for text in [format!("a/b@{digest}"), format!("a/b:1@{digest}"), digest] {
            assert_eq!(text.parse::<ImageRef>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_name_says_where_the_image_comes_from() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, registry) in [
            ("nginx", None),
            ("a/b:1", None),
            ("docker.io/a/b", None),
            ("localhost", None),
            ("localhost/a", Some("localhost")),
            ("ghcr.io/a/b", Some("ghcr.io")),
            ("docker.io/10.0.0.1/a", None),
            ("10.0.0.1:80/a", Some("10.0.0.1:80")),
            (&digest, None),
        ] {
            let name: ImageRef = text.parse().unwrap();
            assert_eq!(name.registry(), registry, "{text}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in [
            "",
            "/",
            "a//b",
            "../containers/json",
            "a/../b",
            "a/..",
            "Nginx",
            "a b",
            "a?x=1",
            "a#x",
            "a%2fb",
            "a:",
            "a:b:c",
            "a:-b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "host:port/a",
            "host:0/a",
            "-host.x/a",
            "host-.x/a",
            "ho_st.x:1/a",
            "a:b/c",
            "/a",
            "a/",
            "a\nRUN x",
            "a AS b",
            "$x",
            "a:$x",
            "a{version}",
            "a@md5:1",
            "a@sha256:12",
            "a@b",
            ":1",
            "@",
            "ä",
        ] {
            assert!(bad.parse::<ImageRef>().is_err(), "{bad}");
        }
        assert!("a".repeat(500).parse::<ImageRef>().is_err());
    }
}
