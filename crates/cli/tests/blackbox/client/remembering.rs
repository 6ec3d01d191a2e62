//! Which project a folder belongs to: on which server, and where nothing can be remembered.

use super::interrupted::{PROJECT, answer, release};
use super::scripted_server::{Reply, ScriptedServer};
use super::{client_command, write_files};
use crate::support::{Home, Ran};
use std::process::Command;

const ID: &str = "0123456789abcdef01234567";

/// A server that takes every deployment of the project `hello`.
fn server() -> ScriptedServer {
    ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("GET /v1/me ") => Reply::json(
            200,
            r#"{"user":{"email":"ada@example.com","fullname":"Ada"}}"#,
        ),
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
        }
        line if line.starts_with("GET /v1/releases/") => release("READY"),
        _ => answer(request),
    })
}

fn run(command: &mut Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

fn log_in(home: &Home, server: &ScriptedServer, name: &str) {
    let args = ["login", &server.url(), "--token", "t", "--name", name];
    run(&mut client_command(home, &args)).assert(0);
}

#[test]
fn a_deployment_with_a_token_of_the_environment_needs_no_home() {
    let server = server();
    let home = Home::new();
    write_files(home.path(), &[("site/index.html", "x")]);
    let deploy = |project: &[&str]| {
        let mut command = client_command(&home, &[&["deploy", "site"], project].concat());
        command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t");
        command
    };
    let named = ["--project", "hello"];
    let ran = run(deploy(&named).env("XDG_CONFIG_HOME", "/dev/null/x"));
    assert_eq!(ran.assert(0).stdout, "http://hello.test\n");
    assert!(!ran.stderr.contains("warning"), "{ran:?}");
    run(deploy(&[]).env("XDG_CONFIG_HOME", "/dev/null/x"))
        .assert(2)
        .assert_says("which project?");
    // Where there is one, nothing is written to it.
    run(&mut deploy(&named)).assert(0);
    assert!(!home.path().join("xdg").exists());
}

#[test]
fn a_release_is_made_although_its_project_cannot_be_remembered() {
    let server = server();
    let home = Home::new();
    write_files(home.path(), &[("site/index.html", "x")]);
    log_in(&home, &server, "a");
    let deploy = client_command(&home, &["deploy", "site", "--project", "hello"]);
    // No file can be written; a pipe is none.
    let script = r#"trap '' XFSZ; ulimit -f 0; exec "$@""#;
    let mut limited = Command::new("sh");
    limited.args(["-c", script, "sh"]).arg(deploy.get_program());
    limited.args(deploy.get_args()).current_dir(home.path());
    for (name, value) in deploy.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let ran = run(&mut limited);
    ran.assert(0)
        .assert_says("warning: which project this folder");
    assert_eq!(ran.stdout, "http://hello.test\n");
}

#[test]
fn a_folder_is_remembered_for_its_server_only() {
    let (first, second) = (server(), server());
    let home = Home::new();
    write_files(home.path(), &[("site/index.html", "x")]);
    log_in(&home, &first, "first");
    log_in(&home, &second, "second");
    let deploy = |args: &[&str]| {
        let args = [&["deploy", "site"], args].concat();
        run(&mut client_command(&home, &args))
    };
    deploy(&["--project", "hello", "--context", "first"]).assert(0);
    deploy(&["--context", "first"]).assert(0);
    deploy(&["--context", "second"])
        .assert(2)
        .assert_says("which project?");
    let posts = second.requests();
    assert!(
        posts.iter().all(|it| it.line.starts_with("GET ")),
        "{posts:?}"
    );
}

#[test]
fn limits_that_cannot_be_read_are_a_failure() {
    for (status, code) in [(401, 0), (404, 0), (405, 0), (403, 3), (500, 6)] {
        let server = ScriptedServer::start(move |request| match request.line.as_str() {
            line if line.starts_with("GET /.well-known/") => Reply::status(status),
            line if line.starts_with("GET /v1/projects/hello ") => Reply::json(200, PROJECT),
            line if line.starts_with("POST ") => {
                Reply::json(201, &format!(r#"{{"releaseID":"{ID}"}}"#))
            }
            _ => release("READY"),
        });
        let home = Home::new();
        write_files(home.path(), &[("site/index.html", "x")]);
        let args = ["deploy", "site", "--project", "hello", "--detach"];
        let mut command = client_command(&home, &args);
        command
            .env("ESTRADE_URL", server.url())
            .env("ESTRADE_TOKEN", "t");
        run(&mut command).assert(code);
        let has_posted = server
            .requests()
            .iter()
            .any(|it| it.line.starts_with("POST "));
        assert_eq!(has_posted, code == 0, "{status}");
    }
}
