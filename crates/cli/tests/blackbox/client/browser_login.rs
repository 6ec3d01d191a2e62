//! `estrade login` without a token: against a server and its panel, and against servers that answer otherwise.

use super::client_command;
use super::scripted_server::{Reply, ScriptedServer};
use crate::support::{Home, Ran, Reaped, Server, TIMEOUT};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse battery";
const ME: &str = r#"{"user":{"email":"ada@example.com","fullname":"Ada"}}"#;
const TOKEN: &str = r#"{"_id":"0123456789abcdef01234567","api_token":"the-token","email":"ada@example.com","scope":"full",
    "expiresAt":"2027-02-15T01:02:03.004Z"}"#;

/// Begins a login, and waits until its code is shown; with what it said until then.
fn begin(mut command: Command) -> (Reaped, BufReader<std::process::ChildStderr>, String) {
    let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child: Child = streams.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("enter the code") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    (Reaped(child), stderr, said)
}

fn finish(mut child: Reaped, mut stderr: impl Read, said: String) -> Ran {
    let code = child.wait().code();
    let (mut stdout, mut stderr_text) = (String::new(), said);
    let pipe = child.0.stdout.take();
    pipe.unwrap().read_to_string(&mut stdout).unwrap();
    stderr.read_to_string(&mut stderr_text).unwrap();
    Ran {
        code,
        stdout,
        stderr: stderr_text,
    }
}

/// A person in a browser.
struct Browser<'s> {
    server: &'s Server,
    cookie: String,
}

impl<'s> Browser<'s> {
    async fn sign_in(server: &'s Server) -> Self {
        let mut browser = Self {
            server,
            cookie: String::new(),
        };
        let form = format!("email={ADA}&password={}", PASSWORD.replace(' ', "+"));
        let response = browser.send("/panel/sign-in", form).await;
        assert_eq!(response.status(), 303);
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        cookie
            .split(';')
            .next()
            .unwrap()
            .clone_into(&mut browser.cookie);
        browser
    }

    async fn send(&self, path: &str, form: String) -> reqwest::Response {
        let base = &self.server.platform;
        // Not the server's client: that one follows redirects.
        let client = reqwest::Client::builder();
        let client = client.redirect(reqwest::redirect::Policy::none());
        let request = client.build().unwrap().post(format!("{base}{path}"));
        request
            .header("origin", base)
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await
            .unwrap()
    }

    async fn answer(&self, code: &str, answer: &str) {
        let page = format!("{}/panel/device", self.server.platform);
        let page = self.server.client.get(page).header("cookie", &self.cookie);
        let page = page.send().await.unwrap().text().await.unwrap();
        let (_, rest) = page.split_once("data-csrf=\"").unwrap();
        let csrf = rest.split('"').next().unwrap();
        let form = format!("csrf={csrf}&code={code}&answer={answer}");
        assert_eq!(self.send("/panel/device", form).await.status(), 303);
    }
}

fn code_in(said: &str) -> String {
    let (_, rest) = said.split_once("enter the code ").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_approved_in_a_browser() {
    let home = Home::new();
    let server = Server::start(&home);
    let new = [
        "account",
        "create",
        "--email",
        ADA,
        "--fullname",
        "Ada",
        "--password-stdin",
    ];
    home.run_with_input(new, PASSWORD).assert(0);
    let browser = Browser::sign_in(&server).await;
    let url = server.platform.clone();

    let denied = client_command(&home, &["login", &url, "--no-browser"]);
    let (child, stderr, said) = begin(denied);
    browser.answer(&code_in(&said), "deny").await;
    let ran = finish(child, stderr, said);
    ran.assert(3).assert_says("it was denied in the panel");
    ran.assert_says(&format!("hint: `estrade login {url}` begins again"));

    let args = ["login", &url, "--scope", "read", "--quiet", "--json"];
    let (child, stderr, said) = begin(client_command(&home, &args));
    assert!(
        said.contains(&format!("Open {url}/panel/device and")),
        "{said}"
    );
    browser.answer(&code_in(&said), "approve").await;
    let ran = finish(child, stderr, said);
    let document: Value = serde_json::from_str(&ran.assert(0).stdout).unwrap();
    assert_eq!(document["email"], ADA);
    assert_eq!(
        ran.stderr.lines().count(),
        1,
        "no warning: it is the same host: {ran:?}"
    );

    let list = client_command(&home, &["tokens", "list", "--json"]).output();
    let list: Value = serde_json::from_slice(&list.unwrap().stdout).unwrap();
    let token = &list["tokens"][0];
    assert_eq!(
        (
            &token["scope"],
            token["name"].as_str().unwrap().starts_with("estrade login")
        ),
        (&json!("read"), true)
    );
    let stored = std::fs::read_to_string(home.path().join("xdg/estrade/contexts.json"));
    let stored: Value = serde_json::from_str(&stored.unwrap()).unwrap();
    let found = stored.to_string();
    assert!(
        !ran.stdout.contains("eyJ") && !ran.stderr.contains("eyJ"),
        "{ran:?}"
    );
    assert!(found.contains(ADA), "{found}");
    let me = server.platform(Method::GET, "/v1/me", Value::Null).await;
    assert_eq!(me.status, 200);
    server.stop();
}

fn started(lifetime: u64) -> String {
    json!({
        "device_code": "secret-device-code", "user_code": "WDJB-MJHT",
        "verification_uri": "https://cloud.example.com/panel/device",
        "verification_uri_complete": "https://cloud.example.com/panel/device?code=WDJB-MJHT",
        "expires_in": lifetime, "interval": 1,
    })
    .to_string()
}

fn refusal(status: u16, code: &str) -> Reply {
    let body = json!({"statusCode": status, "error": "x", "message": "no", "data": {"code": code}});
    Reply::json(status, &body.to_string())
}

/// A server that begins a login and answers polls by a script.
fn scripted(poll: impl Fn(u32) -> Reply + Send + Sync + 'static) -> ScriptedServer {
    let polls = AtomicU32::new(0);
    ScriptedServer::start(move |request| match request.line.as_str() {
        line if line.starts_with("POST /v1/device/code ") => Reply::json(200, &started(600)),
        line if line.starts_with("POST /v1/device/token ") => {
            poll(polls.fetch_add(1, Ordering::SeqCst))
        }
        line if line.starts_with("GET /v1/me ") => Reply::json(200, ME),
        _ => Reply::status(404),
    })
}

fn run_login(home: &Home, server: &ScriptedServer) -> Ran {
    let mut command = client_command(home, &["login", &server.url(), "--no-browser"]);
    Ran::of(&command.output().unwrap())
}

#[test]
fn a_server_that_is_away_for_a_moment_is_asked_again_and_gets_no_credential() {
    let server = scripted(|poll| match poll {
        0 => refusal(400, "authorization_pending"),
        1 => Reply::HangUp,
        _ => Reply::json(200, TOKEN),
    });
    let home = Home::new();
    let ran = run_login(&home, &server);
    ran.assert(0).assert_says("as ada@example.com");
    // Whoever approves there lets this server in.
    ran.assert_says("sends you to another host, cloud.example.com");
    assert!(!ran.stderr.contains("the-token") && !ran.stderr.contains("secret-device-code"));
    for request in server.requests() {
        let is_device = request.line.contains("/v1/device/");
        assert_eq!(
            request.header("authorization").is_empty(),
            is_device,
            "{request:?}"
        );
        assert_eq!(request.header("idempotency-key"), "", "{request:?}");
    }
}

#[test]
fn a_token_that_cannot_be_kept_is_revoked() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("POST /v1/device/code ") => Reply::json(200, &started(600)),
        line if line.starts_with("POST /v1/device/token ") => Reply::json(200, TOKEN),
        line if line.starts_with("DELETE ") => Reply::status(204),
        _ => refusal(404, "not_found"),
    });
    let ran = run_login(&Home::new(), &server);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    ran.assert_says("is revoked again");
    let revoked = "DELETE /v1/tokens/0123456789abcdef01234567 ";
    let requests = server.requests();
    let found = requests.iter().find(|it| it.line.starts_with(revoked));
    assert_eq!(
        found.unwrap().header("authorization"),
        "Bearer the-token",
        "{requests:?}"
    );
}

#[test]
fn a_login_that_nobody_approves_has_its_exit_code() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("POST /v1/device/code ") => Reply::json(200, &started(2)),
        _ => refusal(400, "authorization_pending"),
    });
    let ran = run_login(&Home::new(), &server);
    ran.assert(3)
        .assert_says("nobody approved it in time")
        .assert_says("hint: ");
    let expired = scripted(|_| refusal(400, "expired_token"));
    run_login(&Home::new(), &expired)
        .assert(3)
        .assert_says("the code has expired");
}

#[test]
fn an_older_server_has_another_way() {
    for status in [404, 401] {
        let server = ScriptedServer::start(move |_| refusal(status, "x"));
        let ran = run_login(&Home::new(), &server);
        ran.assert(3)
            .assert_says("has no login through a browser")
            .assert_says("--token -");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn what_would_steer_a_terminal_or_a_browser_is_refused() {
    for (field, value) in [
        ("user_code", "\u{1b}[2JWDJB"),
        ("user_code", "WDJB MJHT, then run rm"),
        ("verification_uri", "file:///etc/passwd"),
        ("verification_uri", "--help"),
        ("verification_uri", "javascript:alert(1)"),
    ] {
        let mut body: Value = serde_json::from_str(&started(600)).unwrap();
        body[field] = value.into();
        let body = body.to_string();
        let server = ScriptedServer::start(move |_| Reply::json(200, &body));
        let ran = run_login(&Home::new(), &server);
        ran.assert(1)
            .assert_says("does not answer like an Estrade server");
        assert!(
            !ran.stderr.contains('\u{1b}') && !ran.stderr.contains("passwd"),
            "{ran:?}"
        );
    }
}

#[test]
fn ctrl_c_ends_the_wait_and_leaves_nothing() {
    let server = scripted(|_| refusal(400, "authorization_pending"));
    let home = Home::new();
    let (child, stderr, said) = begin(client_command(&home, &["login", &server.url()]));
    let begun = Instant::now();
    while !server
        .requests()
        .iter()
        .any(|it| it.line.contains("/v1/device/token"))
    {
        assert!(begun.elapsed() < TIMEOUT, "it never asked");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.0.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let ran = finish(child, stderr, said);
    ran.assert(130).assert_says("given up");
    assert_eq!(ran.stdout, "");
    assert!(!home.path().join("xdg/estrade/contexts.json").exists());
}

#[test]
fn a_scope_is_one_of_those_that_there_are() {
    let home = Home::new();
    for args in [
        &["login", "http://127.0.0.1:1", "--scope", "everything"][..],
        &[
            "login",
            "http://127.0.0.1:1",
            "--scope",
            "read",
            "--token",
            "t",
        ],
        &[
            "login",
            "http://127.0.0.1:1",
            "--no-browser",
            "--token",
            "t",
        ],
    ] {
        Ran::of(&client_command(&home, args).output().unwrap()).assert(2);
    }
}
