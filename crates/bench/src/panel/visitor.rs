//! Somebody who is signed in to the panel.

use super::MAX_PAGE;
use crate::http::{self, Connection, Response};
use crate::installation::{Running, Site};
use crate::load::Traffic;
use crate::suite::Bench;
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::net::SocketAddr;

const EMAIL: &str = "admin@localhost";
const PASSWORD: &str = "correct horse battery staple";

/// A session of the administrator.
pub(super) struct Visitor {
    address: SocketAddr,
    cookies: Vec<(String, String)>,
}

impl Visitor {
    /// Signs in with the form.
    pub(super) fn sign_in(
        bench: &Bench<'_>,
        site: &Site,
        server: &Running,
    ) -> anyhow::Result<Self> {
        site.set_password(bench, EMAIL, PASSWORD)?;
        let mut visitor = Self {
            address: server.platform,
            cookies: Vec::new(),
        };
        let form = visitor.get("/panel/sign-in")?;
        visitor.keep_cookies(&form);
        let mut body = format!("email={}&password={}", encoded(EMAIL), encoded(PASSWORD));
        if let Some(csrf) = field(&text(&form), "csrf") {
            let _ = write!(body, "&csrf={}", encoded(&csrf));
        }
        let signed_in = visitor.post("/panel/sign-in", &body)?;
        let status = signed_in.status;
        ensure!(status == 303, "signing in: {status} {}", text(&signed_in));
        visitor.keep_cookies(&signed_in);
        Ok(visitor)
    }

    /// Opens a page.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Response> {
        http::send(self.address, &self.request(path))
    }

    /// The requests of somebody who opens a page again and again.
    pub(super) fn visits(&self, path: &str) -> Visits {
        Visits(self.request(path))
    }

    fn request(&self, path: &str) -> String {
        let mut text = self.head("GET", path);
        text.push_str("\r\n");
        text
    }

    fn post(&self, path: &str, body: &str) -> anyhow::Result<Response> {
        let mut text = self.head("POST", path);
        let length = body.len();
        let _ = write!(
            text,
            "origin: http://{}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {length}\r\n\r\n{body}",
            self.address
        );
        Connection::open(self.address)?.exchange(&text)
    }

    fn head(&self, method: &str, path: &str) -> String {
        let pair = |(name, value): &(String, String)| format!("{name}={value}");
        let cookies: Vec<String> = self.cookies.iter().map(pair).collect();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\n",
            self.address,
            cookies.join("; ")
        )
    }

    fn keep_cookies(&mut self, response: &Response) {
        for cookie in response.headers("set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.retain(|(own, _)| own != name);
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}

/// One page, again and again; it must be 200.
pub(super) struct Visits(String);

impl Traffic for Visits {
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.0.as_bytes());
        true
    }

    fn largest(&self) -> usize {
        MAX_PAGE
    }

    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        ensure!(status == 200, "status {status} instead of 200");
        ensure!(
            body.ends_with(b"</html>") || body.ends_with(b"</html>\n"),
            "half a page"
        );
        Ok(())
    }
}

/// The body as text.
pub(super) fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// The value of the first hidden field of a name.
fn field(page: &str, name: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\""))?;
    Some(rest.split('"').next()?.to_owned())
}

/// The first link that begins so and has this in it.
pub(super) fn link(page: &str, start: &str, part: &str) -> anyhow::Result<String> {
    let hrefs = page.split("href=\"").skip(1);
    let mut hrefs = hrefs.filter_map(|rest| rest.split('"').next());
    let found = hrefs.find(|href| href.starts_with(start) && href.contains(part));
    let found = found.with_context(|| format!("no link to {start}…{part}…"))?;
    Ok(found.replace("&amp;", "&").replace("&#38;", "&"))
}

fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_links_are_read() {
        let page = r#"<input type="hidden" name="csrf" value="abc"><a href="/panel/keys?before=k&amp;x=1">"#;
        assert_eq!(field(page, "csrf").as_deref(), Some("abc"));
        assert_eq!(field(page, "other"), None);
        let found = link(page, "/panel/keys", "before=").unwrap();
        assert_eq!(found, "/panel/keys?before=k&x=1");
        assert!(link(page, "/panel/usage", "").is_err());
        assert_eq!(encoded("a b@c"), "a%20b%40c");
    }
}
