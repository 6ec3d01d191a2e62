//! Deployments to a server that fails in the middle, and by a person who changes their mind.

use super::scripted_server::{Reply, Request, ScriptedServer};
use super::{client_command, write_files};
use crate::support::{Home, Ran, Reaped, TIMEOUT};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const ID: &str = "0123456789abcdef01234567";
const PROJECT: &str = r#"{"project":{"_id":"0123456789abcdef01234567","created_at":"2026-11-15T01:02:03.004Z","planID":"nano",
    "scale":1,"type":"static","status":"ACTIVE","project_id":"hello","url":"http://hello.test","isDeployed":false,
    "envs":[],"disks":[],"currentRelease":null}}"#;

fn release(state: &str) -> Reply {
    let text = format!(
        r#"{{"release":{{"_id":"{ID}","type":"DEPLOY","state":"{state}","createdAt":"2026-11-15T01:02:03.004Z","tag":"v1",
        "projectType":"static","port":80,"message":null,"client":null,"finishedAt":null,"current":true,
        "failMessage":"the cause; what to do\nStep 4/9 : RUN npm ci"}}}}"#
    );
    Reply::json(200, &text)
}

fn answer(request: &Request) -> Reply {
    match request.line.as_str() {
        line if line.starts_with("GET /v1/projects/hello ") => Reply::json(200, PROJECT),
        line if line.contains("/build-logs") => {
            Reply::json(200, r#"{"release":{"state":"BUILDING"},"buildOutput":[]}"#)
        }
        _ => Reply::status(404),
    }
}

fn deploy(home: &Home, server: &ScriptedServer) -> Command {
    write_files(home.path(), &[("site/index.html", "<h1>Hello</h1>")]);
    let mut command = client_command(home, &["deploy", "site", "--project", "hello"]);
    command
        .env("ESTRADE_URL", server.url())
        .env("ESTRADE_TOKEN", "t");
    command
}

#[test]
fn a_lost_response_does_not_make_a_second_release() {
    let attempts = AtomicU32::new(0);
    let server = ScriptedServer::start(move |request| match request.line.as_str() {
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            match attempts.fetch_add(1, Ordering::SeqCst) {
                0 => Reply::HangUp,
                1 => Reply::status(503),
                _ => Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#)),
            }
        }
        line if line.starts_with("GET /v1/releases/") => release("READY"),
        _ => answer(request),
    });
    let home = Home::new();
    let ran = Ran::of(&deploy(&home, &server).output().unwrap());
    assert_eq!(ran.assert(0).stdout, "http://hello.test\n");
    let posts: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|it| it.line.starts_with("POST"))
        .collect();
    let keys: Vec<_> = posts
        .iter()
        .map(|it| it.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 3);
    assert!(
        !keys[0].is_empty() && keys.iter().all(|key| *key == keys[0]),
        "{keys:?}"
    );
}

#[test]
fn a_release_that_fails_says_why_and_has_its_code() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
        }
        line if line.starts_with("GET /v1/releases/") => release("FAILED"),
        _ => answer(request),
    });
    let ran = Ran::of(&deploy(&Home::new(), &server).output().unwrap());
    assert_eq!(ran.assert(7).stdout, "");
    // The sentence is the error; where it happened follows.
    ran.assert_says(
        "error: release v1 ended as FAILED: the cause; what to do\nStep 4/9 : RUN npm ci\nhint: ",
    );
}

#[test]
fn an_interrupted_deployment_cancels_its_release() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
        }
        line if line.starts_with("GET /v1/releases/") => Reply::Silence,
        line if line.contains("/cancel") => Reply::status(200),
        _ => answer(request),
    });
    let home = Home::new();
    let mut command = deploy(&home, &server);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Reaped(child);
    let has = |part: &str| {
        server
            .requests()
            .iter()
            .any(|request| request.line.contains(part))
    };
    let begun = Instant::now();
    while !has("GET /v1/releases/") {
        assert!(begun.elapsed() < TIMEOUT, "it never waited for the release");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.0.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().code(), Some(130));
    assert!(
        has(&format!("POST /v2/releases/{ID}/cancel")),
        "{:?}",
        server.requests()
    );
}
