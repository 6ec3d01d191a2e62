//! A home directory, the server that lives in it, and what both are asked.

use estrade_testkit::eventually_or;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take that should take a moment.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The account that a first start makes.
pub(crate) const ADMIN: &str = "admin@localhost";

/// A directory of its own for one test; the data directory is in it.
pub(crate) struct Home {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            variables: Vec::new(),
        }
    }

    /// The same in memory, if there is such a place: for tests that other users of the disk would
    /// disturb.
    pub(crate) fn in_memory() -> Self {
        match TempDir::new_in("/dev/shm") {
            Ok(directory) => Self {
                directory,
                variables: Vec::new(),
            },
            Err(_) => Self::new(),
        }
    }

    /// Sets a variable for every command.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("estrade-data")
    }

    pub(crate) fn file(&self, name: &str) -> Vec<u8> {
        let path = self.data().join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn admin_token(&self) -> String {
        String::from_utf8(self.file("admin.token"))
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// The binary, in this directory and with no settings but ours.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.prepare(Command::new(env!("CARGO_BIN_EXE_estrade")), args)
    }

    /// Any program, in this directory and with no settings but ours.
    pub(crate) fn prepare<S: AsRef<OsStr>>(
        &self,
        mut command: Command,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ESTRADE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run<const N: usize>(&self, args: [&str; N]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    /// Runs a command that reads from its standard input.
    pub(crate) fn run_with_input<const N: usize>(&self, args: [&str; N], input: &str) -> Ran {
        let mut command = self.command(args);
        let streams = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        Ran::of(&child.wait_with_output().unwrap())
    }

    /// Makes a token for an account.
    pub(crate) fn create_token(&self, email: &str) -> String {
        let made = self.run(["token", "create", "--account", email]);
        made.assert(0).stdout.trim_end().to_owned()
    }

    /// Runs `serve`, which must not come up.
    pub(crate) fn fail_to_serve(&self) -> Ran {
        let mut server = self.command(serve_args());
        let child = server
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Reaped(child);
        let status = child.wait();
        let mut ran = Ran {
            code: status.code(),
            ..Ran::default()
        };
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        stdout.unwrap().read_to_string(&mut ran.stdout).unwrap();
        stderr.unwrap().read_to_string(&mut ran.stderr).unwrap();
        ran
    }
}

/// `serve` on ports that the system chooses.
pub(crate) fn serve_args() -> [&'static str; 7] {
    [
        "serve",
        "--platform-listen",
        "127.0.0.1:0",
        "--ai-listen",
        "127.0.0.1:0",
        "--edge-listen",
        "127.0.0.1:0",
    ]
}

/// What a command left.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    pub(crate) fn assert(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub(crate) fn assert_says(&self, words: &str) -> &Self {
        assert!(self.stderr.contains(words), "{words:?} is not in {self:?}");
        self
    }
}

/// A process that does not outlive its test.
pub(crate) struct Reaped(pub(crate) Child);

impl Reaped {
    /// Waits for its end; kills it when that takes too long.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.kill().unwrap();
        panic!("it did not end by itself: {:?}", self.0.wait());
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // One that has ended is not an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) process: Reaped,
    pub(crate) platform: String,
    pub(crate) ai: String,
    pub(crate) greeting: String,
    pub(crate) token: String,
    pub(crate) client: reqwest::Client,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts the server of a home and waits until it is ready.
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_by(home, home.command(serve_args()))
    }

    /// Starts the server by this command.
    pub(crate) fn start_by(home: &Home, mut command: Command) -> Self {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Reaped(child);
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, lines) = (process.0.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        let mut greeting = String::new();
        // The line with the second URL of "Try it" is the last one.
        while !greeting.contains("/v1/keys\n") {
            if stdout.read_line(&mut greeting).unwrap() == 0 {
                let status = process.wait();
                std::thread::sleep(Duration::from_millis(50));
                panic!(
                    "the server ended with {status}: {greeting}{}",
                    log.lock().unwrap()
                );
            }
        }
        let url = |name: &str| {
            let line = greeting.lines().find(|line| line.contains(name)).unwrap();
            let url = line
                .split_whitespace()
                .find(|word| word.starts_with("http://"));
            url.unwrap().to_owned()
        };
        let token_file = home.data().join("admin.token");
        Self {
            platform: url("Platform API"),
            ai: url("AI API"),
            token: std::fs::read_to_string(token_file)
                .map(|token| token.trim_end().to_owned())
                .unwrap_or_default(),
            client: reqwest::Client::builder()
                .timeout(TIMEOUT)
                .no_proxy()
                .build()
                .unwrap(),
            process,
            greeting,
            log,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Stops it as an administrator would, and checks that it took that well.
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.log()
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// What it has written to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Asks the platform API as the administrator.
    pub(crate) async fn platform(&self, method: Method, path: &str, body: Value) -> ApiResponse {
        self.ask(&self.platform, &self.token, method, path, body)
            .await
            .unwrap()
    }

    /// Asks the AI API as the administrator.
    pub(crate) async fn ai(&self, method: Method, path: &str, body: Value) -> ApiResponse {
        self.ask(&self.ai, &self.token, method, path, body)
            .await
            .unwrap()
    }

    /// The status of `GET /v1/me` with this token.
    pub(crate) async fn me(&self, token: &str) -> u16 {
        let response = self.ask(&self.platform, token, Method::GET, "/v1/me", Value::Null);
        response.await.unwrap().status.as_u16()
    }

    /// The status of a question whether this key is good.
    pub(crate) async fn authorize(&self, key: &str) -> u16 {
        let response = self.ask(
            &self.ai,
            key,
            Method::GET,
            "/v1/keys/authorize",
            Value::Null,
        );
        response.await.unwrap().status.as_u16()
    }

    /// Waits until both APIs say that writes succeed, or that they do not.
    pub(crate) async fn assert_ready(&self, ready: bool) {
        let ask = async |base: &str| {
            let response = self.ask(base, "", Method::GET, "/readyz", Value::Null);
            let response = response.await.unwrap();
            (response.status.as_u16(), response.json())
        };
        let good = serde_json::json!({"status": "ok", "database": "up"});
        let bad =
            |status| serde_json::json!({"status": status, "database": "down", "writes": "failing"});
        let (platform, ai) = if ready {
            ((200, good.clone()), (200, good))
        } else {
            ((503, bad("unavailable")), (200, bad("ok")))
        };
        let (expected, found) = ((platform, ai), RefCell::new(None));
        eventually_or(
            || format!("ready: {ready}, {:?}\n{}", found.borrow(), self.log()),
            || async {
                let now = (ask(&self.platform).await, ask(&self.ai).await);
                let is_so = now == expected;
                found.replace(Some(now));
                is_so
            },
        )
        .await;
    }

    /// One request; `null` is no body.
    pub(crate) async fn ask(
        &self,
        base: &str,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> reqwest::Result<ApiResponse> {
        let mut request = self.client.request(method, format!("{base}{path}"));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let code = headers.get("x-error-code");
        Ok(ApiResponse {
            status,
            error_code: code.map(|code| code.to_str().unwrap().to_owned()),
            text: response.text().await?,
        })
    }

    /// Makes a static project.
    pub(crate) async fn create_project(&self, name: &str) {
        let body = serde_json::json!({"name": name, "platform": "static", "planID": "micro"});
        self.platform(Method::POST, "/v1/projects", body)
            .await
            .assert(200);
    }

    /// Makes a key and returns its id and itself.
    pub(crate) async fn create_key(&self, name: &str) -> (String, String) {
        let body = serde_json::json!({"name": name, "workspaces": ["main"]});
        let made = self.ai(Method::POST, "/v1/keys", body).await;
        let made = made.assert(201).json();
        (text(&made["_id"]), text(&made["key"]))
    }
}

/// What a request came back with.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) error_code: Option<String>,
    pub(crate) text: String,
}

impl ApiResponse {
    pub(crate) fn assert(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A string inside JSON.
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is not a string"))
        .to_owned()
}

/// The names in a directory.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Asks again and again until the response is the expected one; when the last other one was asked for.
pub(crate) async fn time_until<F: Future<Output = u16>>(
    expected: u16,
    ask: impl Fn() -> F,
) -> Duration {
    let (started, mut last_wrong) = (Instant::now(), Duration::ZERO);
    loop {
        let began = started.elapsed();
        let status = ask().await;
        if status == expected {
            return last_wrong;
        }
        last_wrong = began;
        assert!(
            started.elapsed() < TIMEOUT,
            "still {status}, not {expected}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A database of its own for one test, on the server that `./test` starts.
pub(crate) struct Postgres {
    pub(crate) url: String,
    server: tokio_postgres::Config,
    name: String,
}

impl Postgres {
    pub(crate) async fn create() -> Self {
        let Ok(url) = std::env::var("ESTRADE_TEST_POSTGRES") else {
            panic!("ESTRADE_TEST_POSTGRES is not set: run the tests with ./test");
        };
        let server: tokio_postgres::Config = url.parse().unwrap();
        let name = format!("blackbox_{:016x}", random());
        let database = Self {
            url: format!("{}/{name}", url.rsplit_once('/').unwrap().0),
            server,
            name,
        };
        let create = format!("CREATE DATABASE {}", database.name);
        database.execute(&create).await;
        database
    }

    /// Drops the database.
    pub(crate) async fn drop(self) {
        self.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await;
    }

    /// The first column of a query on this database.
    pub(crate) async fn column(&self, sql: &str) -> Vec<String> {
        let mut server = self.server.clone();
        let connected = server.dbname(&self.name).connect(tokio_postgres::NoTls);
        let (client, connection) = connected.await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        let messages = client.simple_query(sql).await.unwrap();
        messages
            .into_iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect()
    }

    async fn execute(&self, sql: &str) {
        let connected = self.server.connect(tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        client.batch_execute(sql).await.unwrap();
        drop(client);
        tasks.join_all().await;
    }
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
