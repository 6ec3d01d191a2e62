//! What comes bit by bit: logs of a server that restarts, answers and build logs that would steer a terminal.

use super::client_command;
use super::interrupted::{answer, release};
use super::scripted_server::{Reply, ScriptedServer};
use super::write_files;
use crate::support::{Home, Ran, Reaped};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

const ID: &str = "0123456789abcdef01234567";

fn run(command: &mut Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

/// A server that sends one line of a log and is gone; the head of the request.
fn serve_one_line(
    address: SocketAddr,
    number: u32,
) -> (SocketAddr, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let line = format!(
            "HTTP/1.1 200 OK\r\n\r\nid: {number}\ndata: {{\"time\":\"{number}000000000\",\"_entry\":\"line {number}\"}}\n\n"
        );
        stream.write_all(line.as_bytes()).unwrap();
        head
    });
    (address, served)
}

#[test]
fn following_logs_outlasts_a_restart_of_the_server() {
    let (address, first) = serve_one_line("127.0.0.1:0".parse().unwrap(), 1);
    let home = Home::new();
    let mut command = client_command(&home, &["logs", "--follow", "--project", "hello"]);
    command
        .env("ESTRADE_URL", format!("http://{address}"))
        .env("ESTRADE_TOKEN", "t");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    let mut child = Reaped(child.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "1970-01-01T00:00:01.000Z line 1");
    assert!(!first.join().unwrap().contains("last-event-id"));
    // Longer than one request is repeated for.
    std::thread::sleep(Duration::from_secs(5));
    let (_, second) = serve_one_line(address, 2);
    assert_eq!(next(), "1970-01-01T00:00:02.000Z line 2");
    let head = second.join().unwrap();
    assert!(head.contains("last-event-id: 1\r\n"), "{head}");
}

#[test]
fn a_response_that_breaks_off_is_asked_for_again() {
    let attempts = std::sync::atomic::AtomicU32::new(0);
    let server = ScriptedServer::start(move |_| {
        match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Reply::CutOff,
            _ => Reply::json(200, r#"{"projects":[]}"#),
        }
    });
    let home = Home::new();
    let mut command = client_command(&home, &["projects", "list"]);
    run(command
        .env("ESTRADE_URL", server.url())
        .env("ESTRADE_TOKEN", "t"))
    .assert(0)
    .assert_says("no projects yet");
}

#[test]
fn model_output_and_a_build_log_cannot_steer_the_terminal() {
    let delta = |text: &str| {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
        event.into_bytes()
    };
    let server = ScriptedServer::start(move |request| match request.line.as_str() {
        line if line.starts_with("POST /v1/chat/completions") => Reply::Pieces(vec![
            delta("a\\u001b"),
            delta("]0;own"),
            delta("ed\\u0007b\\u001b[3"),
            delta("1mc\\u009b"),
            b"data: [DONE]\n\n".to_vec(),
        ]),
        line if line.contains("/build-logs") && !line.contains("since=") => Reply::json(
            200,
            r#"{"release":{"state":"BUILDING"},"buildOutput":[{"line":"Step\u001b]0;owned\u0007 1\u001b[2J\n","createdAt":"2026-11-15T01:02:03.004Z"}]}"#,
        ),
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
        }
        line if line.starts_with("GET /v1/releases/") => release("READY"),
        _ => answer(request),
    });
    let home = Home::new();
    let ran = run(client_command(&home, &["chat", "Hello"])
        .env("ESTRADE_AI_URL", server.url())
        .env("ESTRADE_AI_KEY", "k"));
    assert_eq!(ran.assert(0).stdout, "abc\u{fffd}\n");
    write_files(home.path(), &[("site/index.html", "x")]);
    let mut deploy = client_command(&home, &["deploy", "site", "--project", "hello"]);
    let ran = run(deploy
        .env("ESTRADE_URL", server.url())
        .env("ESTRADE_TOKEN", "t"));
    ran.assert(0).assert_says("Step 1\n");
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn with_json_a_response_is_a_document_or_a_failure() {
    let server = ScriptedServer::start(|request| {
        if request.line.contains("/text") {
            return Reply::json(200, "plain text");
        }
        if request.line.contains("/missing") {
            return Reply::json(404, "<html>");
        }
        if request.line.contains("/empty") {
            return Reply::status(200);
        }
        Reply::Pieces(vec![b"{\"a\":".to_vec(), b"1}".to_vec()])
    });
    let home = Home::new();
    for (path, code, stdout) in [
        ("/document", 0, "{\"a\":1}\n"),
        ("/empty", 0, "null\n"),
        ("/text", 1, ""),
        ("/missing", 4, ""),
    ] {
        let mut command = client_command(&home, &["api", "GET", path, "--json"]);
        let ran = run(command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t"));
        assert_eq!(ran.assert(code).stdout, stdout, "{path}");
    }
}

#[test]
fn logs_are_asked_for_as_the_options_say() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("GET /v1/projects/hello/releases?") => Reply::json(
            200,
            &format!(
                r#"{{"currentRelease":null,"total":1,"releases":[{{"_id":"{ID}","type":"DEPLOY","state":"READY",
                "createdAt":"2026-11-15T01:02:03.004Z","tag":"v3","projectType":"node","port":80,"current":true}}]}}"#
            ),
        ),
        line if line.starts_with("GET /v2/projects/hello/logs?") => Reply::json(
            200,
            &format!(
                r#"{{"data":[{{"metaData":{{"releaseId":"{ID}"}},"values":[["2000000000","{{\"_entry\":\"two\"}}"],
                ["1000000000","{{\"_entry\":\"one\\u001b[2J\"}}"]]}}]}}"#
            ),
        ),
        _ => Reply::status(404),
    });
    let home = Home::new();
    let options = "logs -p hello --since 1970-01-01T00:01:00Z --search a&b --release v3 --lines 7";
    let logs = |more: &[&str]| {
        let args: Vec<_> = options.split(' ').chain(more.iter().copied()).collect();
        let mut command = client_command(&home, &args);
        run(command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t"))
    };
    assert_eq!(
        logs(&[]).assert(0).stdout,
        "1970-01-01T00:00:01.000Z one\n1970-01-01T00:00:02.000Z two\n"
    );
    let document: serde_json::Value = serde_json::from_str(&logs(&["--json"]).stdout).unwrap();
    assert_eq!(document["data"][0]["metaData"]["releaseId"], ID);
    let expected = format!(
        "GET /v2/projects/hello/logs?last_lines=7&start=60&search=a%26b&releaseId={ID} HTTP/1.1"
    );
    let requests = server.requests();
    assert!(
        requests.iter().any(|it| it.line == expected),
        "{requests:?}"
    );
}
