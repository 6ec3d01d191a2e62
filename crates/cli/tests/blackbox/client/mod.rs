//! The commands that talk to a server, as the built binary runs them: stdout, stderr and exit code.

mod ai;
mod browser_login;
mod deploy;
mod failures;
mod interrupted;
mod keyring;
mod large;
mod manage;
mod redeploy;
mod remembering;
mod resources;
mod scripted_server;
mod secrets;
mod shell;
mod streams;
mod teams;
mod terminal;

use crate::support::{Home, Ran, Server};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A server, and a person with a home directory of their own.
pub(super) struct Person {
    pub(super) home: Home,
    pub(super) server: Server,
}

impl Person {
    /// Starts a server and logs in to it as the administrator.
    pub(super) fn logged_in() -> Self {
        Self::with_server(Home::new())
    }

    /// The same with settings of the server in the home's variables.
    pub(super) fn with_server(home: Home) -> Self {
        let server = Server::start(&home);
        let person = Self { home, server };
        let token = person.server.token.clone();
        let url = person.server.platform.clone();
        person
            .run(&["login", &url, "--token", &token, "--name", "test"])
            .assert(0);
        person
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    /// A command, with nobody's configuration but this person's.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        client_command(&self.home, args)
    }

    /// Runs it with `--json`; stdout must be one document.
    pub(super) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat());
        serde_json::from_str(&ran.assert(0).stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error} in {ran:?}"))
    }

    /// Exit code, stdout and stderr of a command, without what differs from run to run.
    pub(super) fn snapshot(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        let text = format!("{}\n{}--\n{}", ran.code.unwrap(), ran.stdout, ran.stderr);
        redact(&text.replace(&self.server.platform, "[server]"))
    }

    /// Makes a static project.
    pub(super) fn create_project(&self, name: &str) {
        self.run(&[
            "projects",
            "create",
            name,
            "--platform",
            "static",
            "--plan",
            "nano",
        ])
        .assert(0);
    }
}

/// A command of the client with its own home directory.
pub(super) fn client_command(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(args);
    command
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("xdg"))
        .env("NO_PROXY", "*")
        // The keyring of whoever runs the tests is not theirs.
        .env_remove("DBUS_SESSION_BUS_ADDRESS");
    command
}

/// Writes files below a directory.
pub(super) fn write_files(directory: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Ids, times and tokens are different every time.
fn redact(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n', '(', ')', '`']);
    let mut shown = String::new();
    for word in words {
        let end = word.chars().last().filter(|c| " \n()`".contains(*c));
        let body = end.map_or(word, |end| word.strip_suffix(end).unwrap());
        let is_hex = |text: &str| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let is_time = |text: &str| text.len() == 24 && text.ends_with('Z') && text.contains('T');
        shown.push_str(match body {
            body if is_hex(body) => "[id]",
            body if is_time(body) => "[time]",
            body if body.starts_with("eyJ") => "[token]",
            body => body,
        });
        shown.extend(end);
    }
    let mut shown = shown.replace("just now", "[ago]");
    // From the longest on: `5 s ago` is also the end of `15 s ago`.
    for seconds in (1..60).rev() {
        shown = shown.replace(&format!("{seconds} s ago"), "[ago]");
        shown = shown.replace(&format!("{seconds} min ago"), "[ago]");
    }
    shown
}

#[test]
fn times_are_redacted_whole() {
    assert_eq!(redact("5 s ago, 15 s ago"), "[ago], [ago]");
}
