//! Where tokens go, what becomes of secrets that are told once, and what costs something each time.

use super::client_command;
use super::scripted_server::{Reply, Request, ScriptedServer};
use crate::support::{Home, Ran, Reaped};
use std::process::{Command, Stdio};

const ID: &str = "0123456789abcdef01234567";
const ME: &str = r#"{"user":{"email":"ada@example.com","fullname":"Ada"}}"#;

fn run(command: &mut Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

/// A server that somebody is logged in to as `stored`.
fn logged_in(home: &Home) -> ScriptedServer {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("GET /v1/me ") => Reply::json(200, ME),
        line if line.starts_with("GET /.well-known/estrade.json ") => Reply::json(
            200,
            r#"{"version":"1","ai":{"url":"http://127.0.0.1:1"},"limits":{}}"#,
        ),
        _ => Reply::status(404),
    });
    run(&mut client_command(
        home,
        &["login", &server.url(), "--token", "stored"],
    ))
    .assert(0);
    server
}

/// A command with a token of its own for this server, whose AI API it is, too.
fn command(home: &Home, server: &ScriptedServer, args: &[&str]) -> Command {
    let mut command = client_command(home, args);
    command
        .env("ESTRADE_URL", server.url())
        .env("ESTRADE_AI_URL", server.url())
        .env("ESTRADE_TOKEN", "t");
    command
}

fn carries(requests: &[Request], token: &str) -> bool {
    let expected = format!("Bearer {token}");
    requests
        .iter()
        .any(|request| request.header("authorization") == expected)
}

#[test]
fn a_token_for_another_server_does_not_go_to_the_current_context() {
    let home = Home::new();
    let server = logged_in(&home);
    // Whoever listens at the default address gets these; it is nobody's secret.
    let _ = run(&mut client_command(&home, &["login", "--token", "other"]));
    let _ = run(client_command(&home, &["projects", "list"]).env("ESTRADE_TOKEN", "other"));
    assert!(!carries(&server.requests(), "other"));
    assert!(carries(&server.requests(), "stored"));
}

#[test]
fn a_stored_token_does_not_go_where_a_variable_says() {
    let home = Home::new();
    let _server = logged_in(&home);
    let other = ScriptedServer::start(|_| Reply::json(200, "[]"));
    let address = other.url().replace("127.0.0.1", "localhost");
    for args in [&["keys", "list"][..], &["api", "GET", "/v1/keys", "--ai"]] {
        run(client_command(&home, args).env("ESTRADE_AI_URL", &address))
            .assert(2)
            .assert_says("which ESTRADE_AI_URL names");
    }
    assert!(other.requests().is_empty());
    let mut given = command(&home, &other, &["keys", "list"]);
    run(given.env("ESTRADE_AI_URL", &address)).assert(0);
    assert!(carries(&other.requests(), "t"));
}

#[test]
fn a_proxy_does_not_see_what_stays_on_this_machine() {
    let home = Home::new();
    let proxy = ScriptedServer::start(|_| Reply::status(404));
    let server = ScriptedServer::start(|_| Reply::json(200, r#"{"projects":[]}"#));
    let mut command = command(&home, &server, &["projects", "list"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, proxy.url());
    }
    run(command.env_remove("NO_PROXY").env_remove("no_proxy")).assert(0);
    assert!(proxy.requests().is_empty());
}

#[test]
fn a_secret_that_was_lost_on_its_way_is_a_failure() {
    let rotate = ["keys", "rotate", ID];
    for (args, says) in [
        (&rotate[..], "keys rotate"),
        (&["tokens", "create", "ci"], "tokens revoke ID"),
        (&["teams", "invite", ID, "a@b.example"], "invite them again"),
    ] {
        for format in [&[][..], &["--json"]] {
            let attempts = std::sync::atomic::AtomicU32::new(0);
            let server = ScriptedServer::start(move |_| {
                match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                    0 => Reply::HangUp,
                    _ => Reply::json(200, &format!(r#"{{"_id":"{ID}"}}"#)),
                }
            });
            let args = [args, format].concat();
            let ran = run(&mut command(&Home::new(), &server, &args));
            assert_eq!(ran.assert(1).assert_says(says).stdout, "", "{args:?}");
        }
    }
}

/// Where a key is sent, by what says so.
#[test]
fn an_ai_key_goes_where_its_environment_says() {
    let ask = ["chat", "Hello"];
    let chat = |home: &Home, args: &[&str]| {
        let mut command = client_command(home, args);
        command.env("ESTRADE_AI_KEY", "k");
        command
    };
    let models = ScriptedServer::start(|_| Reply::json(200, "data: [DONE]\n\n"));
    let known = format!(
        r#"{{"version":"1","ai":{{"url":"{}"}},"limits":{{}}}}"#,
        models.url()
    );
    let platform = ScriptedServer::start(move |request| match request.line.as_str() {
        line if line.starts_with("GET /v1/me ") => Reply::json(200, ME),
        line if line.starts_with("GET /.well-known/estrade.json ") => Reply::json(200, &known),
        _ => Reply::status(404),
    });
    // Nobody is logged in.
    let home = Home::new();
    run(chat(&home, &ask).env("ESTRADE_AI_URL", models.url())).assert(0);
    run(chat(&home, &ask).env("ESTRADE_URL", platform.url())).assert(0);
    assert_eq!(models.requests().len(), 2);
    let login = [
        "login",
        &platform.url(),
        "--token",
        "stored",
        "--name",
        "prod",
    ];
    run(&mut client_command(&home, &login)).assert(0);
    run(&mut chat(&home, &ask))
        .assert(2)
        .assert_says("add --context prod");
    // A file that cannot be read is no reason to send it elsewhere.
    let file = home.path().join("xdg/estrade/contexts.json");
    let contexts = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    run(&mut chat(&home, &ask))
        .assert(2)
        .assert_says("contexts.json cannot be read");
    std::fs::write(&file, contexts).unwrap();
    assert_eq!(models.requests().len(), 2);
    run(&mut chat(&home, &["chat", "Hello", "--context", "prod"])).assert(0);
    run(&mut chat(
        &home,
        &["chat", "Hello", "--url", &platform.url()],
    ))
    .assert(0);
    assert_eq!(models.requests().len(), 4);
    assert!(carries(&models.requests(), "k") && !carries(&models.requests(), "stored"));
    assert!(!carries(&platform.requests(), "k"));
}

#[test]
fn a_model_is_asked_once() {
    let server = ScriptedServer::start(|_| Reply::status(502));
    for format in [&[][..], &["--json"]] {
        let before = server.requests().len();
        let args = [&["chat", "Hello"][..], format].concat();
        let home = Home::new();
        run(command(&home, &server, &args).env("ESTRADE_AI_KEY", "k")).assert(6);
        assert_eq!(server.requests().len(), before + 1);
    }
}

#[test]
fn following_logs_ends_when_nobody_reads_them() {
    let line = "data: {\"time\":\"1000000000\",\"_entry\":\"hello\"}\n\n";
    let server = ScriptedServer::start(move |_| Reply::json(200, line));
    let home = Home::new();
    let mut command = command(&home, &server, &["logs", "--follow", "--project", "hello"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = Reaped(child.unwrap());
    drop(child.0.stdout.take());
    assert_eq!(child.wait().code(), Some(0));
}
