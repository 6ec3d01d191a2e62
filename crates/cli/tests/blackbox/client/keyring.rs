//! Where tokens are kept: GNOME's keyring on a session bus of its own, and the file without one.

use super::client_command;
use super::scripted_server::{Reply, ScriptedServer};
use crate::support::{Home, Ran, Reaped, TIMEOUT};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-that-is-secret";
const ME: &str = r#"{"user":{"email":"ada@example.com","fullname":"Ada"}}"#;

/// A desktop: a session bus with an unlocked keyring. The bus starts nothing by itself.
struct Desktop {
    home: Home,
    server: ScriptedServer,
    address: String,
    keyring: Reaped,
    _bus: Reaped,
}

impl Desktop {
    fn start() -> Self {
        let home = Home::new();
        let socket = home.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        let config = home.path().join("bus.conf");
        let text = format!(
            r#"<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth><policy context="default">
<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>"#
        );
        std::fs::write(&config, text).unwrap();
        let mut bus = Command::new("dbus-daemon");
        bus.arg("--nofork")
            .arg(format!("--config-file={}", config.display()));
        let bus = start(&home, bus, &address);
        wait_until(|| socket.exists());
        let mut keyring = Command::new("gnome-keyring-daemon");
        keyring.args(["--foreground", "--unlock", "--components=secrets"]);
        keyring.env("XDG_DATA_HOME", home.path().join("data"));
        let mut keyring = start(&home, keyring, &address);
        // The empty password of a keyring that is made with it.
        let mut password = keyring.0.stdin.take().unwrap();
        password.write_all(b"\n").unwrap();
        drop(password);
        let server = ScriptedServer::start(|request| match request.line.as_str() {
            line if line.starts_with("GET /v1/me ") => Reply::json(200, ME),
            _ => Reply::json(200, r#"{"projects":[]}"#),
        });
        let desktop = Self {
            home,
            server,
            address,
            keyring,
            _bus: bus,
        };
        wait_until(|| {
            let alias = "/org/freedesktop/secrets/aliases/default";
            let get = "org.freedesktop.DBus.Properties.Get";
            let locked = ["org.freedesktop.Secret.Collection", "Locked"];
            let args = locked.map(|text| format!("string:{text}"));
            let said = desktop.call(alias, get, &args);
            said.is_some_and(|said| said.contains("boolean false"))
        });
        desktop
    }

    /// Calls a method of the keyring; what it returned, if it did.
    fn call(&self, path: &str, method: &str, args: &[String]) -> Option<String> {
        let mut command = Command::new("dbus-send");
        command
            .args([
                "--session",
                "--print-reply",
                "--dest=org.freedesktop.secrets",
            ])
            .args([path, method])
            .args(args)
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(said)
    }

    /// A command in a session of this desktop.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = client_command(&self.home, args);
        command
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn log_in(&self, options: &[&str]) -> Ran {
        let url = self.server.url();
        let login: &[&str] = &["login", &url, "--token", TOKEN, "--name", "test"];
        let ran = self.run(&[login, options].concat());
        ran.assert(0);
        ran
    }

    /// The file in which logins are.
    fn contexts(&self) -> String {
        std::fs::read_to_string(self.home.path().join("xdg/estrade/contexts.json")).unwrap()
    }

    /// Whether the last request carried the token.
    fn was_sent(&self) -> bool {
        let requests = self.server.requests();
        let last = requests.last().unwrap();
        last.line.starts_with("GET /v1/projects ")
            && last.header("authorization") == format!("Bearer {TOKEN}")
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.keyring.0.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.unwrap().success());
    }
}

fn run(command: &mut Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

fn start(home: &Home, command: Command, bus: &str) -> Reaped {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut command = home.prepare(command, [""; 0]);
    command
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("DBUS_SESSION_BUS_ADDRESS", bus)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Reaped(command.spawn().unwrap_or_else(|error| {
        panic!("{program}: {error}; ./test installs it (Debian packages dbus and gnome-keyring)")
    }))
}

fn wait_until(is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < TIMEOUT, "it does not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
}

#[test]
fn a_token_is_kept_in_the_keyring_and_not_in_the_file() {
    let desktop = Desktop::start();
    desktop.log_in(&[]).assert_says("token in the keyring");
    let text = desktop.contexts();
    assert!(
        text.contains("\"keyring\"") && !text.contains(TOKEN),
        "{text}"
    );
    desktop.run(&["projects", "list"]).assert(0);
    assert!(desktop.was_sent());

    // Another login replaces it, and the entry before is gone.
    let (file, old) = (
        desktop.home.path().join("xdg/estrade/contexts.json"),
        desktop.home.path().join("old/estrade/contexts.json"),
    );
    copy(&file, &old);
    desktop.log_in(&[]);
    desktop.run(&["projects", "list"]).assert(0);
    let with_old = || {
        let mut command = desktop.command(&["projects", "list"]);
        command.env("XDG_CONFIG_HOME", desktop.home.path().join("old"));
        run(&mut command)
    };
    let lost = with_old();
    lost.assert(3)
        .assert_says("is in the keyring, and that does not have it any more")
        .assert_says("log in again: `estrade login http://127.0.0.1:");
    assert_eq!(lost.stdout, "");

    // Also when the next token is kept in the file.
    copy(&file, &old);
    let said = desktop.log_in(&["--no-keyring"]).stderr;
    assert!(!said.contains("keyring") && desktop.contexts().contains(TOKEN));
    with_old()
        .assert(3)
        .assert_says("does not have it any more");
    desktop.log_in(&[]);

    // Logging out removes it, for every copy of the file.
    copy(&file, &old);
    with_old().assert(0);
    let out = desktop.run(&["logout"]);
    out.assert(0).assert_says("forgot test");
    assert!(!out.stderr.contains("warning"), "{out:?}");
    with_old()
        .assert(3)
        .assert_says("does not have it any more");
}

#[test]
fn who_wants_no_keyring_has_a_file() {
    let desktop = Desktop::start();
    let said = desktop.log_in(&["--no-keyring"]).stderr;
    assert!(!said.contains("keyring"), "{said}");
    assert!(desktop.contexts().contains(TOKEN));
    let url = desktop.server.url();
    for (variable, value) in [("ESTRADE_KEYRING", "off"), ("DBUS_SESSION_BUS_ADDRESS", "")] {
        std::fs::remove_dir_all(desktop.home.path().join("xdg")).unwrap();
        let mut login = desktop.command(&["login", &url, "--token", TOKEN]);
        run(login.env(variable, value)).assert(0);
        assert!(desktop.contexts().contains(TOKEN), "{variable}");
    }
    // A file that was there before is used, with a keyring as well as without.
    desktop.run(&["projects", "list"]).assert(0);
    assert!(desktop.was_sent());

    // What is in the keyring is not had without it, and that is said at once.
    desktop.log_in(&[]);
    for (variable, value, says) in [
        (
            "ESTRADE_KEYRING",
            "off",
            "is turned off by ESTRADE_KEYRING=off",
        ),
        ("DBUS_SESSION_BUS_ADDRESS", "", "needs a session bus"),
    ] {
        let mut list = desktop.command(&["projects", "list"]);
        run(list.env(variable, value)).assert(3).assert_says(says);
        let mut given = desktop.command(&["projects", "list"]);
        given.env("ESTRADE_TOKEN", TOKEN).env("ESTRADE_URL", &url);
        run(given.env(variable, value)).assert(0);
    }
}

#[test]
fn a_keyring_that_is_locked_or_hangs_does_not_hold_anybody_up() {
    let desktop = Desktop::start();
    desktop.log_in(&[]);
    let login = "/org/freedesktop/secrets/collection/login";
    let locked = desktop.call(
        "/org/freedesktop/secrets",
        "org.freedesktop.Secret.Service.Lock",
        &[format!("array:objpath:{login}")],
    );
    assert!(locked.is_some_and(|locked| locked.contains(login)));
    desktop
        .run(&["projects", "list"])
        .assert(3)
        .assert_says("and that is locked");
    desktop
        .log_in(&[])
        .assert_says("because the keyring is locked");
    assert!(desktop.contexts().contains(TOKEN));

    desktop.signal("STOP");
    let began = Instant::now();
    desktop
        .log_in(&[])
        .assert_says("because the keyring does not answer within 2 s");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert!(desktop.contexts().contains(TOKEN));
    desktop.run(&["projects", "list"]).assert(0);
    assert!(desktop.was_sent());
}
