//! `estrade deploy --watch`.

use super::{Person, write_files};
use crate::support::{Reaped, TIMEOUT};
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// The lines of a stream, read on a thread of their own.
fn lines_of(stream: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Waits for a line with these words.
fn wait_for(lines: &Receiver<String>, words: &str) {
    let mut seen = Vec::new();
    while !seen
        .last()
        .is_some_and(|line: &String| line.contains(words))
    {
        match lines.recv_timeout(TIMEOUT) {
            Ok(line) => seen.push(line),
            Err(error) => panic!("{words:?} is not in {seen:?}: {error}"),
        }
    }
}

#[test]
fn a_folder_is_deployed_again_after_a_change() {
    let person = Person::logged_in();
    let home = person.home.path();
    write_files(home, &[("site/index.html", "one")]);
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let args = [
            "deploy",
            "site",
            "--project",
            "hello",
            "--create",
            "--watch",
        ];
        let mut command = person.command(&args);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = Reaped(child.unwrap());
        let lines = lines_of(child.0.stderr.take().unwrap());
        wait_for(&lines, " is live");
        wait_for(&lines, "waiting for changes");
        write_files(
            home,
            &[("site/index.html", signal), ("site/more.html", "two")],
        );
        wait_for(&lines, "sending ");
        wait_for(&lines, " is live");
        wait_for(&lines, "waiting for changes");
        let kill = Command::new("kill")
            .args([signal, &child.0.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().code(), Some(code));
    }
    let list = person.json(&["releases", "list", "-p", "hello"]);
    assert_eq!(list["total"], 4, "{list}");
    person.server.stop();
}
