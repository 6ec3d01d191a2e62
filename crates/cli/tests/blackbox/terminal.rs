//! A terminal for programs that behave differently at one.

use crate::support::{Reaped, TIMEOUT};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
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
pub(crate) struct Terminal {
    keys: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
    /// The end of the program, through which its modes are looked at.
    far_end: File,
    leader: Reaped,
    pid: String,
}

impl Terminal {
    /// Starts a program at a terminal of this size.
    pub(crate) fn start(program: &Command, columns: u16, rows: u16) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let path = ptsname(&near, Vec::new()).unwrap().into_bytes();
        let path = std::ffi::OsString::from_vec(path);
        let far_end = open_terminal(&path);
        let keys = File::from(near);
        set_size(&keys, columns, rows);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c", LEADER, "sh"]);
        command.arg(program.get_program()).args(program.get_args());
        if let Some(directory) = program.get_current_dir() {
            command.current_dir(directory);
        }
        for (name, value) in program.get_envs() {
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

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.keys, columns, rows);
    }

    /// Waits until the program reads single keys, which is when the shell there is open.
    pub(crate) fn wait_until_raw(&self) {
        let begun = Instant::now();
        while self.has_lines() {
            assert!(begun.elapsed() < TIMEOUT, "it never becomes raw");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the terminal collects lines and makes signals of Ctrl-C, as it does at first.
    pub(crate) fn has_lines(&self) -> bool {
        let modes = tcgetattr(&self.far_end).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    pub(crate) fn kill(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.pid]).status();
        assert!(kill.unwrap().success());
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, and forgets what came before.
    pub(crate) fn read_until(&mut self, expected: &str) -> String {
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
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
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
