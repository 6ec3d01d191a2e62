//! What a person reads when the server is up.

use crate::support::{Home, Server, serve_args};
use std::process::Command;

/// Runs the two lines under "Try it", as if pasted.
fn paste(home: &Home, greeting: &str) -> Vec<String> {
    let lines = greeting
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("curl "));
    lines
        .map(|line| {
            let silent = line.replacen("curl ", "curl -sS --fail ", 1);
            let output = Command::new("sh")
                .args(["-c", &silent])
                .current_dir(home.path())
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        })
        .collect()
}

#[test]
fn the_greeting_says_what_a_newcomer_needs_and_its_commands_work() {
    let home = Home::new();
    let server = Server::start(&home);
    for part in [
        server.platform.as_str(),
        &server.ai,
        &format!("{}/docs", server.platform),
        &format!("{}/docs", server.ai),
        "./estrade-data",
        "admin.token",
    ] {
        assert!(
            server.greeting.contains(part),
            "{part}: {}",
            server.greeting
        );
    }
    assert!(
        !server.greeting.contains("eyJ"),
        "the token itself is no greeting"
    );
    assert!(server.greeting.lines().count() < 15);
    assert_eq!(paste(&home, &server.greeting), [r#"{"projects":[]}"#, "[]"]);
    server.stop();
}

#[test]
fn the_commands_work_with_an_odd_directory_too() {
    let home = Home::new();
    for name in ["with space", "it's", "$HOME", "ünïcode"] {
        let mut command = home.command(serve_args());
        command.args(["--data-dir", name]);
        let server = Server::start_by(&home, command);
        assert_eq!(paste(&home, &server.greeting).len(), 2, "{name}");
        server.stop();
    }
}

#[test]
fn a_lost_token_is_replaced_as_the_greeting_says() {
    let home = Home::new();
    let mut command = home.command(serve_args());
    command.args(["--data-dir", "my data"]);
    Server::start_by(&home, command).stop();
    std::fs::remove_file(home.path().join("my data/admin.token")).unwrap();

    let mut command = home.command(serve_args());
    command.args(["--data-dir", "my data"]);
    let server = Server::start_by(&home, command);
    let line = server
        .greeting
        .lines()
        .find(|line| line.contains("estrade token create"))
        .unwrap();
    let hint = line.trim().trim_start_matches("Token").trim();
    let binary = env!("CARGO_BIN_EXE_estrade");
    let script = format!("estrade() {{ '{binary}' \"$@\"; }}\nTOKEN=$({hint})\n");
    for curl in server
        .greeting
        .lines()
        .filter(|line| line.contains("curl "))
    {
        let silent = curl.replacen("curl ", "curl -sS --fail ", 1);
        let output = home
            .prepare(Command::new("sh"), ["-c", &format!("{script}{silent}")])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{curl}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    server.stop();
}

/// The line of the greeting that says how the administrator gets a password.
fn password_line(server: &Server) -> Option<String> {
    let mut lines = server.greeting.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("Password"));
    line.map(|line| line.trim().to_owned())
}

/// The code in a link of the account panel.
fn code_of(link: &str, kind: &str) -> String {
    let link = link.split_whitespace().next().unwrap();
    let (_, rest) = link.split_once(&format!("/panel/{kind}/")).unwrap();
    assert_eq!(rest.len(), 43, "{link}");
    rest.to_owned()
}

#[test]
fn a_first_start_shows_a_link_that_sets_the_administrators_password() {
    let home = Home::new();
    let server = Server::start(&home);
    let line = password_line(&server).unwrap();
    let url = format!("{}/panel/welcome/", server.platform);
    assert!(line.starts_with(&url), "{line}");
    let code = code_of(&line, "welcome");
    assert!(!server.log().contains(&code));
    server.stop();

    // It cannot be shown again; the command that makes another one is.
    let server = Server::start(&home);
    assert!(!server.greeting.contains("/welcome/"));
    let line = password_line(&server).unwrap();
    let command = line.strip_prefix("none yet: estrade ").unwrap();
    assert_eq!(command, "account reset-link --email admin@localhost");
    let made = home.run(["account", "reset-link", "--email", "admin@localhost"]);
    let printed = made.assert(0).stdout.clone();
    assert_ne!(code_of(&printed, "reset"), code);
    assert!(!made.stderr.contains(&code_of(&printed, "reset")));
    server.stop();

    let args = [
        "account",
        "password",
        "--email",
        "admin@localhost",
        "--password-stdin",
    ];
    home.run_with_input(args, "correct horse").assert(0);
    let server = Server::start(&home);
    assert_eq!(password_line(&server), None);
    server.stop();
    home.run(["account", "reset-link", "--email", "nobody@example.com"])
        .assert(1)
        .assert_says("was not found");
    let none = [
        "account",
        "remove-second-factor",
        "--email",
        "admin@localhost",
    ];
    home.run(none).assert(1).assert_says("second factor");
}
