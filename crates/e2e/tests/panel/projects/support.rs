//! A person at the panel, and steps that many tests take.

use estrade_testkit::{ApiResponse, Call, TestApp, User};
use http::Method;
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery staple";

/// Somebody who is signed in, perhaps in a team. Every page is looked at for what none may have.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) user: User,
    cookie: String,
    csrf: String,
    team: Option<String>,
}

impl Person {
    /// A new account that signs in.
    pub(crate) async fn sign_in(app: &TestApp, name: &str) -> Self {
        let user = app.new_account_with(name, PASSWORD).await;
        let mut client = app.panel();
        client.sign_in(&user.email, PASSWORD).await;
        Self {
            user,
            csrf: client.csrf().await,
            cookie: client.cookie_header(),
            team: None,
        }
    }

    /// The same person, looking at a team's things.
    pub(crate) fn in_team(&self, team: &str) -> Self {
        Self {
            user: self.user.in_team(team),
            team: Some(team.to_owned()),
            ..self.clone()
        }
    }

    fn call(&self, method: Method, path: &str) -> Call {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = match &self.team {
            Some(team) => format!("{path}{mark}team={team}"),
            None => path.to_owned(),
        };
        let call = self.user.call(method, &path).anonymous();
        call.header("cookie", &self.cookie)
            .header("sec-fetch-site", "same-origin")
    }

    /// A request of a script of ours.
    pub(crate) fn script(&self, method: Method, path: &str) -> Call {
        self.call(method, path).header("x-csrf-token", &self.csrf)
    }

    /// A request without a token.
    pub(crate) fn unsigned(&self, method: Method, path: &str) -> Call {
        self.call(method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        let page = self.call(Method::GET, path).await;
        if page.has_header("content-type") && page.header("content-type").starts_with("text/html") {
            check_markup(path, &page.text());
        }
        page
    }

    /// Sends a form with its token.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> ApiResponse {
        let mut signed = vec![("csrf", self.csrf.as_str())];
        signed.extend(fields);
        urlencoded(self.call(Method::POST, path), &signed).await
    }

    /// Sends a form with a file.
    pub(crate) async fn upload(&self, path: &str, message: &str, file: &[u8]) -> ApiResponse {
        let body = multipart(&[
            ("csrf", self.csrf.as_bytes()),
            ("message", message.as_bytes()),
            ("file", file),
        ]);
        let call = self.call(Method::POST, path);
        call.header("content-type", "multipart/form-data; boundary=xyz")
            .bytes(body)
            .await
    }
}

/// The body of a form with these parts.
pub(crate) fn multipart(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend(
            format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes(),
        );
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--xyz--\r\n");
    body
}

fn urlencoded(call: Call, fields: &[(&str, &str)]) -> Call {
    let encode = |text: &str| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let pairs: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    call.header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .bytes(pairs.join("&"))
}

/// What stands between two texts, the first time.
#[track_caller]
pub(crate) fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before} in {text}"));
    rest.split_once(after).unwrap().0
}

/// No page has inline script or style, nor anything of another host.
fn check_markup(path: &str, page: &str) {
    for forbidden in [
        "<script>",
        "<img",
        " style=\"",
        "href=\"javascript:",
        "src=\"http",
    ] {
        assert!(!page.contains(forbidden), "{path}: {forbidden} in {page}");
    }
}

/// Makes a project through the API.
pub(crate) async fn new_project(user: &User, name: &str, platform: &str) -> String {
    let new = json!({"name": name, "platform": platform, "planID": "nano"});
    let made = user.post("/v1/projects", &new).await.assert(200);
    made.field("/projectID")
}

/// Makes a release with one page through the API and waits until it is live; returns its id.
pub(crate) async fn deploy(user: &User, project: &str, more: &Value) -> String {
    let mut body = json!({"files": [{"path": "index.html", "data": "<h1>Hello</h1>"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let path = format!("/v2/projects/{project}/releases");
    let id = user
        .post(&path, &body)
        .await
        .assert(201)
        .field("/releaseID");
    wait_ready(user, &id).await;
    id
}

/// Waits until a release is live.
pub(crate) async fn wait_ready(user: &User, release: &str) {
    let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
    let read = user.get(&path).await.assert(200);
    assert_eq!(read.field("/release/state"), "READY");
}
