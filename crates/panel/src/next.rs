//! Where to go after signing in: a page of the panel and nothing else.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Where people go who did not ask for a page.
pub const HOME: &str = "/panel";

/// What may stand in a query parameter as it is.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// Whether a browser that is sent there stays in the panel.
///
/// A browser reads `//host` and `/\host` as another host and skips control characters, so that `/<tab>/host` is
/// another host, too.
pub fn is_safe(path: &str) -> bool {
    let rest = path.strip_prefix(HOME);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        && path.len() <= 2048
        && !path.contains("//")
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// The path when it is safe, else the first page.
pub fn or_home(path: &str) -> &str {
    if is_safe(path) { path } else { HOME }
}

/// `{page}?next={path}`; without the parameter when the path is the first page or not safe.
pub fn link(page: &str, path: &str) -> String {
    match or_home(path) {
        HOME => page.to_owned(),
        path => format!("{page}?next={}", encode(path)),
    }
}

/// A text as the value of a query parameter.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, PARAMETER).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_panel_are_safe() {
        for good in [
            "/panel",
            "/panel/keys",
            "/panel?team=1",
            "/panel/keys/new?team=1&a=b#c",
        ] {
            assert!(is_safe(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "//evil.example",
            "/panelx",
            "/panel.evil.example",
            "/panel//evil.example",
            "/\\evil.example",
            "/panel\\..\\x",
            "https://evil.example/panel",
            "javascript:alert(1)",
            "/panel/\t/x",
            "/panel/\n",
            "/panel/a b",
            "\t/panel",
            "/panel/é",
        ] {
            assert!(!is_safe(bad), "{bad:?}");
        }
        assert!(!is_safe(&format!("/panel/{}", "a".repeat(3000))));
    }

    #[test]
    fn a_link_encodes_its_parameter() {
        assert_eq!(
            link("/panel/sign-in", "/panel/keys?team=1&a=b"),
            "/panel/sign-in?next=/panel/keys%3Fteam%3D1%26a%3Db"
        );
        assert_eq!(link("/panel/sign-in", "//x"), "/panel/sign-in");
    }
}
