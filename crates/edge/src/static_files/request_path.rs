//! The path of a request, decoded and made canonical, the way nginx does it.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str};
use std::borrow::Cow;

/// What a decoded path may not contain as it is where it is written encoded again.
pub(crate) const UNSAFE_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path that stays inside the site: decoded, without `.`, `..`, empty segments and NUL.
///
/// It begins with `/`; it ends with `/` when the request asked for a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestPath<'r>(Cow<'r, str>);

/// A path that cannot mean a file of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadPath;

impl<'r> RequestPath<'r> {
    /// Reads the path of a request line. Most need neither decoding nor a copy.
    pub(crate) fn parse(raw: &'r str) -> Result<Self, BadPath> {
        if !raw.starts_with('/') {
            return Err(BadPath);
        }
        if is_plain(raw) {
            return Ok(Self(Cow::Borrowed(raw)));
        }
        let decoded = percent_decode_str(raw).decode_utf8().map_err(|_| BadPath)?;
        if decoded.contains(['\0', '\\']) {
            return Err(BadPath);
        }
        canonical(&decoded).map(|path| Self(Cow::Owned(path)))
    }

    /// The path, from the leading `/`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a file of the site would be named.
    pub(crate) fn file(&self) -> &str {
        self.0.trim_start_matches('/')
    }

    /// Whether a directory was asked for.
    pub(crate) fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Whether a segment is hidden: begins with a dot and is not `/.well-known`.
    pub(crate) fn is_hidden(&self) -> bool {
        let mut segments = self.file().split('/');
        let first = segments.next().unwrap_or_default();
        let hidden = |segment: &str| segment.starts_with('.');
        (hidden(first) && first != ".well-known") || segments.any(hidden)
    }
}

/// Nothing to decode, nothing to resolve.
fn is_plain(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let special = |pair: &[u8]| pair == b"//" || pair == b"/.";
    !bytes.iter().any(|b| matches!(b, b'%' | b'\\' | 0)) && !bytes.windows(2).any(special)
}

/// Resolves `.` and `..` and merges slashes; a path that climbs out of the site is bad.
fn canonical(decoded: &str) -> Result<String, BadPath> {
    let mut kept: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop().ok_or(BadPath)?;
            }
            name => kept.push(name),
        }
    }
    let directory = matches!(decoded.rsplit('/').next(), Some("" | "." | ".."));
    let mut path = String::with_capacity(decoded.len() + 1);
    for segment in &kept {
        path.push('/');
        path.push_str(segment);
    }
    if directory || path.is_empty() {
        path.push('/');
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Option<String> {
        RequestPath::parse(raw)
            .ok()
            .map(|path| path.as_str().to_owned())
    }

    #[test]
    fn paths_are_decoded_and_resolved() {
        for (raw, path) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a%20b", "/a b"),
            ("/%C3%A9.txt", "/é.txt"),
            ("//a///b/", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/%2e%2e/b", "/b"),
            ("/a%2Fb", "/a/b"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(read(raw).as_deref(), Some(path), "{raw}");
        }
    }

    #[test]
    fn what_leaves_the_site_or_cannot_be_a_name_is_bad() {
        for raw in [
            "",
            "a",
            "*",
            "/..",
            "/../a",
            "/a/../..",
            "/%2e%2e/",
            "/..%2f..%2fetc/passwd",
            "/%00",
            "/a%00b",
            "/a%5cb",
            "/%ff",
        ] {
            assert_eq!(read(raw), None, "{raw}");
        }
    }

    #[test]
    fn dot_files_are_hidden_except_well_known() {
        let hidden = |raw| RequestPath::parse(raw).unwrap().is_hidden();
        assert!(
            hidden("/.env")
                && hidden("/a/.git/config")
                && hidden("/%2egit/x")
                && hidden("/.well-known/.x")
        );
        assert!(!hidden("/.well-known/acme") && !hidden("/a.b") && !hidden("/"));
    }
}
