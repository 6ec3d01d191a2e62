//! `estrade shell`, at a terminal and between pipes.

use super::{delete_all, docker_of, home_on, image};
use crate::client::Person;
use crate::support::{Ran, Reaped, TIMEOUT};
use estrade_testkit::Docker;
use reqwest::Method;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Leads the session, so that the terminal outlives the program: says the program's process id, and afterwards whether
/// the terminal is as it was.
const LEADER: &str = r#"
before=$(stty -g)
sh -c 'echo "pid $$"; exec "$@"' sh "$@"
code=$?
[ "$(stty -g)" = "$before" ] && echo "same modes" || echo "other modes"
exit $code"#;

/// A terminal, and a program at it.
struct Terminal {
    keys: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
    /// The end of the program, through which its modes are looked at.
    far_end: File,
    leader: Reaped,
    pid: String,
}

impl Terminal {
    /// Starts a command at a terminal of this size.
    fn start(person: &Person, args: &[&str], columns: u16, rows: u16) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let path = ptsname(&near, Vec::new()).unwrap().into_bytes();
        let path = std::ffi::OsString::from_vec(path);
        let far_end = open_terminal(&path);
        let keys = File::from(near);
        set_size(&keys, columns, rows);
        let client = person.command(args);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c", LEADER, "sh"]);
        command.arg(client.get_program()).args(client.get_args());
        command.current_dir(person.home.path());
        for (name, value) in client.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let stream = || Stdio::from(far_end.try_clone().unwrap());
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let leader = Reaped(command.spawn().unwrap());
        let screen = read_aside(keys.try_clone().unwrap());
        let mut terminal = Self {
            keys,
            screen,
            shown: String::new(),
            far_end,
            leader,
            pid: String::new(),
        };
        terminal.read_until("pid ");
        let pid = terminal.read_until("\r\n");
        pid.trim().clone_into(&mut terminal.pid);
        terminal
    }

    /// Waits until the program reads single keys, which is when the shell there is open.
    fn wait_until_raw(&self) {
        let begun = Instant::now();
        while self.has_lines() {
            assert!(begun.elapsed() < TIMEOUT, "it never becomes raw");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the terminal collects lines and makes signals of Ctrl-C, as it does at first.
    fn has_lines(&self) -> bool {
        let modes = tcgetattr(&self.far_end).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    fn kill(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.pid]).status();
        assert!(kill.unwrap().success());
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, and forgets what came before.
    fn read_until(&mut self, expected: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.shown.find(expected) {
                let rest = self.shown.split_off(at + expected.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let left = TIMEOUT.saturating_sub(begun.elapsed());
            match self.screen.recv_timeout(left) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(error) => panic!("{expected:?} is not in {:?}: {error}", self.shown),
            }
        }
    }

    /// Waits for the program's end, which leaves the terminal as it was; its exit code, and what it said last.
    fn end(mut self) -> (Option<i32>, String) {
        let said = self.read_until(" modes\r\n");
        assert!(said.ends_with("same modes\r\n"), "{said}");
        (self.leader.wait().code(), said)
    }
}

fn open_terminal(path: &std::ffi::OsStr) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let options = options.read(true).write(true);
    let no_controlling_terminal = rustix::fs::OFlags::NOCTTY.bits();
    let options = options.custom_flags(no_controlling_terminal.cast_signed());
    options.open(path).unwrap()
}

/// What is shown, read on a thread of its own.
fn read_aside(mut terminal: File) -> Receiver<Vec<u8>> {
    let (sender, screen) = channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = terminal.read(&mut piece) {
            if sender.send(piece[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    screen
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

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
    let mut terminal = Terminal::start(&person, &shell, 101, 31);
    terminal.wait_until_raw();
    terminal.press("stty size; echo té''st\r");
    assert!(terminal.read_until("tést\r\n").contains("31 101"));
    assert!(!terminal.has_lines(), "keys wait for the end of a line");
    set_size(&terminal.keys, 77, 22);
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
        let mut terminal = Terminal::start(&person, &shell, 80, 24);
        terminal.wait_until_raw();
        terminal.press("echo he''re\r");
        terminal.read_until("here\r\n");
        terminal.kill(signal);
        assert_eq!(terminal.end().0, Some(code), "{signal}");
    }
    let mut terminal = Terminal::start(&person, &shell, 80, 24);
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
