//! What commands print, for scripts that read it.

use crate::support::{ADMIN, Home, Reaped, Server, serve_args, time_until};
use reqwest::Method;
use serde_json::Value;
use std::io::Read;
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn token_create_prints_the_token_and_nothing_else() {
    let home = Home::new();
    Server::start(&home).stop();
    let made = home.run(["token", "create", "--account", ADMIN, "--name", "script"]);
    let line = made.assert(0).stdout.strip_suffix('\n').unwrap();
    let parts: Vec<_> = line.split('.').collect();
    let is_base64url = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    assert!(
        parts.len() == 3 && parts.iter().all(|part| part.chars().all(is_base64url)),
        "{made:?}"
    );
    assert_eq!(made.stderr, "");
    let unknown = home.run(["token", "create", "--account", "nobody@example.com"]);
    assert_eq!(unknown.assert(1).stdout, "");
    assert!(unknown.stderr.starts_with("error: "), "{unknown:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    Server::start(&home).stop();
    for args in [
        &["token", "create", "--account", ADMIN][..],
        &["token", "list", "--account", ADMIN],
        &["account", "list"],
        &["openapi", "platform"],
        &["config", "--reference"],
        &["--help"],
    ] {
        let mut command = home.command(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Reaped(child.spawn().unwrap());
        drop(child.0.stdout.take());
        let mut talk = String::new();
        let stderr = child.0.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut talk).unwrap();
        assert_eq!(child.wait().code(), Some(0), "{args:?}: {talk}");
        assert_eq!(talk, "", "{args:?}");
    }
}

#[tokio::test]
async fn a_server_goes_on_when_nobody_reads_its_output() {
    let home = Home::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut args: [&str; 7] = serve_args();
    args[2] = &address;
    let mut command = home.command(args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Reaped(child.spawn().unwrap());
    drop((child.0.stdout.take(), child.0.stderr.take()));
    let ask = async || match reqwest::get(format!("http://{address}/readyz")).await {
        Ok(response) => response.status().as_u16(),
        Err(_) => 0,
    };
    time_until(200, ask).await;
    assert!(child.0.try_wait().unwrap().is_none(), "it ended");
}

#[tokio::test]
async fn the_printed_documents_are_the_ones_that_are_served() {
    let home = Home::new();
    let server = Server::start(&home);
    for (api, base) in [("platform", &server.platform), ("ai", &server.ai)] {
        let printed = home.run(["openapi", api]);
        let printed: Value = serde_json::from_str(&printed.assert(0).stdout).unwrap();
        let response = server
            .ask(base, "", Method::GET, "/openapi.json", Value::Null)
            .await
            .unwrap();
        assert_eq!(printed, response.assert(200).json(), "{api}");
        assert!(printed["openapi"].as_str().unwrap().starts_with("3.1"));
    }
    server.stop();
}
