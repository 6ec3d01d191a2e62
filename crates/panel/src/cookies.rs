//! Cookies of the panel: host-only, and read strictly.
//!
//! A deployed site on a sibling host can set a cookie for the whole domain, which the browser then sends beside ours.
//! So two cookies of one name are refused, and under TLS the names begin with `__Host-`, which such a site cannot set.

use axum::http::{HeaderMap, HeaderValue, header};
use estrade_service::Core;

/// A cookie of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cookie {
    /// The secret of a session.
    Session,
    /// What is said after a redirect.
    Flash,
}

/// Whether browsers reach the panel over TLS.
pub fn is_secure(core: &Core) -> bool {
    core.settings.public_url.starts_with("https://")
}

impl Cookie {
    /// Its name on the wire.
    pub fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, false) => "estrade_session",
            (Self::Session, true) => "__Host-estrade_session",
            (Self::Flash, false) => "estrade_flash",
            (Self::Flash, true) => "__Host-estrade_flash",
        }
    }

    /// Its value in a request; none when there are two.
    pub fn read(self, headers: &HeaderMap, secure: bool) -> Option<&str> {
        let name = self.name(secure);
        let lines = headers.get_all(header::COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';'));
        let mut values = pairs.filter_map(|pair| {
            let (key, value) = pair.trim().split_once('=')?;
            (key == name).then_some(value)
        });
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        Some(value).filter(|value| !value.is_empty())
    }

    /// `Set-Cookie` until the browser ends, or for `max_age` seconds.
    pub fn set(self, value: &str, secure: bool, max_age: Option<u64>) -> Option<HeaderValue> {
        let mut text = format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Lax",
            self.name(secure)
        );
        if secure {
            text.push_str("; Secure");
        }
        if let Some(seconds) = max_age {
            text.push_str("; Max-Age=");
            text.push_str(&seconds.to_string());
        }
        HeaderValue::try_from(text).ok()
    }

    /// `Set-Cookie` that removes it.
    pub fn remove(self, secure: bool) -> Option<HeaderValue> {
        self.set("", secure, Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&'static str], secure: bool) -> Option<String> {
        let line = |text: &&'static str| (header::COOKIE, HeaderValue::from_static(text));
        let headers: HeaderMap = lines.iter().map(line).collect();
        Cookie::Session.read(&headers, secure).map(str::to_owned)
    }

    #[test]
    fn one_cookie_of_the_name_counts_and_two_do_not() {
        assert_eq!(
            read(&["a=b; estrade_session=x"], false).as_deref(),
            Some("x")
        );
        assert_eq!(read(&["estrade_session=x; estrade_session=y"], false), None);
        assert_eq!(
            read(&["estrade_session=x", "estrade_session=x"], false),
            None
        );
        assert_eq!(read(&["estrade_session="], false), None);
        assert_eq!(read(&["estrade_session=x"], true), None);
        assert_eq!(
            read(&["__Host-estrade_session=x"], true).as_deref(),
            Some("x")
        );
    }

    #[test]
    fn a_cookie_is_host_only_and_secure_under_tls() {
        let plain = Cookie::Session.set("x", false, None).unwrap();
        assert_eq!(plain, "estrade_session=x; Path=/; HttpOnly; SameSite=Lax");
        let secure = Cookie::Session.set("x", true, Some(9)).unwrap();
        assert_eq!(
            secure,
            "__Host-estrade_session=x; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=9"
        );
    }
}
