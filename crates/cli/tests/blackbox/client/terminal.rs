//! Commands at a terminal: questions, progress, colours, the width of tables, text of others.

use super::interrupted::{answer, release};
use super::scripted_server::{Reply, ScriptedServer};
use super::{Person, client_command, write_files};
use crate::support::Home;
use crate::terminal::Terminal;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

const ID: &str = "0123456789abcdef01234567";

/// A command with a token for this server.
fn command(home: &Home, server: &ScriptedServer, args: &[&str]) -> Command {
    let mut command = client_command(home, args);
    command
        .env("ESTRADE_URL", server.url())
        .env("ESTRADE_TOKEN", "t")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    command
}

/// What a command shows on a terminal, to its end.
fn shown(command: &Command, columns: u16, code: i32) -> String {
    let (found, shown) = Terminal::start(command, columns, 24).end();
    assert_eq!(found, Some(code), "{shown:?}");
    shown
}

#[test]
fn a_project_is_asked_for_once_and_remembered() {
    let person = Person::logged_in();
    write_files(person.home.path(), &[("My site/index.html", "x")]);
    let deploy = person.command(&["deploy", "My site"]);
    let mut terminal = Terminal::start(&deploy, 100, 24);
    terminal.read_until("Project [my-site]: ");
    terminal.press("hello\r");
    terminal.read_until("There is no project hello. Make it (static, plan nano)? (yes/no) [no]: ");
    terminal.press("yes\r");
    terminal.read_until("made hello (static, plan nano)");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("v1 is live"), "{shown}");
    // Also where nobody could be asked.
    person
        .run(&["deploy", "My site"])
        .assert(0)
        .assert_says("v2 is live");
    let mut terminal = Terminal::start(&deploy, 100, 24);
    let shown = terminal.read_until("v3 is live");
    assert!(!shown.contains("Project ["), "{shown}");
    assert_eq!(terminal.end().0, Some(0));
    person.server.stop();
}

#[test]
fn a_question_is_answered_with_no_unless_yes_is_typed() {
    let person = Person::logged_in();
    person.create_project("hello");
    let delete = person.command(&["projects", "delete", "hello"]);
    let mut terminal = Terminal::start(&delete, 100, 24);
    terminal.read_until("(yes/no) [no]: ");
    terminal.press("\r");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("nothing was done"), "{shown}");
    let mut terminal = Terminal::start(&delete, 100, 24);
    terminal.read_until("(yes/no) [no]: ");
    terminal.press("y\r");
    assert_eq!(terminal.end().0, Some(0));
    person.run(&["projects", "show", "hello"]).assert(4);
    person.server.stop();
}

#[test]
fn progress_is_shown_while_files_are_sent() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("POST /v2/projects/hello/releases") => {
            let announced: serde_json::Value = serde_json::from_str(&request.body).unwrap();
            let missing = format!(
                r#"{{"message":"m","data":{{"code":"missing_files","files":{}}}}}"#,
                announced["files"]
            );
            Reply::json(409, &missing)
        }
        line if line.starts_with("PUT ") => Reply::Silence,
        _ => answer(request),
    });
    let home = Home::new();
    write_files(home.path(), &[("site/index.html", &"x".repeat(1 << 20))]);
    let args = ["deploy", "site", "--project", "hello"];
    let mut terminal = Terminal::start(&command(&home, &server, &args), 100, 24);
    terminal.read_until("sending 1 file, 1.0 MiB");
    // Bytes of all bytes; the rate and the time that is left follow.
    let bar = terminal.read_until("/1.00 MiB ");
    assert!(bar.contains("sending "), "{bar:?}");
    terminal.read_until("/s ");
    terminal.kill("-INT");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("no release was made"), "{shown}");

    let quiet = command(&home, &server, &[&args[..], &["--quiet"]].concat());
    let terminal = Terminal::start(&quiet, 100, 24);
    std::thread::sleep(Duration::from_millis(1500));
    terminal.kill("-INT");
    let (_, shown) = terminal.end();
    assert!(!shown.contains("MiB"), "{shown:?}");
}

/// The answer to `projects list`.
fn projects() -> Reply {
    let mut list = String::new();
    for name in ["one", "two"] {
        let comma = if list.is_empty() { "" } else { "," };
        write!(
            list,
            r#"{comma}{{"_id":"{ID}","created_at":"2026-11-15T01:02:03.004Z","planID":"nano","scale":1,"type":"static",
            "status":"ACTIVE","project_id":"{name}","url":"http://{name}.apps.example.test","isDeployed":true}}"#
        )
        .unwrap();
    }
    Reply::json(200, &format!(r#"{{"projects":[{list}]}}"#))
}

#[test]
fn tables_fit_the_terminal_and_colours_can_be_refused() {
    let server = ScriptedServer::start(|request| {
        if request.line.starts_with("GET /v1/projects ") {
            projects()
        } else {
            Reply::status(404)
        }
    });
    let home = Home::new();
    let list = || command(&home, &server, &["projects", "list"]);
    let wide = shown(&list(), 120, 0);
    assert!(wide.contains("\u{1b}[1mNAME "), "{wide:?}");
    assert!(wide.contains("one   static    nano  1"), "{wide:?}");
    // Too narrow for addresses that stay whole.
    let narrow = shown(&list(), 60, 0);
    for line in [
        "name      one\r\n",
        "url       http://two.apps.example.test\r\n",
    ] {
        assert!(narrow.contains(line), "{line:?} is not in {narrow:?}");
    }
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = shown(list().env(name, value), 120, 0);
        assert!(
            plain.contains("NAME ") && !plain.contains('\u{1b}'),
            "{plain:?}"
        );
    }
    let show = || command(&home, &server, &["projects", "show", "nothing"]);
    let failed = shown(&show(), 120, 4);
    assert!(
        failed.contains("\u{1b}[1;31merror:\u{1b}[0m "),
        "{failed:?}"
    );
    let plain = shown(show().env("NO_COLOR", "1"), 120, 4);
    assert!(
        plain.contains("error: ") && !plain.contains('\u{1b}'),
        "{plain:?}"
    );
}

/// Both a control sequence and a character may come in two pieces.
#[test]
fn a_raw_response_cannot_steer_the_terminal() {
    let server = ScriptedServer::start(|request| match request.line.as_str() {
        line if line.starts_with("GET /v1/release") => release("READY"),
        _ => Reply::Pieces(
            [
                &b"a\x1b"[..],
                b"]0;owned\x07b\xe2\x86",
                b"\x92c\x1b[3",
                b"1md",
            ]
            .map(<[u8]>::to_vec)
            .to_vec(),
        ),
    });
    let home = Home::new();
    let raw = shown(&command(&home, &server, &["api", "GET", "/x"]), 120, 0);
    assert!(raw.contains("ab→cd\r\n"), "{raw:?}");
    assert!(!raw.contains('\u{1b}'), "{raw:?}");
}
