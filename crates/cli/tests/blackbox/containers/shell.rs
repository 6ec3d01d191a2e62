//! `estrade shell`, at a terminal and between pipes.

use super::{delete_all, docker_of, home_on, image};
use crate::client::Person;
use crate::support::{Ran, Reaped, TIMEOUT};
use crate::terminal::Terminal;
use estrade_testkit::Docker;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A person whose project `shop` runs.
async fn with_project() -> (Person, Docker) {
    let socket = Docker::socket();
    let person = Person::with_server(home_on(&socket));
    let docker = docker_of(&person.home, &socket);
    let new = json!({"name": "shop", "platform": "docker", "planID": "nano"});
    let server = &person.server;
    let made = server.platform(Method::POST, "/v1/projects", new).await;
    made.assert(200);
    let path = "/v2/projects/shop/releases";
    let made = server.platform(Method::POST, path, image(1)).await;
    let release = made.assert(201).json()["releaseID"].clone();
    let path = format!(
        "/v1/releases/{}?wait=READY&timeout=60",
        release.as_str().unwrap()
    );
    let ended = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(ended.json()["release"]["state"], "READY", "{}", ended.text);
    (person, docker)
}

async fn clean(person: Person, docker: &Docker) {
    delete_all(&person.server, docker).await;
    person.server.stop();
}

/// Runs a command between pipes.
fn piped(person: &Person, args: &[&str], input: &[u8]) -> std::process::Output {
    let mut command = person.command(args);
    let streams = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Beside the output, which would fill its pipe.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_at_a_terminal_has_its_size_its_keys_and_its_end() {
    let (person, docker) = with_project().await;
    let shell = ["shell", "--project", "shop"];
    let mut terminal = Terminal::start(&person.command(&shell), 101, 31);
    terminal.wait_until_raw();
    terminal.press("stty size; echo té''st\r");
    assert!(terminal.read_until("tést\r\n").contains("31 101"));
    assert!(!terminal.has_lines(), "keys wait for the end of a line");
    terminal.resize(77, 22);
    let mut seen = String::new();
    let begun = Instant::now();
    while !seen.contains("22 77") && begun.elapsed() < TIMEOUT {
        terminal.press("stty size; echo siz''e\r");
        seen = terminal.read_until("size\r\n");
    }
    assert!(seen.contains("22 77"), "{seen:?}");
    // Ctrl-C is for the program there; this one goes on.
    terminal.press("echo beg''un; sleep 600\r");
    terminal.read_until("begun\r\n");
    terminal.press("\x03");
    terminal.press("echo aft''er\r");
    terminal.read_until("after\r\n");
    terminal.press("(exit 3)\r");
    terminal.press("\x04");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(3), "{shown}");

    // Signals from outside, and an end that is not the shell's.
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130)] {
        let mut terminal = Terminal::start(&person.command(&shell), 80, 24);
        terminal.wait_until_raw();
        terminal.press("echo he''re\r");
        terminal.read_until("here\r\n");
        terminal.kill(signal);
        assert_eq!(terminal.end().0, Some(code), "{signal}");
    }
    let mut terminal = Terminal::start(&person.command(&shell), 80, 24);
    terminal.wait_until_raw();
    terminal.press("echo he''re\r");
    terminal.read_until("here\r\n");
    person.server.signal("KILL");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(6), "{shown}");
    assert!(shown.contains("cannot reach http://"), "{shown}");
    docker.clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_between_pipes_gets_and_gives_bytes() {
    let (person, docker) = with_project().await;
    let run = |args: &[&str], input: &[u8]| {
        let output = piped(&person, &[&["shell", "-p", "shop"], args].concat(), input);
        let ran = Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        (ran, output.stdout)
    };
    let (ran, _) = run(&[], b"echo out; echo err >&2; exit 5\n");
    assert_eq!(
        (ran.assert(5).stdout.as_str(), ran.stderr.as_str()),
        ("out\n", "err\n")
    );
    let (ran, _) = run(&[], b"echo without an end of line");
    assert_eq!(ran.assert(0).stdout, "without an end of line\n");
    // Every byte, and more than any buffer on the way holds.
    let all: Vec<u8> = (0..3_000_000_u32)
        .map(|it| (it % 251).to_le_bytes()[0])
        .collect();
    let (ran, stdout) = run(&["--", "cat"], &all);
    assert!(
        ran.code == Some(0) && stdout == all,
        "{} bytes, {:?}",
        stdout.len(),
        ran.stderr
    );
    let (ran, _) = run(&["--", "printf", "%s.", "a b", "it's", "$HOME"], b"");
    assert_eq!(ran.assert(0).stdout, "a b.it's.$HOME.");
    let (ran, _) = run(&["--", "echo one two | wc -w"], b"");
    assert_eq!(ran.assert(0).stdout.trim(), "2");
    // A command that leaves its input unread ends all the same.
    let (ran, _) = run(&["--", "true"], &all);
    ran.assert(0);
    run(&["--", "no-such-command"], b"").0.assert(127);
    run(&["--", "sh", "-c", "kill -9 $$"], b"").0.assert(137);
    // Nobody reads any more.
    let mut child = Reaped(
        person
            .command(&["shell", "-p", "shop", "--", "yes"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut stdout = child.0.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100]).unwrap();
    drop(stdout);
    assert_eq!(child.wait().code(), Some(0));

    person.run(&["projects", "scale", "shop", "0"]).assert(0);
    let begun = Instant::now();
    loop {
        let ran = person.run(&["shell", "-p", "shop", "--", "true"]);
        if ran.code == Some(5) {
            ran.assert_says("error: no instance of this project is running; deploy it");
            assert_eq!(ran.stdout, "");
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{ran:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    clean(person, &docker).await;
}
