//! The gateway of the built binary, between raw clients and a scripted upstream.

mod budgets;
mod cuts;
mod durability;
mod hangups;
mod hostile;
mod in_flight;
mod outage;

use crate::support::{Home, Postgres, Server, serve_args, text};
use estrade_mock_upstream::MockUpstream;
use reqwest::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The upstream's key; nobody but the upstream may ever see it.
const SECRET: &str = "sk-upstream-0f1e2d3c4b5a69788796a5b4c3d2e1f0";
/// The model that the upstream offers; each token of a response costs 0.001, the prompt nothing.
pub(crate) const MODEL: &str = "acme/large";

/// Tests that repeat themselves do so ten times as often with `./test --full`.
fn times(full: usize) -> usize {
    let is_full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    if is_full { full } else { full / 10 }
}

/// Where the facts are.
enum Backend {
    Sqlite,
    Postgres,
}

/// An installation with one upstream.
struct InferenceFixture {
    home: Home,
    database: Option<Postgres>,
}

impl InferenceFixture {
    async fn new(backend: Backend, upstream: &MockUpstream, more: &str) -> Self {
        let database = match backend {
            Backend::Sqlite => None,
            Backend::Postgres => Some(Postgres::create().await),
        };
        let url = database.as_ref().map(|database| database.url.clone());
        Self {
            home: home(url.as_deref(), upstream.address, more),
            database,
        }
    }

    fn start(&self) -> Server {
        start(&self.home)
    }

    async fn end(self, server: Server) {
        let log = server.stop();
        assert_no_secret(&self.home, &log);
        if let Some(database) = self.database {
            let tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'";
            for table in database.column(tables).await {
                let rows = database
                    .column(&format!("SELECT t::text FROM {table} t"))
                    .await;
                let found = rows.iter().any(|row| row.contains(SECRET));
                assert!(!found, "the upstream's key is in the table {table}");
            }
            database.drop().await;
        }
    }

    /// What the budgets say was spent, and how many slices are still out, from the database itself.
    async fn spent(&self) -> (i64, i64) {
        let sum = "SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT) FROM budgets";
        let slices = "SELECT CAST(COUNT(*) AS BIGINT) FROM budget_slices";
        if let Some(database) = &self.database {
            let number = async |sql| database.column(sql).await[0].parse().unwrap();
            return (number(sum).await, number(slices).await);
        }
        let file = self.home.data().join("estrade.db");
        let database = rusqlite::Connection::open(file).unwrap();
        let number = |sql| database.query_row(sql, [], |row| row.get(0)).unwrap();
        (number(sum), number(slices))
    }
}

/// A home with a configuration file that has one upstream.
fn home(database: Option<&str>, upstream: SocketAddr, more: &str) -> Home {
    let home = Home::in_memory()
        .with("ESTRADE_LIMITS_REQUESTS_PER_SECOND", "0")
        .with("ESTRADE_LOG_LEVEL", "debug")
        .with("UPSTREAM_KEY", SECRET);
    let config = format!(
        r#"
        {more}
        [[ai.providers]]
        name = "acme"
        base_url = "http://{upstream}/v1"
        api_key_env = "UPSTREAM_KEY"
        retries = 0
        [ai.providers.timeouts]
        connect_ms = 1000
        first_byte_ms = 1000
        idle_ms = 2000
        [[ai.providers.models]]
        id = "{MODEL}"
        price = {{ prompt = "0", completion = "1000" }}
        "#
    );
    std::fs::write(home.path().join("estrade.toml"), config).unwrap();
    match database {
        Some(url) => home.with("ESTRADE_DATABASE_URL", url),
        None => home,
    }
}

fn start(home: &Home) -> Server {
    let args = serve_args().into_iter().chain(["--config", "estrade.toml"]);
    Server::start_by(home, home.command(args))
}

/// Looks for the upstream's key in the log and in every file.
fn assert_no_secret(home: &Home, log: &str) {
    assert!(!log.contains(SECRET), "the upstream's key is in the log");
    let mut folders = vec![home.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let content = std::fs::read(&path).unwrap_or_default();
            let found = content
                .windows(SECRET.len())
                .any(|window| window == SECRET.as_bytes());
            assert!(!found, "the upstream's key is in {}", path.display());
        }
    }
}

/// Someone with a key, and where its workspace is.
#[derive(Clone)]
struct InferenceClient {
    key: String,
    workspace: String,
    address: String,
}

impl InferenceClient {
    /// Makes a key; `limits` are fields of the request.
    async fn new(server: &Server, name: &str, limits: Value) -> Self {
        let mut body = json!({"name": name, "workspaces": ["main"]});
        for (field, value) in limits.as_object().unwrap() {
            body[field] = value.clone();
        }
        let made = server.ai(Method::POST, "/v1/keys", body).await;
        let made = made.assert(201).json();
        let all = server.ai(Method::GET, "/v1/workspaces", Value::Null).await;
        let workspace = text(&all.json()["workspaces"][0]["_id"]);
        Self {
            key: text(&made["key"]),
            workspace,
            address: address(server),
        }
    }

    /// The same at a server that was started again.
    fn at(&self, server: &Server) -> Self {
        Self {
            address: address(server),
            ..self.clone()
        }
    }

    /// A request as it is on the wire, which is the last on its connection.
    fn request(&self, body: &str) -> String {
        let head = self.head(&format!("content-length: {}\r\n", body.len()));
        format!("{head}{body}")
    }

    /// The head of a request.
    fn head(&self, more: &str) -> String {
        format!(
            "POST /api/{}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\n{more}\r\n",
            self.workspace, self.key,
        )
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends bytes and reads until the connection is closed; empty when the server is gone.
    async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let Ok(mut stream) = TcpStream::connect(&self.address).await else {
            return String::new();
        };
        // One that refuses does not read to the end.
        let _ = stream.write_all(request.as_ref()).await;
        let mut all = Vec::new();
        let reading = stream.read_to_end(&mut all);
        let _ = tokio::time::timeout(Duration::from_mins(1), reading).await;
        String::from_utf8_lossy(&all).into_owned()
    }

    async fn call(&self, body: &str) -> String {
        self.exchange(self.request(body)).await
    }

    /// Everything in the logs of its workspace. When calls of a dead server are settled meanwhile, the
    /// pages move and some rows come twice.
    async fn logs(&self, server: &Server) -> Vec<Value> {
        let mut all = Vec::new();
        for page in 1.. {
            let path = format!(
                "/v1/workspaces/{}/logs?count=100&page={page}",
                self.workspace
            );
            let response = server.ai(Method::GET, &path, Value::Null).await;
            let response = response.assert(200).json();
            let rows = response["logs"].as_array().unwrap();
            if rows.is_empty() {
                break;
            }
            all.extend(rows.iter().cloned());
        }
        all
    }

    /// Calls and billionths, as the activity of its workspace has them.
    async fn activity(&self, server: &Server) -> (u64, i64) {
        let path = format!("/v1/workspaces/{}/activity", self.workspace);
        let response = server.ai(Method::GET, &path, Value::Null).await;
        let response = response.assert(200).json();
        let mut sum = (0, 0);
        for step in response.as_array().unwrap() {
            for model in step["data"].as_array().unwrap() {
                sum.0 += model["request_count"].as_u64().unwrap();
                sum.1 += nanos(&model["total_cost"]);
            }
        }
        sum
    }
}

fn address(server: &Server) -> String {
    server.ai.trim_start_matches("http://").to_owned()
}

/// A chat request.
fn chat(more: &str) -> String {
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"hi"}}]{more}}}"#)
}

/// A chat response with so many tokens.
pub(crate) fn chat_response(completion: u64) -> String {
    json!({
        "id": "c1", "object": "chat.completion", "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": completion, "total_tokens": 3 + completion},
    })
    .to_string()
}

/// Billionths of an amount in JSON.
pub(crate) fn nanos(amount: &Value) -> i64 {
    let amount = text(amount);
    let (whole, fraction) = amount.split_once('.').unwrap_or((&amount, ""));
    let fraction: i64 = format!("{fraction:0<9}").parse().unwrap();
    whole.parse::<i64>().unwrap() * 1_000_000_000 + fraction
}

/// The status of a response; 0 when there is none.
fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A header of a response.
fn header<'a>(response: &'a str, name: &str) -> &'a str {
    let head = response.split("\r\n\r\n").next().unwrap();
    let of = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    head.lines().find_map(of).unwrap_or_default()
}

/// Resident memory of a server.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}
