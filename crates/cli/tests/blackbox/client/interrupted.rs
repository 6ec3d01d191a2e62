//! Deployments to a server that fails in the middle, and by a person who changes their mind.

use super::scripted_server::{Reply, Request, ScriptedServer};
use super::{client_command, write_files};
use crate::support::{Home, Ran, Reaped, TIMEOUT};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ID: &str = "0123456789abcdef01234567";
pub(super) const PROJECT: &str = r#"{"project":{"_id":"0123456789abcdef01234567","created_at":"2026-11-15T01:02:03.004Z","planID":"nano",
    "scale":1,"type":"static","status":"ACTIVE","project_id":"hello","url":"http://hello.test","isDeployed":false,
    "envs":[],"disks":[],"currentRelease":null}}"#;

pub(super) fn release(state: &str) -> Reply {
    let text = format!(
        r#"{{"release":{{"_id":"{ID}","type":"DEPLOY","state":"{state}","createdAt":"2026-11-15T01:02:03.004Z","tag":"v1",
        "projectType":"static","port":80,"message":null,"client":null,"finishedAt":null,"current":true,
        "failMessage":"the cause; what to do\nStep 4/9 : RUN npm ci"}}}}"#
    );
    Reply::json(200, &text)
}

pub(super) fn answer(request: &Request) -> Reply {
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

/// A deployment that is interrupted while it waits.
struct Interrupted<'s> {
    child: Reaped,
    server: &'s ScriptedServer,
}

impl<'s> Interrupted<'s> {
    /// Starts it and waits until it has sent a request with this line.
    fn start(home: &Home, server: &'s ScriptedServer, waits_for: &str) -> Self {
        Self::start_with(home, server, &[], waits_for)
    }

    /// The same with more arguments.
    fn start_with(home: &Home, server: &'s ScriptedServer, args: &[&str], waits_for: &str) -> Self {
        let mut command = deploy(home, server);
        let child = command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let started = Self {
            child: Reaped(child.unwrap()),
            server,
        };
        let begun = Instant::now();
        while !started.was_asked(waits_for) {
            assert!(begun.elapsed() < TIMEOUT, "no {waits_for}");
            std::thread::sleep(Duration::from_millis(5));
        }
        started
    }

    fn was_asked(&self, part: &str) -> bool {
        let requests = self.server.requests();
        requests.iter().any(|request| request.line.contains(part))
    }

    fn kill(&self, signal: &str) {
        let pid = self.child.0.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for its end; what it said.
    fn end(&mut self, code: i32) -> String {
        let status = self.child.wait();
        let mut said = String::new();
        let mut stderr = self.child.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(code), "{said}");
        said
    }
}

const CREATES: &str = "POST /v2/projects/hello/releases";

fn created() -> Reply {
    Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
}

#[test]
fn an_interrupted_deployment_cancels_its_release() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let server = ScriptedServer::start(|request| match request.line.as_str() {
            line if line.starts_with(CREATES) => created(),
            line if line.starts_with("GET /v1/releases/") => Reply::Silence,
            line if line.contains("/cancel") => Reply::status(200),
            _ => answer(request),
        });
        let home = Home::new();
        let mut deployment = Interrupted::start(&home, &server, "GET /v1/releases/");
        deployment.kill(signal);
        let said = deployment.end(code);
        assert!(said.contains(&format!("canceled release {ID}")), "{said}");
        assert!(deployment.was_asked(&format!("POST /v2/releases/{ID}/cancel")));
    }
}

/// The server makes the release whether or not somebody waits for its id.
#[test]
fn a_release_that_is_being_made_is_canceled_once_it_has_an_id() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with(CREATES) => {
            std::thread::sleep(Duration::from_secs(1));
            created()
        }
        line if line.contains("/cancel") => Reply::status(200),
        _ => answer(request),
    });
    let home = Home::new();
    let mut deployment = Interrupted::start(&home, &server, CREATES);
    deployment.kill("-INT");
    let said = deployment.end(130);
    assert!(said.contains(&format!("canceled release {ID}")), "{said}");
    assert!(deployment.was_asked(&format!("POST /v2/releases/{ID}/cancel")));
    assert!(!deployment.was_asked("GET /v1/releases/"));

    // Whoever does not want to wait for the answer either is told what that means.
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with(CREATES) => Reply::Silence,
        _ => answer(request),
    });
    let mut deployment = Interrupted::start(&home, &server, CREATES);
    deployment.kill("-INT");
    std::thread::sleep(Duration::from_millis(500));
    deployment.kill("-INT");
    let said = deployment.end(130);
    assert!(said.contains("may have been made all the same"), "{said}");
}

#[test]
fn an_id_is_not_printed_of_a_release_that_is_canceled() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with(CREATES) => {
            std::thread::sleep(Duration::from_secs(1));
            created()
        }
        line if line.contains("/cancel") => Reply::status(200),
        _ => answer(request),
    });
    let home = Home::new();
    let mut deployment = Interrupted::start_with(&home, &server, &["--detach"], CREATES);
    deployment.kill("-TERM");
    let said = deployment.end(143);
    assert!(said.contains(&format!("canceled release {ID}")), "{said}");
    let mut printed = String::new();
    let mut stdout = deployment.child.0.stdout.take().unwrap();
    stdout.read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
}

/// A failure of the server does not say that it made none.
#[test]
fn a_release_may_have_been_made_by_a_server_that_failed() {
    for (status, says) in [
        (500, "may have been made all the same"),
        (403, "no release was made"),
    ] {
        let server = ScriptedServer::start(move |request| match request.line.as_str() {
            line if line.starts_with(CREATES) => {
                std::thread::sleep(Duration::from_secs(1));
                Reply::status(status)
            }
            _ => answer(request),
        });
        let home = Home::new();
        let mut deployment = Interrupted::start(&home, &server, CREATES);
        deployment.kill("-INT");
        let said = deployment.end(130);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn an_interrupt_while_files_are_sent_leaves_no_release() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with(CREATES) => {
            let announced: Value = serde_json::from_str(&request.body).unwrap();
            let files = &announced["files"];
            let missing =
                format!(r#"{{"message":"m","data":{{"code":"missing_files","files":{files}}}}}"#);
            Reply::json(409, &missing)
        }
        line if line.starts_with("PUT ") => Reply::Silence,
        _ => answer(request),
    });
    let home = Home::new();
    let mut deployment = Interrupted::start(&home, &server, "PUT ");
    deployment.kill("-INT");
    let said = deployment.end(130);
    assert!(said.contains("no release was made"), "{said}");
    assert!(!said.contains("may have been made"), "{said}");
    assert!(!deployment.was_asked("/cancel"));
}

#[test]
fn a_release_is_canceled_by_its_id() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with(&format!("POST /v2/releases/{ID}/cancel ")) => Reply::status(200),
        _ => Reply::status(404),
    });
    let home = Home::new();
    for (format, stdout) in [
        (&[][..], String::new()),
        (
            &["--json"],
            format!("{{\n  \"canceled\": true,\n  \"release\": \"{ID}\"\n}}\n"),
        ),
    ] {
        let mut command = client_command(&home, &[&["releases", "cancel", ID], format].concat());
        command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t");
        let ran = Ran::of(&command.output().unwrap());
        assert_eq!(ran.assert(0).stdout, stdout);
        if stdout.is_empty() {
            ran.assert_says(&format!("release {ID} is canceled"));
        }
    }
}
