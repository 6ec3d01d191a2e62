//! A browser without scripts on the account panel: it keeps cookies and sends forms.

use crate::api_response::ApiResponse;
use crate::user::User;
use http::{Method, header};
use std::collections::BTreeMap;

/// Somebody at the panel, signed in or not.
#[derive(Clone)]
pub struct PanelClient {
    user: User,
    origin: String,
    cookies: BTreeMap<String, String>,
}

impl PanelClient {
    pub(crate) fn new(user: User, origin: String) -> Self {
        Self {
            user,
            origin,
            cookies: BTreeMap::new(),
        }
    }

    /// The address of the panel, without a slash at its end.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The cookies of the browser.
    pub fn cookies(&self) -> &BTreeMap<String, String> {
        &self.cookies
    }

    /// The value of the `Cookie` header.
    pub fn cookie_header(&self) -> String {
        let pairs = self.cookies.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("; ")
    }

    /// Signs in, and demands that it works.
    pub async fn sign_in(&mut self, email: &str, password: &str) {
        let form = [("email", email), ("password", password)];
        let response = self.send("/panel/sign-in", &form).await.assert(303);
        assert_eq!(response.header("location"), "/panel");
    }

    pub async fn get(&mut self, path: &str) -> ApiResponse {
        let call = self.user.call(Method::GET, path);
        let call = call.header("cookie", &self.cookie_header());
        let call = call.header("sec-fetch-site", "same-origin");
        let response = call.await;
        self.keep_cookies(&response);
        response
    }

    /// The token that forms carry, from a page that every person may see.
    pub async fn csrf(&mut self) -> String {
        let page = self.get("/panel/account").await.assert(200).text();
        let (_, rest) = page
            .split_once("data-csrf=\"")
            .expect("a page with a token");
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    /// `POST` of a form as a page of the panel sends it, with its token.
    pub async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> ApiResponse {
        let csrf = self.csrf().await;
        let mut form = form.to_vec();
        form.push(("csrf", &csrf));
        self.send(path, &form).await
    }

    /// `POST` of these fields and no other.
    pub async fn send(&mut self, path: &str, form: &[(&str, &str)]) -> ApiResponse {
        let call = self.user.call(Method::POST, path);
        let response = call
            .header("cookie", &self.cookie_header())
            .header("origin", &self.origin)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded")
            .bytes(encode(form))
            .await;
        self.keep_cookies(&response);
        response
    }

    fn keep_cookies(&mut self, response: &ApiResponse) {
        for line in response.headers().get_all(header::SET_COOKIE) {
            let line = line.to_str().expect("a printable cookie");
            let pair = line.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie with a value");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

/// A form as browsers send it.
fn encode(form: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}
